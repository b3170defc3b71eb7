package round

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Both metrics describe the last snapshot.
var (
	invalidPods = metrics.NewGaugeVec("invalid_pods",
		"Pods with an invalid claim, by claim: 'owner' (the UID of their controller reference belongs to another object) or "+
			"'release' (their annotation or label marks them as released, although the controller did not release them).", "claim")
	hiddenNodes = metrics.NewGauge("hidden_capacity_nodes",
		"Nodes for which autoscalers and the policy see different capacity types.")
)

// RegisterMetrics registers the metrics of defects and of reclaim signals. It must be called at
// most once. All series exist from then on with value 0, except the series of reclaimNodes.
func RegisterMetrics() {
	legacyregistry.MustRegister(invalidPods, hiddenNodes, breakerOpen, breakerForced, breakerForcedUntil, reclaimNodes, spotNodes, dryRun)
	(&Planner{}).reportReclaims(interruption.Breaker{}, nil)
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(0)
	}
}

// defects reports what is wrong with objects, each once while it is. It remembers only what applied
// to the last snapshot.
type defects struct {
	recorder        events.EventRecorder
	policy          *decision.Policy
	known, observed map[defect]bool
}

type defect struct {
	object    types.UID
	kind, why string
}

// isNew reports whether a defect did not exist in the last snapshot.
func (d *defects) isNew(object metav1.Object, kind, why string) bool {
	key := defect{object.GetUID(), kind, why}
	d.observed[key] = true
	return !d.known[key]
}

// warn emits a Warning for a new defect. reason is that of the event.
func (d *defects) warn(object client.Object, reason, why string) {
	if d.isNew(object, reason, why) {
		d.recorder.Eventf(object, nil, v1.EventTypeWarning, reason, "Compare", "%s", why)
	}
}

// observe logs pods with an invalid claim, and counts them. It emits events on
//
//   - nodes with a signal that only spot nodes get, but without a label that marks them as spot
//   - nodes for which autoscalers and the policy see different capacity types, if labels is not
//     nil. If only other schedulers place pods, the labels are derived from the nodes
//   - nodes with invalid capacity labels, if only other schedulers place pods. Otherwise our
//     scheduler reports them
//   - PodDisruptionBudgets with more than workload.MaxTerms terms, which the controller does not
//     evaluate
func (d *defects) observe(s *snapshot.Snapshot, signals []providers.Signal, labels *gating.Labels) {
	d.known, d.observed = d.observed, map[defect]bool{}
	counts := map[snapshot.DefectKind]int{}
	for _, claim := range s.Defects {
		counts[claim.Kind]++
		if d.isNew(claim.Pod, string(claim.Kind), "") {
			klog.Background().Info("Ignored invalid claim of pod", "pod", klog.KObj(claim.Pod), "claim", claim.Kind, "reason", claim.Why)
		}
	}
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(float64(counts[kind]))
	}
	ours, others := s.SchedulersOfPods()
	onlyOthers := others && !ours
	if onlyOthers && labels != nil {
		labels, _ = labels.ForNodes(d.policy, s.Nodes)
	}
	hidden := 0
	for _, n := range s.Nodes {
		capacity := n.Facts.Capacity
		if onlyOthers {
			if reason, why := node.LabelFault(d.policy, n.Labels); why != "" {
				d.warn(n.Node, reason, why)
			}
		}
		labeledSpot := capacity.Type == decision.Spot && capacity.Source != decision.FromSignal
		if signal := providers.SpotNotice(signals, n.Node); signal != nil && !labeledSpot {
			d.warn(n.Node, spot.ReasonUnexpectedNotice, fmt.Sprintf(
				"Only spot nodes get %s, but no label marks the node as spot: it counts as %s (%s)", signal, capacity.Type, capacity.Source))
		}
		if labels != nil {
			if why := labels.Disagreement(n.Node, capacity); why != "" {
				hidden++
				d.warn(n.Node, spot.ReasonHiddenCapacity, why)
			}
		}
	}
	hiddenNodes.Set(float64(hidden))
	for _, budgets := range s.Budgets {
		for _, budget := range budgets {
			if workload.Terms(budget.Spec.Selector) > workload.MaxTerms {
				d.warn(budget, spot.ReasonTooManyTerms, fmt.Sprintf("The controller ignores this PodDisruptionBudget, "+
					"because its selector has more than %d terms; the API server obeys it", workload.MaxTerms))
			}
		}
	}
}

// unreadAnnotations warns of settings in annotations of objects that the policy does not read. It
// reads an object at most once an hour, beside the rounds. It may lack the right to read it.
type unreadAnnotations struct {
	reading atomic.Bool
	read    map[workload.OwnerKey]time.Time
}

func (u *unreadAnnotations) observe(s *snapshot.Snapshot, reader metadata.Interface, recorder events.EventRecorder) {
	if !u.reading.CompareAndSwap(false, true) {
		return
	}
	maps.DeleteFunc(u.read, func(_ workload.OwnerKey, at time.Time) bool { return s.Now.Sub(at) >= time.Hour })
	var due []*v1.ObjectReference
	for _, w := range s.Workloads {
		key := w.Key
		key.Role = "" // all roles have one object
		if _, known := u.read[key]; known || !w.InScope || w.Key.Direct() || len(due) == 20 ||
			len(w.Revisions[0].Pods) == 0 || !workload.HasUnsupportedController(w.Revisions[0].Pods[0].Pod) {
			continue
		}
		u.read[key] = s.Now
		due = append(due, &v1.ObjectReference{APIVersion: w.APIVersion, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, UID: w.Key.UID})
	}
	go func() {
		defer u.reading.Store(false)
		for _, object := range due {
			if key := unreadAnnotation(object, reader); key != "" {
				recorder.Eventf(object, nil, v1.EventTypeWarning, spot.ReasonAnnotationNotRead, "Compare",
					"Annotation %s has no effect on a %s: settings belong in the metadata of its pod template", key, object.Kind)
			}
		}
	}()
}

// unreadAnnotation returns an annotation of the object with a setting; "" if it cannot be read.
func unreadAnnotation(of *v1.ObjectReference, reader metadata.Interface) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	resource, _ := meta.UnsafeGuessKindToResource(of.GroupVersionKind())
	if strings.Contains(resource.Resource+of.Name, "/") {
		return "" // an owner reference is a claim: it must not lead to another path
	}
	object, err := reader.Resource(resource).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil || object.UID != of.UID {
		return ""
	}
	return decision.SettingAnnotation(object.Annotations)
}
