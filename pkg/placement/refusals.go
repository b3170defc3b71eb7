package placement

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// refusals creates the statuses of one cycle. Filter runs on thousands of nodes in parallel, and
// the framework writes the plugin's name into every status, so each node needs its own. Statuses
// are allocated in blocks, and each reason is formatted once.
type refusals struct {
	mu      sync.Mutex
	reasons [decision.Verdicts]*fwk.Status
	block   []fwk.Status
}

const refusalsPerBlock = 64

// Refusal returns the status that refuses a node with verdict v, which must not be
// decision.Admitted. All refusals are unresolvable: evicting other pods from the node changes
// neither the budget nor the state of the node, so preemption cannot help.
func (s *State) Refusal(v decision.Verdict) *fwk.Status {
	r := s.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reasons[v] == nil {
		r.reasons[v] = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, s.Plan.Reason(v))
	}
	if len(r.block) == 0 {
		r.block = make([]fwk.Status, refusalsPerBlock)
	}
	status := &r.block[0]
	r.block = r.block[1:]
	*status = *r.reasons[v]
	return status
}
