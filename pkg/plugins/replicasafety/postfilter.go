package replicasafety

import (
	"context"
	"slices"
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
func (p *Plugin) PostFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod,
	_ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	wait := p.newWait(cycle, pod)
	wait.Gang = p.gangOf(pod)
	logger, about := klog.FromContext(ctx).V(2), []any(nil)
	if logger.Enabled() {
		wait.Why, about = whyWaiting(cycle, pod)
	}
	if last := p.waiting.AddUnschedulable(pod, wait); wait.Why != "" && wait.Why != last.Why {
		logger.Info("Pod waiting", append(about, "reason", wait.Why)...)
	}
	current, err := p.pods.Pods(pod.Namespace).Get(pod.Name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID:
		// The pod was deleted during this cycle, and the delete handler ran before the pod was
		// recorded.
		p.waiting.Delete(pod.UID)
	case (wait.Attempt != nil || wait.OwnerWait != nil) && p.ownerCheck()(pod, wait):
		// The handler of the owner's change ran before the pod was recorded as waiting, so it did
		// not find the pod.
		p.waiting.Wake(pod)
	}
	if s := placement.Read(cycle); s != nil && s.NominatedNode != "" {
		p.watchNomination(pod, s.NominatedNode)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// whyWaiting returns why the pod waits, and the log fields about it. PostFilter writes one line for
// all nodes, and none if the reason equals the last logged one. The reason is empty if another
// plugin refused the pod before this plugin ran. The scheduler itself logs such a refusal.
func whyWaiting(cycle fwk.CycleState, pod *v1.Pod) (why string, about []any) {
	if wait := readOwnerWait(cycle); wait != nil {
		return wait.Why, []any{"pod", klog.KObj(pod)}
	}
	if s := placement.Read(cycle); s != nil {
		return s.Plan.WaitReason(), s.LogFields()
	}
	return "", nil
}

// newWait returns the changes that the pod waits for after this cycle.
func (p *Plugin) newWait(cycle fwk.CycleState, pod *v1.Pod) placement.Wait {
	if wait := readOwnerWait(cycle); wait != nil {
		// The owner may appear or change. The pod's ReplicaSet may change or lose its owner.
		// Siblings may be deleted together with their node.
		return placement.Wait{
			Owners:            []workload.OwnerKey{wait.Owner, workload.RevisionOf(pod)},
			DependsOnSiblings: wait.Outdated != nil, RetryAt: wait.Until, OwnerWait: wait,
		}
	}
	s := placement.Read(cycle)
	if s == nil {
		// Another plugin refused the pod before this plugin ran.
		return placement.Wait{}
	}
	attempt := s.Attempt // a copy, because the rest of the State is not needed after the cycle
	inDeployment := s.Subject.WorkloadKey != s.Subject.RevisionKey
	wait := placement.Wait{
		Owners:            []workload.OwnerKey{s.Subject.RevisionKey},
		ForOnDemand:       s.Plan.RequiresOnDemand(),
		NodeReserved:      s.HasReserved(),
		DependsOnSiblings: s.Plan.DependsOnSiblings(),
		MayPreempt:        s.MayPreempt,
		Attempt:           &attempt,
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

// nominatedSiblings returns the siblings of pod with nominated nodes, and the nominated node of pod
// itself, own. The framework runs Filter with the nominated pods of the same node only. If the
// nominated pods of other nodes did not count, every pending replica would preempt pods on spot for
// a budget of one.
//
// Only the scheduler's own list is up to date in the next cycle, and it must be read node by node.
// So PreFilter calls nominatedSiblings only if the plan depends on it, and if preemption was
// simulated for a pod of the revision or one of its pods is known to be nominated.
func (p *Plugin) nominatedSiblings(pod *v1.Pod, nodes []fwk.NodeInfo) (siblings []placement.UnboundPod, own string) {
	revision := workload.RevisionOf(pod)
	for _, node := range nodes {
		name := node.Node().Name
		for _, info := range p.nominator.NominatedPodsForNode(name) {
			other := info.GetPod()
			switch {
			case other.UID == pod.UID:
				own = name
			case workload.RevisionOf(other) == revision && workload.Live(other) && !placement.HasPod(node, other.UID):
				siblings = append(siblings, placement.UnboundPod{Pod: other, Node: name})
			}
		}
	}
	return placement.CountedNominations(pod, own != "", siblings), own
}

// watchNomination wakes the siblings of a nominated pod that found no node in this cycle, if the
// scheduler then clears the nomination. The scheduler may do so before it has written the
// nomination to the API server. In that case no event reports the change.
func (p *Plugin) watchNomination(pod *v1.Pod, node string) {
	check := func() {
		still := slices.ContainsFunc(p.nominator.NominatedPodsForNode(node), func(info fwk.PodInfo) bool { return info.GetPod().UID == pod.UID })
		if !still {
			p.wakeAfterNomination(pod)
		}
	}
	// Use a goroutine, because a clock may call the function while the clock is locked.
	p.clock.AfterFunc(time.Second, func() { go check() })
}

// wakeAfterNomination wakes the siblings of a pod whose nomination ended. The attempts of a gang
// nominate its pods and clear their nominations. If each such change woke the gang, the scheduler
// would try it again and again as long as a victim terminates. The gang plugin retries a gang that
// no event wakes.
func (p *Plugin) wakeAfterNomination(pod *v1.Pod) {
	if !p.waiting.GangWaits(p.gangOf(pod)) {
		p.waiting.WakeSiblings(workload.RevisionOf(pod))
	}
}
