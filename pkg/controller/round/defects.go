package round

import (
	"context"
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
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// invalidPods counts the defects of the last snapshot. docs/metrics.md lists it.
var invalidPods = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Subsystem: "spot_aware_scheduler",
	Name:      "invalid_pods",
	Help: "Pods with an invalid claim, by claim: 'owner' (the UID of their controller reference belongs to another object) " +
		"or 'release' (their annotation or label marks them as released, although the controller did not release them).",
	StabilityLevel: metrics.ALPHA,
}, []string{"claim"})

// RegisterMetrics registers the metric of defects. It must be called at most once. All series exist
// from then on with value 0.
func RegisterMetrics() {
	legacyregistry.MustRegister(invalidPods)
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(0)
	}
}

// defects logs each pod with an invalid claim once, and counts such pods. It remembers only
// existing pods.
type defects struct {
	logged map[types.UID]snapshot.DefectKind
}

func (d *defects) observe(s *snapshot.Snapshot) {
	logged, counts := map[types.UID]snapshot.DefectKind{}, map[snapshot.DefectKind]int{}
	for _, defect := range s.Defects {
		counts[defect.Kind]++
		if d.logged[defect.Pod.UID] != defect.Kind {
			klog.Background().Info("Ignored invalid claim of pod", "pod", klog.KObj(defect.Pod), "claim", defect.Kind, "reason", defect.Why)
		}
		logged[defect.Pod.UID] = defect.Kind
	}
	d.logged = logged
	for _, kind := range snapshot.DefectKinds {
		invalidPods.WithLabelValues(string(kind)).Set(float64(counts[kind]))
	}
}

// spotNotices reports, once, each node with a signal that only spot nodes get, but without a label
// that marks it as spot. It contains the capacity types of the reported nodes.
type spotNotices map[types.UID]decision.Capacity

func (n *spotNotices) observe(s *snapshot.Snapshot, signals []providers.Signal, recorder events.EventRecorder) {
	reported := spotNotices{}
	for _, node := range s.Nodes {
		capacity, signal := node.Facts.Capacity, providers.SpotNotice(signals, node.Node)
		if signal == nil || capacity.Type == decision.Spot && capacity.Source != decision.FromSignal {
			continue
		}
		if known, ok := (*n)[node.UID]; !ok || known != capacity {
			recorder.Eventf(node.Node, nil, v1.EventTypeWarning, spot.ReasonUnexpectedNotice, "Compare",
				"Only spot nodes get %s, but no label marks the node as spot: it counts as %s (%s)", signal, capacity.Type, capacity.Source)
		}
		reported[node.UID] = capacity
	}
	*n = reported
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
		if _, known := u.read[key]; known || !w.InProfile || w.Key.Direct() || len(due) == 20 ||
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

// oversized reports, once, each PodDisruptionBudget with more than workload.MaxTerms terms, which
// the controller does not evaluate. It contains the reported ones.
type oversized map[types.UID]bool

func (o *oversized) observe(s *snapshot.Snapshot, recorder events.EventRecorder) {
	reported := oversized{}
	for _, budgets := range s.Budgets {
		for _, budget := range budgets {
			if workload.Terms(budget.Spec.Selector) <= workload.MaxTerms {
				continue
			}
			if reported[budget.UID] = true; !(*o)[budget.UID] {
				recorder.Eventf(budget, nil, v1.EventTypeWarning, spot.ReasonTooManyTerms, "Evaluate",
					"The controller ignores this PodDisruptionBudget, "+
						"because its selector has more than %d terms; the API server obeys it", workload.MaxTerms)
			}
		}
	}
	*o = reported
}
