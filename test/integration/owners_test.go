package integration

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func TestPlacementOwners(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(3, 20), live.Spot(3, 20)))

	s.run("ReplicationController", func(s *scenario) {
		replicas, template := int32(3), live.PodTemplate("rc")
		_, err := client.CoreV1().ReplicationControllers(s.Namespace).Create(s.Ctx, &v1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: "rc"},
			Spec:       v1.ReplicationControllerSpec{Replicas: &replicas, Selector: template.Labels, Template: &template},
		}, metav1.CreateOptions{})
		s.Must(err)
		s.Eventually(soon, s.HasSplit("rc", split{OnDemand: 1, Spot: 2}))
	})

	s.run("ReplicaSet without a Deployment", func(s *scenario) {
		s.replicaSet("rs", 3)
		s.replicaSet("rs-annotated", 3, func(rs *appsv1.ReplicaSet) { rs.Annotations[minOnDemand] = "2" })
		s.Eventually(soon, s.HasSplit("rs", split{OnDemand: 1, Spot: 2}))
		s.Eventually(soon, s.HasSplit("rs-annotated", split{OnDemand: 2, Spot: 1}))
	})

	s.run("ReplicaSet of an unknown kind", func(s *scenario) {
		s.replicaSet("rs-rollout", 3, func(rs *appsv1.ReplicaSet) {
			rs.Annotations[minOnDemand] = "2"
			rs.OwnerReferences = []metav1.OwnerReference{unknownKind("Rollout")}
		})
		s.Eventually(soon, s.HasSplit("rs-rollout", split{OnDemand: 2, Spot: 1}))
	})

	s.run("unknown kind", func(s *scenario) {
		// The replica count is the number of live pods: the first pod is a singleton until the
		// others exist.
		for i := range 4 {
			s.pod("cloneset", fmt.Sprintf("cloneset-%d", i), func(pod *v1.Pod) {
				pod.OwnerReferences = []metav1.OwnerReference{unknownKind("CloneSet")}
			})
			s.Eventually(soon, s.HasSplit("cloneset", split{OnDemand: 1, Spot: i}))
		}
	})

	s.run("pods that a Deployment controls without a ReplicaSet", func(s *scenario) {
		none, template := int32(0), live.PodTemplate("jobmanager")
		d, err := client.AppsV1().Deployments(s.Namespace).Create(s.Ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "jobmanager"},
			Spec:       appsv1.DeploymentSpec{Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		}, metav1.CreateOptions{})
		s.Must(err)
		for i := range 4 {
			s.pod("taskmanager", fmt.Sprintf("taskmanager-%d", i), func(pod *v1.Pod) {
				pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
			})
			s.Eventually(soon, s.HasSplit("taskmanager", split{OnDemand: 1, Spot: i}))
		}
	})

	s.run("pod without a controller", func(s *scenario) {
		s.barePod("bare")
		s.Eventually(soon, s.HasSplit("bare", split{OnDemand: 1}))
	})

	s.run("Deployment deleted, pods orphaned", func(s *scenario) {
		s.Deploy("orphan", 3, live.Annotated(minOnDemand, "2"))
		s.Eventually(soon, s.HasSplit("orphan", split{OnDemand: 2, Spot: 1}))
		orphan := metav1.DeletePropagationOrphan
		s.Must(client.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, "orphan", metav1.DeleteOptions{PropagationPolicy: &orphan}))
		var set appsv1.ReplicaSet
		s.Eventually(soon, func() error {
			sets, err := client.AppsV1().ReplicaSets(s.Namespace).List(s.Ctx, metav1.ListOptions{LabelSelector: "app=orphan"})
			if err != nil {
				return err
			}
			if set = sets.Items[0]; metav1.GetControllerOf(&set) != nil {
				return fmt.Errorf("still owned: %v", set.OwnerReferences)
			}
			return nil
		})
		// The ReplicaSet is now a workload by itself. The Deployment's annotations were copied to
		// it.
		_, err := client.AppsV1().ReplicaSets(s.Namespace).Patch(s.Ctx, set.Name, types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
		s.Must(err)
		s.Eventually(soon, s.HasSplit("orphan", split{OnDemand: 2, Spot: 3}))
	})

	s.run("DaemonSet", func(s *scenario) {
		s.AddNodes(lab.NodeSpec{Name: "leaving", Capacity: lab.Spot, Labels: map[string]string{"autoscaling.cast.ai/draining": "spot-interruption"}})
		template := live.PodTemplate("daemon")
		_, err := client.AppsV1().DaemonSets(s.Namespace).Create(s.Ctx, &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "daemon", Annotations: map[string]string{minOnDemand: "100%"}},
			Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		}, metav1.CreateOptions{})
		s.Must(err)
		s.Eventually(soon, s.HasSplit("daemon", split{OnDemand: 3, Spot: 4}))
	})
}

// unknownKind returns a controller of a kind that neither the scheduler nor the API server knows.
// The garbage collector deletes objects whose owner is missing, but it cannot check an owner of
// such a kind.
func unknownKind(kind string) metav1.OwnerReference {
	controller := true
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind, Name: "unknown", UID: types.UID("uid-of-" + kind), Controller: &controller}
}

func (s *scenario) replicaSet(name string, replicas int32, edits ...func(*appsv1.ReplicaSet)) {
	s.Helper()
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: live.PodTemplate(name),
		},
	}
	for _, edit := range edits {
		edit(rs)
	}
	_, err := client.AppsV1().ReplicaSets(s.Namespace).Create(s.Ctx, rs, metav1.CreateOptions{})
	s.Must(err)
}

// pod creates a pod of live.PodTemplate(app) without a controller object, modified by edits.
func (s *scenario) pod(app, name string, edits ...func(*v1.Pod)) {
	s.Helper()
	template := live.PodTemplate(app)
	pod := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = name
	for _, edit := range edits {
		edit(pod)
	}
	_, err := client.CoreV1().Pods(s.Namespace).Create(s.Ctx, pod, metav1.CreateOptions{})
	s.Must(err)
}

// barePod creates a pod without a controller.
func (s *scenario) barePod(name string, edits ...func(*v1.Pod)) { s.pod(name, name, edits...) }
