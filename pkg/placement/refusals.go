package placement

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// refusals contains the statuses of one cycle, by verdict. Each reason is formatted once, because
// Filter runs on thousands of nodes in parallel.
type refusals struct {
	mu       sync.Mutex
	statuses [decision.Verdicts]*fwk.Status
}

// Refusal returns the status that refuses a node with verdict v, which must not be
// decision.Admitted. All refusals are unresolvable: evicting other pods from the node changes
// neither the budget nor the state of the node, so preemption cannot help.
func (s *State) Refusal(v decision.Verdict) *fwk.Status {
	r := s.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.statuses[v] == nil {
		r.statuses[v] = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, s.Plan.Reason(v))
	}
	status := *r.statuses[v] // the framework writes the plugin's name into the status of each node
	return &status
}
