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
