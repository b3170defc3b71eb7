package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod of which the scheduler knows before it knows the owner cannot be made at will on a real API server: the owner's UID is made with
// the owner. (A unit test of the plugin holds the owners' informer back.) What can be made is a reference to an owner that is not there
// yet. The garbage collector would delete whatever carries one, unless it cannot look the owner up: as in a version of the API that
// nobody serves. Groups and kinds are what the scheduler goes by.

// TestOwnerNotThereYet has the pods of a ReplicaSet wait for its Deployment, although all nodes are free.
func TestOwnerNotThereYet(t *testing.T) {
	for name, test := range map[string]struct {
		// settle makes the owner known.
		settle func(s *scenario, set *appsv1.ReplicaSet)
		want   split
	}{
		"the Deployment appears": {
			settle: func(s *scenario, set *appsv1.ReplicaSet) {
				d := s.deploy("late", 3, annotated(minOnDemand, "2"), func(d *appsv1.Deployment) {
					d.Spec.Paused = true // so that it makes no ReplicaSet of its own
				})
				// It has the name, and is not yet the owner.
				s.still()
				s.must(s.is("late", split{waiting: 3})())
				s.setOwners(set, *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")))
			},
			want: split{onDemand: 2, spot: 1},
		},
		"the ReplicaSet is left to itself": {
			settle: func(s *scenario, set *appsv1.ReplicaSet) { s.setOwners(set) },
			want:   split{onDemand: 1, spot: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, slices.Concat(onDemand(2, 5), spot(2, 5)))
			seen := s.watch()
			isController, replicas, labels := true, int32(3), map[string]string{"app": "late"}
			set, err := client.AppsV1().ReplicaSets(s.namespace).Create(s.ctx, &appsv1.ReplicaSet{
				// Without the labels the Deployment's controller would release it as soon as it sees itself as the owner.
				ObjectMeta: metav1.ObjectMeta{Name: "late-1", Labels: labels, OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v0", Kind: "Deployment", Name: "late", UID: "11111111-1111-1111-1111-111111111111", Controller: &isController,
				}}},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate("late"),
				},
			}, metav1.CreateOptions{})
			s.must(err)
			s.eventually(soon, s.waitsBecause("late", 3, "owner not known yet: waits for Deployment "+s.namespace+"/late"))
			s.still()

			test.settle(s, set)
			settled := time.Now()
			s.eventually(soon, s.is("late", test.want))
			pods, err := s.pods("late")
			s.must(err)
			for _, pod := range pods {
				s.boundAtOnce(seen, pod.Name, settled)
			}
		})
	}
}

// setOwners replaces a ReplicaSet's owners.
func (s *scenario) setOwners(set *appsv1.ReplicaSet, owners ...metav1.OwnerReference) {
	s.Helper()
	s.eventually(soon, func() error {
		now, err := client.AppsV1().ReplicaSets(s.namespace).Get(s.ctx, set.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.OwnerReferences = owners
		_, err = client.AppsV1().ReplicaSets(s.namespace).Update(s.ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// TestPodRightAfterItsOwner creates ReplicaSets and their pods by hand, each pod right after its owner. Each pod is placed by what its own
// ReplicaSet says, which is neither the default nor a singleton's for half of them. (The scheduler hardly ever sees a pod first here; that
// it would wait then is for the unit test and the test above to show.)
func TestPodRightAfterItsOwner(t *testing.T) {
	const pairs = 10
	s := start(t, slices.Concat(onDemand(2, pairs), spot(2, pairs)))
	for i := range pairs {
		s.pair(fmt.Sprintf("spot-%d", i), map[string]string{minOnDemand: "0"})
		s.pair(fmt.Sprintf("on-demand-%d", i), nil)
	}
	for i := range pairs {
		s.eventually(soon, s.is(fmt.Sprintf("spot-%d", i), split{spot: 1}))
		s.eventually(soon, s.is(fmt.Sprintf("on-demand-%d", i), split{onDemand: 1}))
	}
}

// pair creates a ReplicaSet of one replica and its pod.
func (s *scenario) pair(name string, annotations map[string]string) {
	s.Helper()
	labels, one := map[string]string{"app": name}, int32(1)
	template := podTemplate(name)
	// Admission refuses the pods that the controller would make of this.
	template.Spec.PriorityClassName = "there-is-none"
	set, err := client.AppsV1().ReplicaSets(s.namespace).Create(s.ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = client.CoreV1().Pods(s.namespace).Create(s.ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
		}},
		Spec: podTemplate(name).Spec,
	}, metav1.CreateOptions{})
	s.must(err)
}
