package replicasafety

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// errNotSynced is an error and not an Unschedulable status. The scheduler then retries the pod
// after a back-off, even without an event in the cluster.
var errNotSynced = errors.New("informer caches are not in sync yet")

// PreFilter decides everything about the pod that does not depend on the node: its workload, its
// settings, its plan, and which nodes to search. The result is the State of the cycle. PreFilter
// skips pods without a policy. It also skips Filter if the policy admits the pod on every node.
func (p *Plugin) PreFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !workload.PolicyApplies(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.synced() {
		return nil, fwk.AsStatus(errNotSynced)
	}
	start := p.clock.Now()
	subject, err := p.owners.Subject(pod)
	if err != nil {
		return nil, refuseUnknownOwner(cycle, err)
	}
	attempt := placement.Attempt{Pod: pod, Subject: subject}
	attempt.Settings, attempt.Invalid = p.policy.Settings(&subject.Pod)
	if metav1.GetControllerOfNoCopy(pod) == nil {
		p.counter.UpdateNodes(nodes, start)
	} else {
		p.counter.Update(nodes, start)
	}
	dependsOnSiblings := attempt.Settings.DependsOnSiblings(&subject.Pod.Workload)
	waiting := p.waiting.View(pod, p.gangOf(pod), dependsOnSiblings, p.counter)
	if status := p.refuseOutdatedOwner(cycle, &attempt, waiting.Since, start); status != nil {
		return nil, status
	}
	p.reportInvalid(cycle, &attempt, waiting.Last)
	var siblings []placement.UnboundPod
	var nominatedNode string
	if dependsOnSiblings && (waiting.MayPreempt || p.nominations.Has(subject.RevisionKey)) {
		siblings, nominatedNode = p.nominatedSiblings(pod, nodes)
	}
	state, err := p.counter.Decide(attempt, waiting, p.owners, p.volumesOf, start, siblings...)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if state.NominatedNode = nominatedNode; nominatedNode != "" {
		state.MayPreempt.Store(true) // the pod may keep the nomination without another eviction
	}
	state.Write(cycle)
	nodesToSearch, scope := state.Search(cycle)
	decisionDuration.WithLabelValues(p.profile, string(scope)).Observe(p.clock.Since(start).Seconds())
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() { // computing the arguments costs more than the plan
		logger.Info("Planned placement", append(state.LogFields(), "grant", state.Plan.Grant, "search", scope)...)
	}
	if scope != placement.FewNodes && state.AdmitsAll() {
		state.MayPreempt.Store(true)
		return nil, fwk.NewStatus(fwk.Skip) // otherwise Filter would return the same answer for thousands of nodes
	}
	return nodesToSearch, nil
}

// reportInvalid reports the ignored annotations of a pod once: not at every attempt, and not at the
// second search of an attempt. All annotations share one event, because the recorder merges similar
// events for one object and preserves only the first note.
func (p *Plugin) reportInvalid(cycle fwk.CycleState, attempt *placement.Attempt, last placement.Wait) {
	reported := last.Attempt != nil && slices.Equal(attempt.Invalid, last.Attempt.Invalid)
	if len(attempt.Invalid) == 0 || reported || placement.Read(cycle) != nil {
		return
	}
	profilemetrics.RecordInvalidAnnotations(p.profile, len(attempt.Invalid))
	workload.RecordInvalid(p.recorder, attempt.Pod, attempt.Invalid)
}

// PreFilterExtensions returns the plugin itself.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod counts a pod that preemption or a nomination adds to a node.
func (p *Plugin) AddPod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, add fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Count(add.GetPod(), node.Node().Name, 1)
	}
	return nil
}

// RemovePod counts a pod that preemption removes from a node.
func (p *Plugin) RemovePod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, remove fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Count(remove.GetPod(), node.Node().Name, -1)
	}
	return nil
}

// Filter returns whether the policy admits the pod on the node.
func (p *Plugin) Filter(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	s := placement.Read(cycle)
	if s == nil {
		return nil
	}
	verdict := s.Admit(node.Node().Name)
	if verdict == decision.Admitted {
		return nil
	}
	return s.Refusal(verdict)
}

// SignPod lets pods share one decision (opportunistic batching) if it depends on the pod and the
// args only. This applies to pods without a policy, and to pods without a controller that are tried
// for the first time. SignPod refuses all other pods, because their decision depends on the nodes
// of their siblings or on their waiting time.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	const key = "spot-aware-scheduler.io/policy"
	if !workload.PolicyApplies(pod) {
		return []fwk.SignFragment{{Key: key, Value: "none"}}, nil
	}
	if metav1.GetControllerOfNoCopy(pod) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the decision depends on the pod's siblings")
	}
	if _, waits := p.waiting.Since(pod); waits {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the decision depends on how long the pod has waited")
	}
	subject, err := p.owners.Subject(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	if len(invalid) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod has invalid annotations to report")
	}
	return []fwk.SignFragment{{Key: key, Value: fmt.Sprintf("%s onlySpot=%t onlyOnDemand=%t assigned=%s granted=%d",
		settings, subject.Pod.OnlySpot, subject.Pod.OnlyOnDemand, subject.Pod.Assigned, subject.Pod.Granted)}}, nil
}

