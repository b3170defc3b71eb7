package protection

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// overlaps are the workloads of a namespace whose pods are selected by what is not theirs.
type overlaps struct {
	namespace string
	// budgets are the names of the PodDisruptionBudgets, other than ours, that select pods of a workload.
	budgets map[*cluster.Workload]string
	// byLabel are the workloads by the labels of their pods, as "key=value", and by their keys; all are those that have pods.
	byLabel map[string][]*cluster.Workload
	all     []*cluster.Workload
}

func findOverlaps(s *cluster.Snapshot, namespace string) *overlaps {
	o := &overlaps{namespace: namespace, budgets: map[*cluster.Workload]string{}, byLabel: map[string][]*cluster.Workload{}}
	first, _ := slices.BinarySearchFunc(s.Workloads, namespace, func(w *cluster.Workload, namespace string) int {
		return cmp.Compare(w.Namespace, namespace)
	})
	for _, w := range s.Workloads[first:] {
		if w.Namespace != namespace {
			break
		}
		o.add(w)
	}
	for _, budget := range s.Budgets[namespace] {
		if kube.OwnBudget(budget) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			continue // it selects nothing
		}
		for w := range o.selected(selector) {
			o.budgets[w] = budget.Name
		}
	}
	return o
}

func (o *overlaps) add(w *cluster.Workload) {
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	seen := map[string]bool{}
	for podLabels := range labelsOf(w) {
		for key, value := range podLabels {
			for _, entry := range []string{key, key + "=" + value} {
				if !seen[entry] {
					seen[entry] = true
					o.byLabel[entry] = append(o.byLabel[entry], w)
				}
			}
		}
	}
	o.all = append(o.all, w)
}

// labelsOf are the labels of the pods of a workload: those of one revision have the same, but for what is each one's own.
func labelsOf(w *cluster.Workload) iter.Seq[labels.Set] {
	return func(yield func(labels.Set) bool) {
		for _, revision := range w.Revisions {
			if len(revision.Pods) > 0 && !yield(revision.Pods[0].Labels) {
				return
			}
		}
	}
}

// selected are the workloads whose pods a selector selects. It looks only at those that have one of the selector's labels: a namespace may have
// thousands of workloads and of budgets.
func (o *overlaps) selected(selector labels.Selector) iter.Seq[*cluster.Workload] {
	candidates := o.all
	requirements, selectable := selector.Requirements()
	if !selectable {
		candidates = nil
	}
	for _, r := range requirements {
		var having []*cluster.Workload
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			for value := range r.Values() {
				having = append(having, o.byLabel[r.Key()+"="+value]...)
			}
		case selection.Exists:
			having = o.byLabel[r.Key()]
		default:
			continue
		}
		if len(having) < len(candidates) {
			candidates = having
		}
	}
	return func(yield func(*cluster.Workload) bool) {
		for _, w := range candidates {
			for podLabels := range labelsOf(w) {
				if selector.Matches(podLabels) {
					if !yield(w) {
						return
					}
					break
				}
			}
		}
	}
}

// of says what keeps a Deployment from having a budget; "" if nothing does.
func (o *overlaps) of(w *cluster.Workload) string {
	if other, ok := o.budgets[w]; ok {
		return fmt.Sprintf("PodDisruptionBudget %s selects its pods, and the API server evicts no pod that two select", other)
	}
	selector, err := metav1.LabelSelectorAsSelector(w.Deployment.Spec.Selector)
	if err != nil {
		return "its selector is invalid: " + err.Error()
	}
	for other := range o.selected(selector) {
		if other != w {
			return fmt.Sprintf("its selector selects pods of %s %s, too", other.Kind, other.Name)
		}
	}
	return ""
}
