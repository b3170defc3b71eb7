package extender

import (
	"context"
	"encoding/json"
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

// preempt returns the preemption candidates that the policy permits for the pod. The scheduler's
// preemption simulation does not ask extenders. Without this verb it would evict pods from nodes
// that the pod may not use.
func (h *handler) preempt(ctx context.Context, body []byte) (any, error) {
	args := extenderv1.ExtenderPreemptionArgs{}
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, badRequest{http.StatusBadRequest, fmt.Errorf("expected the JSON of an ExtenderPreemptionArgs: %w", err)}
	}
	invalid := func(format string, values ...any) error {
		return badRequest{http.StatusBadRequest, fmt.Errorf(format, values...)}
	}
	if args.Pod == nil {
		return nil, invalid("args.Pod: expected the pod to make room for, got none")
	}
	permitted := map[string]*extenderv1.MetaVictims{}
	for name, victims := range args.NodeNameToMetaVictims {
		if victims == nil || slices.Contains(victims.Pods, nil) {
			return nil, invalid("args.NodeNameToMetaVictims[%q]: expected an object whose Pods are objects, got null", name)
		}
		permitted[name] = victims
	}
	for name, victims := range args.NodeNameToVictims {
		if victims == nil || slices.Contains(victims.Pods, nil) {
			return nil, invalid("args.NodeNameToVictims[%q]: expected an object whose Pods are objects, got null", name)
		}
		meta := &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
		for _, pod := range victims.Pods {
			meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
		}
		permitted[name] = meta
	}
	return h.ifLeading(args.Pod, func() (any, error) {
		open, err := h.extender.preemptionNodes(ctx, args.Pod, slices.Sorted(maps.Keys(permitted)))
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(permitted, func(name string, _ *extenderv1.MetaVictims) bool { return !open[name] })
		return extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: permitted}, nil
	})
}

// nominationTimeout is the time within which the watch shows the pod's nomination. Until then, the
// pod counts as nominated in decisions about its siblings.
const nominationTimeout = 10 * time.Second

// preemptionNodes returns the names of the nodes that the policy permits for the pod. Every such
// node has room for the pod after an eviction. For a while, preemptionNodes counts the pod as if it
// ran on one, so that its siblings preempt no more than the budget permits. The victims of a
// preemption have a lower priority than the pod. So they are not its siblings, and their eviction
// does not change the budget.
func (e *Extender) preemptionNodes(ctx context.Context, pod *v1.Pod, candidates []string) (map[string]bool, error) {
	open := make(map[string]bool, len(candidates))
	if !e.appliesTo(pod) {
		for _, name := range candidates {
			open[name] = true
		}
		return open, nil
	}
	err := e.decide(ctx, pod, candidates, func(d *decisionState) error {
		claims := decision.OnDemand
		for _, node := range d.candidates {
			if node == nil || d.verdicts[node.kind.index] != decision.Admitted {
				continue
			}
			switch facts := node.kind.facts; {
			case facts.Capacity.Type == decision.Spot:
				claims = decision.Spot
			case d.plan.Overflows():
				continue // decision.OverflowPreempts
			}
			open[node.name] = true
		}
		if len(open) > 0 {
			d.claim(claims)
		}
		return nil
	})
	return open, err
}

// claim records that the scheduler may soon nominate the pod to a node of this capacity type.
func (d *decisionState) claim(capacity decision.CapacityType) {
	if _, bound := d.index.bound[d.pod.UID]; bound {
		return
	}
	entry := d.entry()
	entry.claimUntil, entry.claimedType = d.now.Add(nominationTimeout), capacity
	d.pending.put(entry)
}

// entry returns a copy of the stored state of the pod.
func (d *decisionState) entry() *pendingPod {
	entry := &pendingPod{
		pod: types.NamespacedName{Namespace: d.pod.Namespace, Name: d.pod.Name}, uid: d.pod.UID, lastAsked: d.now,
	}
	if d.stored != nil {
		*entry = *d.stored
	}
	entry.revision = d.subject.RevisionKey
	return entry
}
