package replicasafety

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// PostFilter notes that the pod was found unschedulable, since when and what for. It makes nothing schedulable: preemption, which
// comes after it in the shipped configuration, has its turn.
func (p *Plugin) PostFilter(_ context.Context, cycle fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	p.waiting.Found(pod, p.waitOf(cycle, pod))
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// waitOf returns what the pod waits for after this cycle.
func (p *Plugin) waitOf(cycle fwk.CycleState, pod *v1.Pod) placement.Wait {
	if data, err := cycle.Read(unknownOwnerKey); err == nil {
		return placement.Wait{Owners: []types.UID{data.(unknownOwner).uid}}
	}
	s := placement.Read(cycle)
	if s == nil {
		// Another plugin refused the pod before this one was asked.
		return placement.Wait{}
	}
	wait := placement.Wait{Owners: []types.UID{s.Subject.Revision}, ForOnDemand: !s.Plan.MayTakeSpot()}
	if s.Subject.Workload != s.Subject.Revision {
		wait.Owners = append(wait.Owners, s.Subject.Workload)
	}
	if s.Plan.Grant == decision.NotGranted {
		now := p.clock.Now()
		waited := time.Duration(0)
		if since, ok := p.waiting.Since(pod.UID); ok {
			waited = now.Sub(since)
		}
		if in, ok := s.Settings.NextChange(waited, s.Subject.Workload != s.Subject.Revision); ok {
			wait.Again = now.Add(in)
		}
		if settled := s.Counter.NextSettled(); !settled.IsZero() && (wait.Again.IsZero() || settled.Before(wait.Again)) {
			wait.Again = settled
		}
	}
	return wait
}
