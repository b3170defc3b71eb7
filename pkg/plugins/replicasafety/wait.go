package replicasafety

import (
	"context"
	"errors"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// afterSettled is how long after the end of a node's label grace the pods are tried again that it was held from: the pods that it was held
// for come first.
const afterSettled = time.Second

// PostFilter notes that the pod was found unschedulable, since when and what for. It makes nothing schedulable: preemption, which
// comes after it in the shipped configuration, has its turn.
func (p *Plugin) PostFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	wait := p.waitOf(cycle, pod)
	if logger := klog.FromContext(ctx).V(2); logger.Enabled() {
		wait.Why = p.logWait(logger, cycle, pod)
	}
	p.waiting.Found(pod, wait)
	switch {
	case p.gone(pod):
		p.waiting.Forget(pod.UID)
	case p.ownerChanged(cycle, pod):
		p.waiting.Wake(pod)
	}
	if s := placement.Read(cycle); s != nil && s.Nominated != "" {
		p.watchNomination(s.Subject.RevisionKey, placement.Nominee{UID: pod.UID, Node: s.Nominated})
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// logWait logs why the pod waits unless that has been logged before, and returns it: one line for all nodes, and none for an attempt that
// ends like the last one. It is empty where another plugin refused the pod before this one was asked: the scheduler itself logs that.
func (p *Plugin) logWait(logger klog.Logger, cycle fwk.CycleState, pod *v1.Pod) (why string) {
	s := placement.Read(cycle)
	var about []any
	if data, err := cycle.Read(ownerWaitKey); err == nil {
		why, about = data.(ownerWait).why, []any{"pod", klog.KObj(pod)}
	} else if s != nil {
		why, about = s.Plan.Waits(), planned(pod, s)
	}
	if why != "" && why != p.waiting.Why(pod.UID) {
		logger.Info("Waits", append(about, "why", why)...)
	}
	return why
}

// waitOf returns what the pod waits for after this cycle.
func (p *Plugin) waitOf(cycle fwk.CycleState, pod *v1.Pod) placement.Wait {
	if data, err := cycle.Read(ownerWaitKey); err == nil {
		// The owner may appear or change, or the pod's ReplicaSet be given to another one or left to itself; siblings may go with their node.
		wait := data.(ownerWait)
		return placement.Wait{Owners: []kube.OwnerKey{wait.owner, kube.RevisionOf(pod)}, Counted: wait.outgrown != nil, Again: wait.until}
	}
	s := placement.Read(cycle)
	if s == nil {
		// Another plugin refused the pod before this one was asked.
		return placement.Wait{}
	}
	inDeployment := s.Subject.WorkloadKey != s.Subject.RevisionKey
	wait := placement.Wait{
		Owners:      []kube.OwnerKey{s.Subject.RevisionKey},
		ForOnDemand: !s.Plan.MayTakeSpot() && s.Plan.MayTakeOnDemand(),
		Held:        s.Holds(),
		Counted:     s.Plan.Counted(),
		Invalid:     s.Invalid,
	}
	if inDeployment {
		wait.Owners = append(wait.Owners, s.Subject.WorkloadKey)
	}
	if s.Plan.Grant == decision.NotGranted {
		// With the waiting time that the plan was made for: what has passed since must not fall between two plans.
		if in, ok := s.Settings.NextChange(s.Waited, inDeployment); ok {
			wait.Again = p.clock.Now().Add(in)
		}
	}
	if settled := s.Counter.NextSettled(); !settled.IsZero() && (s.Plan.Grant == decision.NotGranted || wait.Held) {
		if wait.Held {
			settled = settled.Add(afterSettled)
		}
		if wait.Again.IsZero() || settled.Before(wait.Again) {
			wait.Again = settled
		}
	}
	return wait
}

// gone reports whether the pod was deleted in this cycle: the handler that would have forgotten it ran before it was noted down.
func (p *Plugin) gone(pod *v1.Pod) bool {
	current, err := p.pods.Pods(pod.Namespace).Get(pod.Name)
	return apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID
}

// ownerChanged reports whether the pod's owner is no longer what PreFilter saw. A handler that ran before the pod was noted down as
// waiting found nobody to wake; one that runs from now on will.
func (p *Plugin) ownerChanged(cycle fwk.CycleState, pod *v1.Pod) bool {
	subject, err := p.owners.Subject(pod)
	if data, readErr := cycle.Read(ownerWaitKey); readErr == nil {
		before, still := data.(ownerWait), (*kube.UnknownOwner)(nil)
		if before.outgrown != nil {
			return err != nil || !reflect.DeepEqual(&subject.Pod.Workload, before.outgrown)
		}
		return !errors.As(err, &still) || still.Key != before.owner
	}
	s := placement.Read(cycle)
	return s != nil && err == nil && !reflect.DeepEqual(subject.Pod.Workload, s.Subject.Pod.Workload)
}
