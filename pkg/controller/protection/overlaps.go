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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// overlaps finds the selectors of other objects that select pods of a namespace's workloads.
type overlaps struct {
	namespace string
	// budgets contains, by workload, the name of a PodDisruptionBudget of another owner that
	// selects its pods.
	budgets map[*snapshot.Workload]string
	// byLabel contains the workloads by their pods' labels, as "key=value" and as "key". all
	// contains every workload with pods.
	byLabel map[string][]*labelled
	all     []*labelled
}

// labelled is a workload with the labels of one or more of its pods. Pods of one revision may have
// different labels: some applications label their leader.
type labelled struct {
	workload *snapshot.Workload
	labels   labels.Set
}

func findOverlaps(s *snapshot.Snapshot, namespace string) *overlaps {
	o := &overlaps{namespace: namespace, budgets: map[*snapshot.Workload]string{}, byLabel: map[string][]*labelled{}}
	first, _ := slices.BinarySearchFunc(s.Pods, namespace, func(pod *snapshot.Pod, namespace string) int {
		return cmp.Compare(pod.Namespace, namespace)
	})
	last := map[*snapshot.Workload]*labelled{}
	for _, pod := range s.Pods[first:] {
		if pod.Namespace != namespace {
			break
		}
		// Released and terminating pods count, because a workload may have no other pods.
		w := migration.WorkloadOf(pod)
		if w == nil {
			continue
		}
		if known := last[w]; known == nil || !maps.Equal(known.labels, pod.Labels) {
			last[w] = &labelled{w, pod.Labels}
			o.add(last[w])
		}
	}
	for _, budget := range s.Budgets[namespace] {
		if workload.ManagedDisruptionBudget(budget) {
			continue
		}
		for w := range o.selected(workload.Selector(budget.Spec.Selector)) {
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

// selected returns the workloads with a pod that the selector selects, some repeatedly. It examines
// only pods with one of the selector's labels, because a namespace may have thousands of workloads
// and of budgets.
func (o *overlaps) selected(selector labels.Selector) iter.Seq[*snapshot.Workload] {
	candidates := o.all
	requirements, selectable := selector.Requirements()
	if !selectable {
		candidates = nil
	}
	for _, r := range requirements {
		var matching []*labelled
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			for _, value := range slices.Sorted(maps.Keys(r.Values())) {
				matching = append(matching, o.byLabel[r.Key()+"="+value]...)
			}
		case selection.Exists:
			matching = o.byLabel[r.Key()]
		default:
			continue
		}
		if len(matching) < len(candidates) {
			candidates = matching
		}
	}
	return func(yield func(*snapshot.Workload) bool) {
		for _, l := range candidates {
			if selector.Matches(l.labels) && !yield(l.workload) {
				return
			}
		}
	}
}

// conflict returns why a Deployment cannot have a budget; "" if it can.
func (o *overlaps) conflict(w *snapshot.Workload) string {
	if other, ok := o.budgets[w]; ok {
		return fmt.Sprintf("PodDisruptionBudget %s selects its pods, and the API server evicts no pod with two PodDisruptionBudgets", other)
	}
	selector, err := metav1.LabelSelectorAsSelector(w.Deployment.Spec.Selector)
	if err != nil {
		return "its selector is invalid: " + err.Error()
	}
	for other := range o.selected(selector) {
		if other != w {
			return fmt.Sprintf("its selector also selects pods of %s %s", other.Kind, other.Name)
		}
	}
	return ""
}
