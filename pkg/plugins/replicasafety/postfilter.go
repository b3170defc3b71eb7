package replicasafety

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// reservedRetryDelay is the delay, after the label grace of a reserved node, before the pods that
// could not use the node are retried. The pods that it was reserved for are tried first.
const reservedRetryDelay = time.Second

// PostFilter records that the pod is unschedulable, and the changes that it waits for. It makes no
// pod schedulable, so that preemption runs: it follows this plugin in the shipped configuration.
func (p *Plugin) PostFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	wait := p.newWait(cycle, pod)
	wait.Gang = p.gangOf(pod)
	if logger := klog.FromContext(ctx).V(2); logger.Enabled() {
		wait.Why = p.logWait(logger, cycle, pod)
	}
	p.waiting.AddUnschedulable(pod, wait)
	switch {
	case p.wasDeleted(pod):
		p.waiting.Delete(pod.UID)
	case wait.PlanInput != nil && p.ownerCheck()(wait):
		// The handler of the owner's change ran before the pod was recorded as waiting, so it did
		// not find the pod.
		p.waiting.Wake(pod)
	}
	if s := placement.Read(cycle); s != nil && s.NominatedNode != "" {
		p.watchNomination(pod, s.NominatedNode)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// logWait logs why the pod waits and returns the reason. It writes one line for all nodes, and none
// if the reason equals the last logged one. The reason is empty if another plugin refused the pod
// before this plugin ran. In that case the scheduler itself logs the refusal.
func (p *Plugin) logWait(logger klog.Logger, cycle fwk.CycleState, pod *v1.Pod) (why string) {
	s := placement.Read(cycle)
	var about []any
	if data, err := cycle.Read(ownerWaitKey); err == nil {
		why, about = data.(ownerWait).why, []any{"pod", klog.KObj(pod)}
	} else if s != nil {
		why, about = s.Plan.WaitReason(), s.LogFields(pod)
	}
	if why != "" && why != p.waiting.Last(pod.UID).Why {
		logger.Info("Pod waiting", append(about, "reason", why)...)
	}
	return why
}

// newWait returns the changes that the pod waits for after this cycle.
func (p *Plugin) newWait(cycle fwk.CycleState, pod *v1.Pod) placement.Wait {
	if data, err := cycle.Read(ownerWaitKey); err == nil {
		// The owner may appear or change. The pod's ReplicaSet may change or lose its owner.
		// Siblings may be deleted together with their node.
		wait := data.(ownerWait)
		return placement.Wait{Owners: []workload.OwnerKey{wait.owner, workload.RevisionOf(pod)}, DependsOnSiblings: wait.outdated != nil, RetryAt: wait.until,
			PlanInput: &planInput{pod: pod, unknownOwner: wait.owner, outdated: wait.outdated}}
	}
	s := placement.Read(cycle)
	if s == nil {
		// Another plugin refused the pod before this plugin ran.
		return placement.Wait{}
	}
	inDeployment := s.Subject.WorkloadKey != s.Subject.RevisionKey
	wait := placement.Wait{
		Owners:            []workload.OwnerKey{s.Subject.RevisionKey},
		ForOnDemand:       s.Plan.RequiresOnDemand(),
		NodeReserved:      s.HasReserved(),
		DependsOnSiblings: s.Plan.DependsOnSiblings(),
		Invalid:           s.Invalid,
		PreemptionFlag:    s.PreemptionFlag(),
		PlanInput:         &planInput{pod: pod, subject: s.Subject, settings: s.Settings, invalid: s.Invalid, plan: s.Plan},
	}
	if inDeployment {
		wait.Owners = append(wait.Owners, s.Subject.WorkloadKey)
	}
	if s.Plan.Grant == decision.NotGranted {
		// Use the waiting time of the plan. Time that has passed since must not be lost between two
		// plans.
		if in, ok := s.Settings.NextChange(s.Waited, inDeployment); ok {
			wait.RetryAt = p.clock.Now().Add(in)
		}
	}
	if settled := s.Counter.NextSettled(); !settled.IsZero() && (s.Plan.Grant == decision.NotGranted || wait.NodeReserved) {
		if wait.NodeReserved {
			settled = settled.Add(reservedRetryDelay)
		}
		if wait.RetryAt.IsZero() || settled.Before(wait.RetryAt) {
			wait.RetryAt = settled
		}
	}
	return wait
}

// wasDeleted reports whether the pod was deleted during this cycle. In that case the delete handler
// ran before PostFilter recorded the pod.
func (p *Plugin) wasDeleted(pod *v1.Pod) bool {
	current, err := p.pods.Pods(pod.Namespace).Get(pod.Name)
	return apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID
}
