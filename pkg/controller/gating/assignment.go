package gating

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// assignGated decides on the gated pods of a revision one after the other, and patches them
// concurrently. returning are the released pods that the next pods of the revision replace on spot.
// first reports whether no assigned pod of the revision may run on spot. It returns the new number
// of pods that require on-demand.
func (a *Assigner) assignGated(
	ctx context.Context, revision workload.OwnerKey, gated []sibling, assigned int, returning []*v1.Pod, first bool,
) (int, error) {
	var patches errgroup.Group
	for _, s := range gated {
		own := s.subject.Pod.OnlyOnDemand
		f := a.factsOf(s.pod, assigned)
		grant, hadGrant := a.takeGrant(revision, s)
		if hadGrant {
			f.granted = grant.why
		} else if len(returning) > 0 {
			f.returns, returning = returning[0].Name, returning[1:]
		}
		adopted := a.isAdopted(s.pod)
		lasting := s.settings.FallbackAfter != decision.Never && (adopted || !a.createsSuccessors(s.pod))
		f.lasting = lasting && !adopted && !f.kept // our scheduler keeps the floor
		c := f.labels.choose(s.subject, s.settings, f)
		if lasting && !f.lasting && c.assigned == decision.AssignedOnDemand && len(c.require) > 0 && !a.takesRoom(s.pod) {
			switch {
			case adopted:
				f.lasting = true // autoscalers see the pod, and the controller heals its floor
			case a.keepGate(ctx, s):
				assigned++
				continue
			default:
				f.granted = spot.GrantedFallback
			}
			c = f.labels.choose(s.subject, s.settings, f)
		}
		if c.ofFloor() || own {
			assigned++
		}
		if c.ofRevision {
			if !first {
				c.warning = ""
			}
			first = first && c.warning == ""
		}
		if a.settings.Scope.KeepsScheduler(s.pod) {
			c.invalid = s.invalid
		}
		a.startPatch(ctx, &patches, s.pod, c, func() {
			if hadGrant {
				a.addReplacement(revision, grant)
			}
		})
	}
	return assigned, patches.Wait()
}

// keepGate keeps the gate of a pod until fallbackAfter has passed, because nothing could loosen its
// affinity later. It records on the pod when that is, for a failsafe and for the next leader. It
// returns false after that time.
func (a *Assigner) keepGate(ctx context.Context, s sibling) bool {
	now, until := a.clock.Now(), workload.GateKeptUntil(s.pod)
	if until.IsZero() {
		since := a.recorded(s.pod.UID).gatedSince
		if since.IsZero() { // not observed yet
			since = now
		}
		until = since.Add(s.settings.FallbackAfter)
		patch := workload.PodPatch{Annotations: map[string]*string{spot.WaitingSinceAnnotation: new(until.UTC().Format(time.RFC3339))}}
		if err := execution.Patch(ctx, a.client, s.pod, patch); err != nil {
			klog.FromContext(ctx).V(2).Info("Wait at the gate not recorded, will retry", "pod", klog.KObj(s.pod), "err", err)
		}
	}
	a.queue.AddAfter(workload.RevisionOf(s.pod), max(ownerRetry, min(reconsiderInterval, until.Sub(now))))
	return now.Before(until)
}

// ungate removes the gates of pods that the policy does not apply to: their label, that of their
// namespace or their scheduler has changed since the gate was added. For a young pod, the cache may
// not show the label of its namespace yet.
func (a *Assigner) ungate(ctx context.Context, pods []*v1.Pod) error {
	var patches errgroup.Group
	for _, pod := range pods {
		if a.clock.Since(pod.CreationTimestamp.Time) < decision.MaxOwnerDelay {
			continue
		}
		c := choice{why: "the policy does not apply to the pod any more"}
		a.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonOptInIgnored, "Assign", "Removed the gate: %s", c.why)
		a.startPatch(ctx, &patches, pod, c, func() {})
	}
	return patches.Wait()
}

// startPatch records the choice and begins to write it to the pod. It calls undo if the pod is
// known to have got nothing.
func (a *Assigner) startPatch(ctx context.Context, patches *errgroup.Group, pod *v1.Pod, c choice, undo func()) {
	a.mu.Lock()
	a.record(pod.UID).assigned = &c
	a.mu.Unlock()
	patches.Go(func() error {
		a.patchSlots <- struct{}{}
		defer func() { <-a.patchSlots }()
		err := a.patch(ctx, pod, c)
		if err == nil {
			return nil
		}
		performed, known := execution.Performed(ctx, a.client, pod, err, func(current *v1.Pod) bool { return !workload.Gated(current) })
		if performed {
			return nil
		}
		a.unassign(pod)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case known:
			undo()
		}
		if apierrors.IsConflict(err) { // the cache will soon show another version
			a.queue.AddAfter(workload.RevisionOf(pod), ownerRetry)
			return nil
		}
		return err
	})
}

