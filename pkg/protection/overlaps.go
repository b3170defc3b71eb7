package protection

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// overlaps are the workloads of a namespace whose pods are selected by what is not theirs.
type overlaps struct {
	namespace string
	// budgets are the names of the PodDisruptionBudgets, other than ours, that select pods of a workload.
	budgets map[*cluster.Workload]string
	// byLabel are the workloads by the labels of their pods, as "key=value", and by their keys; all are those that have pods.
	byLabel map[string][]*labelled
	all     []*labelled
}

// labelled is a workload with the labels of one or more of its pods. Pods of one revision may have
// different labels: some applications label their leader.
type labelled struct {
	workload *cluster.Workload
	labels   labels.Set
}

func findOverlaps(s *cluster.Snapshot, namespace string) *overlaps {
	o := &overlaps{namespace: namespace, budgets: map[*cluster.Workload]string{}, byLabel: map[string][]*labelled{}}
	first, _ := slices.BinarySearchFunc(s.Pods, namespace, func(pod *cluster.Pod, namespace string) int {
		return cmp.Compare(pod.Namespace, namespace)
	})
	last := map[*cluster.Workload]*labelled{}
	for _, pod := range s.Pods[first:] {
		if pod.Namespace != namespace {
			break
		}
		// Released and terminating pods count, because a workload may have no other pods.
		w := pod.Workload
		if pod.ReleasedFrom != nil {
			w = pod.ReleasedFrom.Workload
		}
		if w == nil {
			continue
		}
		if known := last[w]; known == nil || !maps.Equal(known.labels, pod.Labels) {
			last[w] = &labelled{w, pod.Labels}
			o.add(last[w])
		}
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

func (o *overlaps) add(l *labelled) {
	for key, value := range l.labels {
		for _, entry := range []string{key, key + "=" + value} {
			o.byLabel[entry] = append(o.byLabel[entry], l)
		}
	}
	o.all = append(o.all, l)
}

// selected returns the workloads of which a selector selects a pod, some repeatedly. It examines only
// pods with one of the selector's labels, because a namespace may have thousands of workloads and of
// budgets.
func (o *overlaps) selected(selector labels.Selector) iter.Seq[*cluster.Workload] {
	candidates := o.all
	requirements, selectable := selector.Requirements()
	if !selectable {
		candidates = nil
	}
	for _, r := range requirements {
		var having []*labelled
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			for _, value := range slices.Sorted(maps.Keys(r.Values())) {
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
		for _, l := range candidates {
			if selector.Matches(l.labels) && !yield(l.workload) {
				return
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
