package replicasafety

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// Reserve notes where the pod goes and why, while the count that says so is still that of this cycle. It counts nothing: the scheduler's
// cache holds the assumed pod, and the next snapshot with it.
func (p *Plugin) Reserve(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, nodeName string) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Place(nodeName)
	}
	return nil
}

// Unreserve has nothing to undo.
func (p *Plugin) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

// planned is what the log says of a pod and its plan: where the replicas of its revision stood that were placed before it, how many of them
// may be on spot, and how many of its workload must be on on-demand.
func planned(pod *v1.Pod, s *placement.State) []any {
	w, placed := &s.Subject.Pod.Workload, s.Plan.Placed()
	return []any{
		"pod", klog.KObj(pod), "workload", w.Revision, "desired", w.Desired, "floor", s.Plan.Floor, "onDemand", placed.OnDemand,
		"spot", placed.Spot, "spotBudget", s.Plan.Budget,
	}
}

// PostBind counts the placement, logs it, and records an event where it is a deliberate exception.
func (p *Plugin) PostBind(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, nodeName string) {
	s := placement.Read(cycle)
	if s == nil || s.Placed == nil {
		return
	}
	placement.RecordPlacement(p.profile, *s.Placed)
	if s.Nominated != "" && s.Nominated != nodeName || s.Placed.Capacity == decision.Spot && s.Plan.MayFreeSiblings() {
		p.waiting.WakeCounted(s.Subject.RevisionKey)
	}
	if logger := klog.FromContext(ctx).V(2); logger.Enabled() { // its arguments are not for nothing
		logger.Info("Placed", append(planned(pod, s), "node", nodeName, "capacityType", s.Placed.Capacity, "reason", s.Placed.Outcome,
			"waited", s.Waited.Round(time.Millisecond))...)
	}
	if e, ok := kube.ExceptionOf(s.Placed.Outcome); ok {
		p.recorder.Eventf(pod, nil, e.Type, e.Reason, "Binding", "%s (node %s; %s)", e.Note, nodeName, s.Plan.Budgeted())
	}
}

// reportInvalid tells that annotations were ignored: all in one event, because of several like events on one object the recorder keeps
// the first note only.
func (p *Plugin) reportInvalid(pod *v1.Pod, invalid []decision.InvalidAnnotation) {
	placement.RecordInvalidAnnotations(p.profile, len(invalid))
	if len(invalid) > 0 {
		p.recorder.Eventf(pod, nil, v1.EventTypeWarning, kube.ReasonInvalidPolicy, "Scheduling", "%s", kube.InvalidNote(invalid))
	}
}
