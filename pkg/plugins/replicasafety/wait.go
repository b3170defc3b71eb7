package replicasafety

import (
	"context"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// PostFilter notes that the pod was found unschedulable, since when and what for. It makes nothing schedulable: preemption, which
// comes after it in the shipped configuration, has its turn.
func (p *Plugin) PostFilter(_ context.Context, cycle fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	p.waiting.Found(pod, p.waitOf(cycle))
	if p.ownerChanged(cycle, pod) {
		p.waiting.Wake(pod)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// waitOf returns what the pod waits for after this cycle.
func (p *Plugin) waitOf(cycle fwk.CycleState) placement.Wait {
	if data, err := cycle.Read(unknownOwnerKey); err == nil {
		return placement.Wait{Owners: []types.UID{data.(unknownOwner).uid}}
	}
	s := placement.Read(cycle)
	if s == nil {
		// Another plugin refused the pod before this one was asked.
		return placement.Wait{}
	}
	inDeployment := s.Subject.Workload != s.Subject.Revision
	wait := placement.Wait{
		Owners:      []types.UID{s.Subject.Revision},
		ForOnDemand: !s.Plan.MayTakeSpot(),
		Counted:     s.Plan.Counted(),
	}
	if inDeployment {
		wait.Owners = append(wait.Owners, s.Subject.Workload)
	}
	if s.Plan.Grant == decision.NotGranted {
		// With the waiting time that the plan was made for: what has passed since must not fall between two plans.
		if in, ok := s.Settings.NextChange(s.Waited, inDeployment); ok {
			wait.Again = p.clock.Now().Add(in)
		}
		if settled := s.Counter.NextSettled(); !settled.IsZero() && (wait.Again.IsZero() || settled.Before(wait.Again)) {
			wait.Again = settled
		}
	}
	return wait
}

// ownerChanged reports whether the pod's owner is no longer what PreFilter saw. A handler that ran before the pod was noted down as
// waiting found nobody to wake; one that runs from now on will.
func (p *Plugin) ownerChanged(cycle fwk.CycleState, pod *v1.Pod) bool {
	subject, err := p.owners.Subject(pod)
	if err != nil {
		return false
	}
	s := placement.Read(cycle)
	if s == nil {
		_, err := cycle.Read(unknownOwnerKey)
		return err == nil
	}
	return !reflect.DeepEqual(subject.Pod.Workload, s.Subject.Pod.Workload)
}
