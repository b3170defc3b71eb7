package replicasafety

import (
	"errors"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// ownerWait passes the owner that the pod waits for, and the reason, from PreFilter to PostFilter.
type ownerWait struct {
	owner workload.OwnerKey
	why   string
	// outdated is the known state of a workload, which has fewer desired replicas than pods. The
	// pod waits for an update of it until until. outdated is nil if the owner is unknown.
	outdated *decision.Workload
	until    time.Time
}

const ownerWaitKey fwk.StateKey = "spot-aware-scheduler.io/owner-wait"

// Clone returns w: it never changes.
func (w ownerWait) Clone() fwk.StateData { return w }

// refuse stores w for PostFilter and returns the status of PreFilter. The status is unresolvable,
// because preemption cannot change what is known about an owner.
func (w ownerWait) refuse(cycle fwk.CycleState) *fwk.Status {
	cycle.Write(ownerWaitKey, w)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, w.why)
}

// refuseUnknownOwner returns the status for an error of Owners.Subject. The pod waits for its owner
// if that is the cause.
func refuseUnknownOwner(cycle fwk.CycleState, err error) *fwk.Status {
	if unknown := (*workload.UnknownOwner)(nil); errors.As(err, &unknown) {
		return ownerWait{owner: unknown.Key, why: err.Error()}.refuse(cycle)
	}
	return fwk.AsStatus(err)
}

// refuseOutdatedOwner returns the status for a pod whose workload must have changed since its known
// state; nil if it need not have changed. The pod waits for at most decision.MaxOwnerDelay. The
// waiting time of its gang does not count: each pod may be the first to show that its workload was
// scaled up.
func (p *Plugin) refuseOutdatedOwner(cycle fwk.CycleState, pod *v1.Pod, subject *workload.Subject, settings decision.WorkloadSettings, now time.Time) *fwk.Status {
	first, waits := p.waiting.Since(pod)
	if !waits {
		first = now
	}
	until := first.Add(decision.MaxOwnerDelay)
	if !now.Before(until) {
		return nil
	}
	why := subject.Pod.OutdatedOwner(settings, p.counter.Placed(subject.RevisionKey))
	if why == "" {
		return nil
	}
	return ownerWait{owner: subject.WorkloadKey, why: why, outdated: &subject.Pod.Workload, until: until}.refuse(cycle)
}

// planInput is the state of a pod's owners when the pod was refused.
type planInput struct {
	pod *v1.Pod
	// subject, settings, invalid and plan belong to the attempt. subject is nil if there was no
	// plan.
	subject  *workload.Subject
	settings decision.WorkloadSettings
	invalid  []decision.InvalidAnnotation
	plan     decision.Plan
	// outdated is the workload if it has fewer desired replicas than pods; otherwise nil.
	outdated *decision.Workload
	// unknownOwner is the owner that is not in the caches, if both subject and outdated are nil.
	unknownOwner workload.OwnerKey
}

// ownerCheck is a placement.OwnerCheck. It compares the owners with their state when the pod was
// refused. A change that admits the pod to no further node, such as the progress of a Job
// without a floor, does not cause another attempt.
func (p *Plugin) ownerCheck() func(placement.Wait) bool {
	subjectOf := p.owners.Subjects()
	return func(wait placement.Wait) bool {
		before, ok := wait.PlanInput.(*planInput)
		if !ok {
			return true
		}
		subject, err := subjectOf(before.pod)
		switch {
		case before.subject != nil:
			// Without its owner the pod would only wait for the owner.
			return err == nil && p.mayUnblock(before, subject)
		case before.outdated != nil:
			return err != nil || subject.Pod.Workload.Desired > before.outdated.Desired || !equalExceptScale(subject.Pod.Workload, *before.outdated)
		}
		still := (*workload.UnknownOwner)(nil)
		return !errors.As(err, &still) || still.Key != before.unknownOwner
	}
}

// mayUnblock reports whether subject, the new state of the pod's owners, may admit the pod to a
// node that the policy refused before.
func (p *Plugin) mayUnblock(before *planInput, subject *workload.Subject) bool {
	if subject.WorkloadKey != before.subject.WorkloadKey || !equalExceptScale(subject.Pod.Workload, before.subject.Pod.Workload) ||
		subject.RevisionNumber != before.subject.RevisionNumber { // rollout relief depends on which revisions are older
		return true
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	if !reflect.DeepEqual(settings, before.settings) || !slices.Equal(invalid, before.invalid) { // the attempt reports the latter
		return true
	}
	next := decision.NewPlan(&subject.Pod, settings, before.plan.Placed(), decision.WaitTime{})
	return before.plan.MayAdmitMore(&next)
}

// equalExceptScale reports whether a and b are equal except for the replica count and the
// annotations. Most annotations have no effect on placement.
func equalExceptScale(a, b decision.Workload) bool {
	a.Desired, b.Desired = 0, 0
	a.Annotations, b.Annotations = nil, nil
	return reflect.DeepEqual(a, b)
}
