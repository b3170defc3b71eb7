package integration

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// newestOf returns the newest event with this reason about each object of a namespace, by the
// object's name. Events about nodes are in the namespace default.
func (s *scenario) newestOf(namespace, reason string) (map[string]eventsv1.Event, error) {
	list, err := client.EventsV1().Events(namespace).List(s.Ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return nil, err
	}
	newest := map[string]eventsv1.Event{}
	for _, event := range list.Items { // sorted by name, and the name ends with the time
		newest[event.Regarding.Name] = event
	}
	return newest, nil
}

// eventsOf returns the notes of the newest events; see newestOf.
func (s *scenario) eventsOf(namespace, reason string) (map[string]string, error) {
	newest, err := s.newestOf(namespace, reason)
	notes := map[string]string{}
	for name, event := range newest {
		notes[name] = event.Note
	}
	return notes, err
}

// metric returns the sum of a metric of the process that places the scenario's pods; see gauge.
func (s *scenario) metric(name string, labels map[string]string) (int, error) {
	return s.MetricValue(s.metricsProcess(), name, labels)
}

// hasMetric returns a check that a metric of that process has this value.
func (s *scenario) hasMetric(want int, name string, labels map[string]string) func() error {
	return s.HasMetric(s.metricsProcess(), want, name, labels)
}

// capacities returns the capacity type of the node of each live pod with the label app, by pod
// name; "" for a waiting pod. Only the project's own label defines the capacity type of a node.
func (s *scenario) capacities(app string) (map[string]string, error) {
	pods, err := s.Pods(app)
	if err != nil {
		return nil, err
	}
	at := map[string]string{}
	for _, pod := range pods {
		at[pod.Name] = ""
		if pod.Spec.NodeName != "" {
			node, err := client.CoreV1().Nodes().Get(s.Ctx, pod.Spec.NodeName, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			at[pod.Name] = node.Labels[lab.CapacityLabel]
		}
	}
	return at, nil
}

// pendingReason returns a check that exactly n pods of app wait, n being at least 1. The condition
// and an event of each must contain why.
func (s *scenario) pendingReason(app string, n int, why string) func() error {
	return func() error {
		pods, err := s.Pods(app)
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(pods, func(pod v1.Pod) bool { return pod.Spec.NodeName != "" })
		if len(pods) != n {
			return fmt.Errorf("%d pods of %s wait, want %d", len(pods), app, n)
		}
		events, err := s.newestOf(s.Namespace, "FailedScheduling")
		if err != nil {
			return err
		}
		for _, pod := range pods {
			condition := scheduled(&pod)
			if condition.Status != v1.ConditionFalse || !strings.Contains(condition.Message, why) {
				return fmt.Errorf("the condition of %s does not contain %q: %+v", pod.Name, why, condition)
			}
			// The recorder combines the events about one version of a pod into a series, and keeps
			// the first note.
			if event := events[pod.Name]; event.Series == nil && !strings.Contains(event.Note, why) {
				return fmt.Errorf("the event of %s does not contain %q: %q", pod.Name, why, event.Note)
			}
		}
		return nil
	}
}

// scheduled returns the condition PodScheduled, or an empty condition if the pod has none.
func scheduled(pod *v1.Pod) v1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
	if i < 0 {
		return v1.PodCondition{}
	}
	return pod.Status.Conditions[i]
}