const ownerWaitKey fwk.StateKey = "spot-aware-scheduler.io/owner-wait"

// refuse stores wait for PostFilter and returns the status of PreFilter. The status is
// unresolvable, because preemption cannot change what is known about an owner.
func refuse(cycle fwk.CycleState, wait placement.OwnerWait) *fwk.Status {
	cycle.Write(ownerWaitKey, &wait)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, wait.Why)
}

// readOwnerWait returns what refuse stored; nil if the pod does not wait for its owner.
func readOwnerWait(cycle fwk.CycleState) *placement.OwnerWait {
	data, _ := cycle.Read(ownerWaitKey)
	wait, _ := data.(*placement.OwnerWait)
	return wait
}

// refuseUnknownOwner returns the status for an error of Owners.Subject. The pod waits for its owner
// if that is the cause.
func refuseUnknownOwner(cycle fwk.CycleState, err error) *fwk.Status {
	if unknown := (*workload.UnknownOwner)(nil); errors.As(err, &unknown) {
		return refuse(cycle, placement.OwnerWait{Owner: unknown.Key, Why: err.Error()})
	}
	return fwk.AsStatus(err)
}

// refuseOutdatedOwner returns the status for a pod whose workload must have changed since its known
// state; nil if it need not have changed. The pod waits for at most its OwnerDelay, from
// since on: the time when it was first found unschedulable, or zero. The waiting time of its gang
// does not count: each pod may be the first to show that its workload was scaled up.
func (p *Plugin) refuseOutdatedOwner(cycle fwk.CycleState, attempt *placement.Attempt, since, now time.Time) *fwk.Status {
	if since.IsZero() {
		since = now
	}
	subject := attempt.Subject
	if subject.Pod.Workload.OrphanOf != "" {
		since = attempt.Pod.CreationTimestamp.Time
	}
	until := since.Add(subject.Pod.Workload.OwnerDelay())
	if !now.Before(until) {
		return nil
	}
	why := subject.Pod.OutdatedOwner(attempt.Settings, p.counter.Placed(subject.RevisionKey))
	if why == "" {
		return nil
	}
	return refuse(cycle, placement.OwnerWait{Owner: subject.WorkloadKey, Why: why, Outdated: &subject.Pod.Workload, Until: until})
}

// ownerCheck is a placement.OwnerCheck. It compares the owners with their state when the pod was
// refused. A change that admits the pod to no further node, such as the progress of a Job
// without a floor, does not cause another attempt.
func (p *Plugin) ownerCheck() func(*v1.Pod, placement.Wait) bool {
	subjectOf := p.owners.Subjects()
	return func(pod *v1.Pod, wait placement.Wait) bool {
		if wait.Attempt == nil && wait.OwnerWait == nil {
			return true
		}
		subject, err := subjectOf(pod)
		if wait.Attempt != nil {
			// Without its owner the pod would only wait for the owner. A pod of a gang may wait for
			// a sibling, which other replica counts unblock.
			return err == nil && (wait.Gang != placement.Gang{} && subject.Pod.Workload.Desired != wait.Attempt.Subject.Pod.Workload.Desired ||
				p.mayUnblock(wait.Attempt, subject))
		}
		if outdated := wait.OwnerWait.Outdated; outdated != nil {
			return err != nil || subject.Pod.Workload.Desired > outdated.Desired || !equalExceptScale(subject.Pod.Workload, *outdated)
		}
		still := (*workload.UnknownOwner)(nil)
		return !errors.As(err, &still) || still.Key != wait.OwnerWait.Owner
	}
}

// mayUnblock reports whether subject, the new state of the pod's owners, may admit the pod to a
// node that the policy refused before.
func (p *Plugin) mayUnblock(before *placement.Attempt, subject *workload.Subject) bool {
	if subject.WorkloadKey != before.Subject.WorkloadKey || !equalExceptScale(subject.Pod.Workload, before.Subject.Pod.Workload) ||
		subject.RevisionNumber != before.Subject.RevisionNumber { // rollout relief depends on which revisions are older
		return true
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	if !reflect.DeepEqual(settings, before.Settings) || !slices.Equal(invalid, before.Invalid) { // the attempt reports the latter
		return true
	}
	next := decision.NewPlan(&subject.Pod, settings, before.Plan.Placed(), decision.WaitTime{})
	return before.Plan.MayAdmitMore(&next)
}

// equalExceptScale reports whether a and b are equal except for the replica count and the
// annotations. Most annotations have no effect on placement.
func equalExceptScale(a, b decision.Workload) bool {
	a.Desired, b.Desired = 0, 0
	a.Annotations, b.Annotations = nil, nil
	return reflect.DeepEqual(a, b)
}