// unreplaced returns the released pods of a revision whose replacements must require spot, and that
// no pod of the revision replaces yet. The cache shows a release before the replacement, because
// one watch delivers both. The next new pod may belong to a scale-up instead. This is harmless: the
// intended number of pods of the revision requires spot.
func (a *Assigner) unreplaced(revision workload.OwnerKey, pods []*v1.Pod, assignments map[types.UID]*choice) []*v1.Pod {
	return a.owners.Released(revision, a.clock.Now(), func(released *v1.Pod, r *workload.Release) bool {
		return r.ToSpot && !slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
			annotation := pod.Annotations[spot.AssignedAnnotation]
			if c, ok := assignments[pod.UID]; ok {
				annotation = c.annotation()
			}
			return strings.Contains(annotation, whyReturns(released.Name))
		})
	})
}

// unassign removes the assignment of a pod after a failed patch. If the pod has another controller
// now, that revision has seen it as assigned, and has to be reconciled too. If the pod is deleted,
// the assignment may have been recorded after the deletion was observed.
func (a *Assigner) unassign(pod *v1.Pod) {
	a.mu.Lock()
	if p := a.pending[pod.UID]; p != nil {
		p.assigned = nil
	}
	a.mu.Unlock()
	obj, exists, _ := a.pods.GetByKey(cache.MetaObjectToName(pod).String())
	if !exists || obj.(*v1.Pod).UID != pod.UID {
		a.forget(pod.UID)
	}
	if exists {
		a.queue.AddAfter(workload.RevisionOf(obj.(*v1.Pod)), ownerRetry)
	}
}

// factsOf returns the facts about a pod besides its grant and its predecessor.
func (a *Assigner) factsOf(pod *v1.Pod, assigned int) facts {
	labels, hidden := a.labelsFor(pod)
	return facts{
		labels: labels, hidden: hidden, kept: a.settings.Scope.KeepsScheduler(pod), assigned: assigned,
		requests: workload.ResourcesNote(pod),
		couldRun: func(requires decision.AssignedCapacity) bool { return a.couldRun(pod, requires) },
		onlySpot: func() bool {
			tolerant := *pod
			tolerant.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
			if slices.ContainsFunc(snapshot.All(a.nodes), func(n *v1.Node) bool {
				return a.clock.Since(n.CreationTimestamp.Time) < a.settings.Policy.LabelGrace
			}) { // its device plugin may start
				tolerant.Spec.Containers, tolerant.Spec.InitContainers = nil, nil
			}
			// A limit, a refusal or an unready pool ends, but an exemption lasts as long as the
			// pod.
			return !a.couldRun(&tolerant, decision.AssignedOnDemand) &&
				!a.settings.Provisioning.Add(a.settings.Policy, &tolerant, a.feasibility.volumesOf(pod), decision.OnDemand, false)
		},
	}
}

// patch writes a choice to the exact version of the pod that it was made for, and removes the gate.
func (a *Assigner) patch(ctx context.Context, pod *v1.Pod, c choice) error {
	annotations := map[string]*string{spot.AssignedAnnotation: new(c.annotation())}
	if c.granted != "" {
		annotations[spot.GrantedAnnotation] = new(c.granted + " " + string(pod.UID))
	}
	spec := workload.PodSpecPatch{SchedulingGates: workload.WithoutCapacityGate(pod)}
	if len(spec.SchedulingGates) == 0 {
		annotations[spot.WaitingSinceAnnotation] = new(a.clock.Now().UTC().Format(time.RFC3339))
	}
	switch {
	case len(c.require) > 0:
		spec.Affinity = &v1.Affinity{NodeAffinity: withRequired(pod.Spec.Affinity, c.require)}
	case len(c.prefer) > 0:
		spec.Affinity = &v1.Affinity{NodeAffinity: withPreferred(pod.Spec.Affinity, c.prefer)}
	}
	since := a.recorded(pod.UID).gatedSince // observe resets it if the event of the patch arrives before its answer
	if err := execution.Patch(ctx, a.client, pod, workload.PodPatch{Annotations: annotations, Spec: &spec}); err != nil {
		return err
	}
	a.mu.Lock()
	if p := a.pending[pod.UID]; p != nil {
		p.gatedSince = time.Time{}
	}
	a.gateRemovedAt[pod.Namespace] = a.clock.Now()
	if revision := workload.RevisionOf(pod); a.replaced[revision].why == reassigned {
		delete(a.replaced, revision)
	}
	a.mu.Unlock()
	if !since.IsZero() {
		gateDuration.Observe(a.clock.Since(since).Seconds())
	}
	assignedPods.WithLabelValues(cmp.Or(c.assigned.String(), "none")).Inc()
	klog.FromContext(ctx).V(2).Info("Removed capacity gate", "pod", klog.KObj(pod), "assigned", c.annotation())
	if c.warning != "" {
		a.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonHiddenFromAutoscaler, "Assign", "%s", c.warning)
	}
	if len(c.invalid) > 0 {
		profilemetrics.RecordInvalidAnnotations(keptProfile, len(c.invalid))
		workload.RecordInvalid(a.recorder, pod, c.invalid)
	}
	return nil
}
