package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// A real API server cannot reproduce at will that the scheduler observes a pod before its owner,
// because the owner's UID exists only after its creation. (A unit test of the plugin delays the
// owners' informer.) These tests use a reference to an owner that does not exist yet. The garbage
// collector would delete an object with such a reference, unless it cannot look up the owner. So
// the reference names an API version that the API server does not serve. The scheduler considers
// only groups and kinds.

// TestPodsWaitForUnknownOwner has the pods of a ReplicaSet wait for its Deployment, although all
// nodes are free.
func TestPodsWaitForUnknownOwner(t *testing.T) {
	for name, test := range map[string]struct {
		// settle makes the owner known.
		settle func(s *scenario, set *appsv1.ReplicaSet)
		want   split
	}{
		"Deployment created": {
			settle: func(s *scenario, set *appsv1.ReplicaSet) {
				d := s.Deploy("late", 3, live.Annotated(minOnDemand, "2"), func(d *appsv1.Deployment) {
					d.Spec.Paused = true // so that it creates no ReplicaSet
				})
				// The Deployment has the right name, but is not the owner yet.
				s.awaitIdleScheduler()
				s.Must(s.HasSplit("late", split{Waiting: 3})())
				s.setOwners(set, *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")))
			},
			want: split{OnDemand: 2, Spot: 1},
		},
		"ReplicaSet loses its owner": {
			settle: func(s *scenario, set *appsv1.ReplicaSet) { s.setOwners(set) },
			want:   split{OnDemand: 1, Spot: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, slices.Concat(live.OnDemand(2, 5), live.Spot(2, 5)))
			seen := s.Watch()
			isController, replicas, labels := true, int32(3), map[string]string{"app": "late"}
			set, err := client.AppsV1().ReplicaSets(s.Namespace).Create(s.Ctx, &appsv1.ReplicaSet{
				// Without the labels the Deployment controller would release the ReplicaSet as soon
				// as it owns it.
				ObjectMeta: metav1.ObjectMeta{Name: "late-1", Labels: labels, OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v0", Kind: "Deployment", Name: "late", UID: "11111111-1111-1111-1111-111111111111", Controller: &isController,
				}}},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: live.PodTemplate("late"),
				},
			}, metav1.CreateOptions{})
			s.Must(err)
			s.Eventually(soon, s.pendingReason("late", 3, "owner not known yet: waits for Deployment "+s.Namespace+"/late"))
			s.awaitIdleScheduler()

			test.settle(s, set)
			settled := time.Now()
			s.Eventually(soon, s.HasSplit("late", test.want))
			pods, err := s.Pods("late")
			s.Must(err)
			for _, pod := range pods {
				s.requireBoundAtOnce(seen, pod.Name, settled)
			}
		})
	}
}

// setOwners replaces a ReplicaSet's owners.
func (s *scenario) setOwners(set *appsv1.ReplicaSet, owners ...metav1.OwnerReference) {
	s.Helper()
	s.Eventually(soon, func() error {
		now, err := client.AppsV1().ReplicaSets(s.Namespace).Get(s.Ctx, set.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.OwnerReferences = owners
		_, err = client.AppsV1().ReplicaSets(s.Namespace).Update(s.Ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// TestPlacementRightAfterOwner creates ReplicaSets and their pods by hand, each pod right after its
// owner. The annotation of its own ReplicaSet determines where each pod is placed. For half of the
// pods this differs from the default and from the rule for a singleton. (The scheduler rarely
// observes a pod first here. The unit test and the test above show that it would wait then.)
func TestPlacementRightAfterOwner(t *testing.T) {
	const pairs = 10
	s := start(t, slices.Concat(live.OnDemand(2, pairs), live.Spot(2, pairs)))
	for i := range pairs {
		s.createReplicaSetAndPod(fmt.Sprintf("spot-%d", i), map[string]string{minOnDemand: "0"})
		s.createReplicaSetAndPod(fmt.Sprintf("on-demand-%d", i), nil)
	}
	for i := range pairs {
		s.Eventually(soon, s.HasSplit(fmt.Sprintf("spot-%d", i), split{Spot: 1}))
		s.Eventually(soon, s.HasSplit(fmt.Sprintf("on-demand-%d", i), split{OnDemand: 1}))
	}
}

// createReplicaSetAndPod creates a ReplicaSet of one replica and its pod.
func (s *scenario) createReplicaSetAndPod(name string, annotations map[string]string) {
	s.Helper()
	labels, one := map[string]string{"app": name}, int32(1)
	template := live.PodTemplate(name)
	// Admission rejects the pods that the ReplicaSet controller would create from this template.
	template.Spec.PriorityClassName = "missing"
	set, err := client.AppsV1().ReplicaSets(s.Namespace).Create(s.Ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
	_, err = client.CoreV1().Pods(s.Namespace).Create(s.Ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
		}},
		Spec: live.PodTemplate(name).Spec,
	}, metav1.CreateOptions{})
	s.Must(err)
}
