package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// preempt answers which of the nodes that preemption would make room on are open to the pod. The scheduler's simulation does not ask
// extenders, and without this it would evict pods from nodes that the pod may not go to.
func (h *handler) preempt(ctx context.Context, x *exchange) error {
	args := extenderv1.ExtenderPreemptionArgs{}
	if err := json.Unmarshal(x.body.Bytes(), &args); err != nil {
		return badRequest{http.StatusBadRequest, fmt.Errorf("expected the JSON of an ExtenderPreemptionArgs: %w", err)}
	}
	if args.Pod == nil {
		return badRequest{http.StatusBadRequest, errors.New("args.Pod: expected the pod to make room for, got none")}
	}
	if err := checkVictims(&args); err != nil {
		return badRequest{http.StatusBadRequest, err}
	}
	result := extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: args.NodeNameToMetaVictims}
	if args.NodeNameToMetaVictims == nil {
		result.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
		for name, victims := range args.NodeNameToVictims {
			meta := &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
			for _, pod := range victims.Pods {
				meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
			}
			result.NodeNameToMetaVictims[name] = meta
		}
	}
	return h.decides(args.Pod, func() error {
		open, err := h.extender.Open(ctx, args.Pod, slices.Sorted(maps.Keys(result.NodeNameToMetaVictims)))
		if err != nil {
			return err
		}
		maps.DeleteFunc(result.NodeNameToMetaVictims, func(name string, _ *extenderv1.MetaVictims) bool { return !open[name] })
		x.out, err = json.Marshal(result)
		return err
	})
}

// checkVictims returns which victims are missing: kube-scheduler sends none that are null.
func checkVictims(args *extenderv1.ExtenderPreemptionArgs) error {
	for name, victims := range args.NodeNameToMetaVictims {
		if victims == nil || slices.Contains(victims.Pods, nil) {
			return fmt.Errorf("args.NodeNameToMetaVictims[%q]: expected an object whose Pods are objects, got null", name)
		}
	}
	for name, victims := range args.NodeNameToVictims {
		if victims == nil || slices.Contains(victims.Pods, nil) {
			return fmt.Errorf("args.NodeNameToVictims[%q]: expected an object whose Pods are objects, got null", name)
		}
	}
	return nil
}

// preemptionShows is within what time the watch shows that a pod was nominated. Until then its siblings are decided about as if it were.
const preemptionShows = 10 * time.Second

// Open returns which of the nodes of these names, each of which has room for the pod after an eviction, the policy lets it be scheduled to.
// It counts the pod as if it had one of them for a while, so that its siblings preempt no more than the budget allows. The victims of a
// preemption are of a lower priority than the pod, so they are none of its siblings, and their end does not change the budget.
func (e *Extender) Open(ctx context.Context, pod *v1.Pod, names []string) (map[string]bool, error) {
	open := make(map[string]bool, len(names))
	if !e.concerns(pod) {
		for _, name := range names {
			open[name] = true
		}
		return open, nil
	}
	c := candidatesOf(names)
	err := e.decide(ctx, pod, c, func(d *deciding) error {
		claims := decision.OnDemand
		for i, kind := range c.kinds {
			if kind == noKind || d.verdicts[kind] != decision.Admitted {
				continue
			}
			switch facts := d.index.kinds[kind].facts; {
			case facts.Capacity.Type == decision.Spot:
				claims = decision.Spot
			case d.plan.Overflows():
				continue // decision.OverflowPreempts
			}
			open[names[i]] = true
		}
		if len(open) > 0 {
			d.claim(claims)
		}
		return nil
	})
	return open, err
}

// claim notes that the pod may soon be nominated to a node of that capacity type.
func (d *deciding) claim(capacity decision.CapacityType) {
	if _, bound := d.index.bound[d.pod.UID]; bound {
		return
	}
	entry := d.entry()
	entry.preempts, entry.claims = d.now.Add(preemptionShows), capacity
	d.register.put(entry)
}

// entry returns a copy of what is known of the pod.
func (d *deciding) entry() *asked {
	entry := &asked{
		pod: types.NamespacedName{Namespace: d.pod.Namespace, Name: d.pod.Name}, uid: d.pod.UID, last: d.now,
	}
	if d.before != nil {
		*entry = *d.before
	}
	entry.revision = d.subject.RevisionKey
	return entry
}
