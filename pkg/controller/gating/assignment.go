package gating

import (
	"cmp"
	"context"
	"encoding/json"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// release decides on the gated pods of a revision one after the other, and patches them
// concurrently. first reports whether no assigned pod of the revision may run on spot.
// release returns the new number of pods that require on-demand.
func (g *Assigner) release(ctx context.Context, revision workload.OwnerKey, gated []sibling, assigned int, first bool) (int, error) {
	var patches errgroup.Group
	patches.SetLimit(maxPatches)
	for _, s := range gated {
		own := s.subject.Pod.OnlyOnDemand
		f := facts{assigned: assigned}
		g.takeReassigned(revision)
		grant, granted := g.takeGrant(successorOf(revision, s))
		if granted {
			f.granted = grant.why
		} else if capacity, wanted := g.wishes.Take(revision, g.clock.Now()); wanted {
			f.toSpot = capacity == decision.Spot
		}
		c := g.settings.Labels.choose(s.subject, s.settings, f)
		if c.assigned == decision.AssignedOnDemand || own {
			assigned++
		}
		if c.ofRevision {
			if !first {
				c.warning = ""
			}
			first = first && c.warning == ""
		}
		g.decide(s.pod.UID, c.assigned)
		patches.Go(func() error {
			g.slots <- struct{}{}
			defer func() { <-g.slots }()
			err := g.patch(ctx, s.pod, c)
			if err == nil {
				return nil
			}
			g.mu.Lock()
			delete(g.decided, s.pod.UID)
			g.mu.Unlock()
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case granted:
				g.giveGrant(successorOf(revision, s), grant)
			case f.toSpot:
				g.wishes.Require(revision, decision.Spot, g.clock.Now().Add(g.settings.NodeStartup))
			}
			if apierrors.IsConflict(err) { // the cache will soon show another version
				g.queue.AddAfter(revision, ownerRetry)
				return nil
			}
			return err
		})
	}
	return assigned, patches.Wait()
}

func (g *Assigner) decide(pod types.UID, a decision.AssignedCapacity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.decided[pod] = a
}

// patch writes a choice to the exact version of the pod that it was made for, and removes the gate.
func (g *Assigner) patch(ctx context.Context, pod *v1.Pod, c choice) error {
	annotations := map[string]string{spot.AssignedAnnotation: c.annotation()}
	if c.granted != "" {
		annotations[spot.GrantedAnnotation] = c.granted
	}
	spec := map[string]any{"schedulingGates": workload.WithoutCapacityGate(pod)}
	switch {
	case len(c.require) > 0:
		spec["affinity"] = map[string]any{"nodeAffinity": narrow(pod.Spec.Affinity, c.require).NodeAffinity}
	case len(c.prefer) > 0:
		spec["affinity"] = map[string]any{"nodeAffinity": prefer(pod.Spec.Affinity, c.prefer).NodeAffinity}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations}, "spec": spec,
	})
	if err != nil {
		return err
	}
	_, err = g.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	g.mu.Lock()
	since, known := g.seen[pod.UID]
	delete(g.seen, pod.UID)
	g.releasedAt[pod.Namespace] = g.clock.Now()
	g.mu.Unlock()
	if known {
		gateDuration.Observe(g.clock.Since(since).Seconds())
	}
	assignedPods.WithLabelValues(cmp.Or(c.assigned.String(), "none")).Inc()
	klog.FromContext(ctx).V(2).Info("Removed capacity gate", "pod", klog.KObj(pod), "assigned", c.annotation())
	if c.warning != "" {
		g.recorder.Eventf(pod, nil, v1.EventTypeWarning, spot.ReasonHiddenFromAutoscaler, "Assign", "%s", c.warning)
	}
	return nil
}
