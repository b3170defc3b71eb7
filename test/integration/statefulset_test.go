package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// statefulSet creates a StatefulSet of live.PodTemplate(name), modified by edits.
func (s *scenario) statefulSet(name string, replicas int32, edits ...func(*appsv1.StatefulSet)) {
	s.Helper()
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: live.PodTemplate(name),
		},
	}
	for _, edit := range edits {
		edit(set)
	}
	_, err := client.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, set, metav1.CreateOptions{})
	s.Must(err)
}

// ordinalsAre returns a check that the set has exactly these pods. pods[0] is the capacity type of
// the pod with the ordinal first, and so on; "" is a waiting pod.
func (s *scenario) ordinalsAre(name string, first int, pods ...string) func() error {
	want := map[string]string{}
	for i, capacity := range pods {
		want[fmt.Sprintf("%s-%d", name, first+i)] = capacity
	}
	return func() error {
		got, err := s.capacities(name)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%s (-want +got):\n%s", name, diff)
		}
		return nil
	}
}

func TestPlacementStatefulSetOrdinals(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 20), live.Spot(3, 20)))
	sets := []struct {
		name  string
		first int
		edit  func(*appsv1.StatefulSetSpec)
	}{
		{"ordered", 0, func(*appsv1.StatefulSetSpec) {}},
		{"parallel", 0, func(spec *appsv1.StatefulSetSpec) { spec.PodManagementPolicy = appsv1.ParallelPodManagement }},
		{"from-7", 7, func(spec *appsv1.StatefulSetSpec) { spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 7} }},
		{"parallel-from-7", 7, func(spec *appsv1.StatefulSetSpec) {
			spec.PodManagementPolicy = appsv1.ParallelPodManagement
			spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 7}
		}},
	}
	const od, sp = lab.OnDemand, lab.Spot
	for _, set := range sets {
		s.statefulSet(set.name, 5, func(o *appsv1.StatefulSet) {
			o.Annotations[minOnDemand] = "2"
			set.edit(&o.Spec)
		})
	}
	for _, set := range sets {
		s.Eventually(soon, s.ordinalsAre(set.name, set.first, od, od, sp, sp, sp))
	}

	for _, set := range sets {
		s.scaleSet(set.name, 2)
	}
	for _, set := range sets {
		s.Eventually(soon, s.ordinalsAre(set.name, set.first, od, od))
	}

	// A new pod gets the capacity type of the old pod of its ordinal. This applies to a pod of the
	// floor and to ordinals that were scaled down.
	for _, set := range sets {
		s.Must(client.CoreV1().Pods(s.Namespace).Delete(s.Ctx, fmt.Sprintf("%s-%d", set.name, set.first+1), metav1.DeleteOptions{}))
		s.scaleSet(set.name, 5)
	}
	for _, set := range sets {
		s.Eventually(soon, s.ordinalsAre(set.name, set.first, od, od, sp, sp, sp))
	}
}

// An ordinal that waits for on-demand blocks the ordinals after it, unless the set is Parallel.
func TestStatefulSetWithoutRoomForFloor(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(1, 1), live.Spot(3, 20)))
	s.Deploy("blocker", 1)
	s.Eventually(soon, s.HasSplit("blocker", split{OnDemand: 1}))
	s.statefulSet("ordered", 3)
	s.statefulSet("parallel", 3, func(o *appsv1.StatefulSet) { o.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	s.Eventually(soon, s.ordinalsAre("ordered", 0, ""))
	s.Eventually(soon, s.ordinalsAre("parallel", 0, "", lab.Spot, lab.Spot))
	s.Eventually(soon, s.pendingReason("ordered", 1, "/ordered must run on on-demand, and later ordinals wait for this one"))
	s.Eventually(soon, s.pendingReason("parallel", 1, "/parallel must run on on-demand (waits for on-demand room"))

	s.AddNodes(lab.NodeSpec{Name: "more", Capacity: lab.OnDemand})
	s.Eventually(soon, s.ordinalsAre("ordered", 0, lab.OnDemand, lab.Spot, lab.Spot))
	s.Eventually(soon, s.ordinalsAre("parallel", 0, lab.OnDemand, lab.Spot, lab.Spot))
}

func (s *scenario) scaleSet(name string, replicas int32) {
	s.Helper()
	s.Eventually(soon, func() error {
		scale, err := client.AppsV1().StatefulSets(s.Namespace).GetScale(s.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		_, err = client.AppsV1().StatefulSets(s.Namespace).UpdateScale(s.Ctx, name, scale, metav1.UpdateOptions{})
		return err
	})
}
