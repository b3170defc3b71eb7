package replicasafety

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Reserve records the placement and its reason while the counts still belong to this cycle. It
// changes no count: the scheduler's cache contains the assumed pod, and so does the next snapshot.
func (p *Plugin) Reserve(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, nodeName string) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Place(nodeName)
	}
	return nil
}

// Unreserve has nothing to undo.
func (p *Plugin) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

// PostBind counts the placement and logs it. It records an event if the placement is a deliberate
// exception.
func (p *Plugin) PostBind(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, nodeName string) {
	s := placement.Read(cycle)
	if s == nil || s.Placement == nil {
		return
	}
	profilemetrics.RecordPlacement(p.profile, s.Placement.Capacity, s.Placement.Outcome)
	if s.NominatedNode != "" && s.NominatedNode != nodeName || s.Placement.Capacity == decision.Spot && s.Plan.MayUnblockSiblings() {
		p.waiting.WakeSiblings(s.Subject.RevisionKey)
	}
	if logger := klog.FromContext(ctx).V(2); logger.Enabled() { // computing the arguments has a cost
		logger.Info("Placed pod", append(s.LogFields(), "node", nodeName, "capacityType", s.Placement.Capacity, "reason", s.Placement.Outcome,
			"waited", s.Waited.Round(time.Millisecond))...)
	}
	workload.RecordException(p.recorder, pod, s.Placement.Outcome, nodeName, &s.Plan)
}
