package placement

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Hold has Admit refuse the nodes that wait for their capacity label to the state's pod, if a pod that must have on-demand waits and fits on
// them as far as can be told cheaply. It costs nothing if no node waits for its label. A pod whose affinity names its nodes has no
// other place, so nothing is held from it.
func (s *State) Hold(pod *v1.Pod, waiting *Waiting) {
	if len(s.Counter.settling) == 0 || !s.Plan.MayTakeSpot() || kube.NamesItsNodes(pod) {
		return
	}
	fits := waiting.fitsForOnDemand(pod.UID)
	for n := range s.Counter.settling {
		if !slices.ContainsFunc(fits, func(f *fit) bool { return f.on(n) }) {
			continue
		}
		if s.held == nil {
			s.held = map[*node]struct{}{}
		}
		s.held[n] = struct{}{}
	}
}

// Holds reports whether a node is held from the state's pod.
func (s *State) Holds() bool { return len(s.held) > 0 }

// fitsForOnDemand returns what the pods but one ask of a node that wait for on-demand because the policy keeps them off spot: one of each
// revision, whose pods ask for the same.
func (w *Waiting) fitsForOnDemand(except types.UID) (fits []*fit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[kube.OwnerKey]struct{}{}
	for uid, entry := range w.pods {
		if !entry.ForOnDemand || uid == except {
			continue
		}
		revision := kube.RevisionOf(entry.pod)
		if _, known := seen[revision]; known {
			continue
		}
		seen[revision] = struct{}{}
		if entry.fit == nil {
			entry.fit = newFit(klog.Background(), entry.pod)
		}
		fits = append(fits, entry.fit)
	}
	return fits
}

// wakeHeldSoon has the pods tried again in a second that a node is held from. Calls within that second count as one. w.mu must be held.
func (w *Waiting) wakeHeldSoon() {
	if w.held == 0 || w.heldSoon != nil {
		return
	}
	w.heldSoon = w.clock.AfterFunc(time.Second, func() {
		w.mu.Lock()
		w.heldSoon = nil
		w.mu.Unlock()
		w.wakeAll(func() map[types.UID]*waiter { return w.pods }, func(entry *waiter) bool { return entry.Held })
	})
}
