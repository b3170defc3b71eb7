//go:build long

package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// backup contains the objects of a namespace as Velero restores them.
type backup struct {
	pods        []v1.Pod
	replicaSets []appsv1.ReplicaSet
	deployments []appsv1.Deployment
	sets        []appsv1.StatefulSet
	jobs        []batchv1.Job
}

// TestLongRestore backs up eight workloads in the middle of moves, deletes them, and restores the
// pods before their owners. No pod is refused or deleted while it waits, and the floors are exact
// within two minutes.
func TestLongRestore(t *testing.T) {
	nodes := append(live.OnDemand(3, 6), live.Spot(3, 30)...)
	t.Run("kept", func(t *testing.T) { restore(startKept(t, nodes...).Scenario, v1.DefaultSchedulerName) })
	t.Run("ours", func(t *testing.T) {
		s := live.NewScenario(t, controlPlane, kube, nodes...)
		s.Watch()
		s.ApplyMode(live.AutoscalerMode)
		s.Audit(nil, audit.Options{})
		s.StartScheduler(lab.SchedulerOptions{})
		s.StartController(modeOn)
		restore(s, "spot-aware-scheduler")
	})
}

func restore(s *live.Scenario, scheduler string) {
	by := func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulerName = scheduler }
	floor := func(n string) func(*appsv1.Deployment) { return live.Annotated(minOnDemand, n) }
	s.Deploy("web", 8, by, floor("25%"))
	s.Deploy("single", 1, by)
	s.Deploy("spread", 6, by, floor("2"), live.SpreadOver(v1.LabelTopologyZone))
	s.Deploy("rollout", 4, by, floor("1"))
	s.Deploy("moving", 4, by, floor("0"))
	s.Deploy("fallen", 1, by, live.Annotated("spot-aware-scheduler.io/fallback-after", "10s"), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("8") // more than on-demand has
	})
	createSet(s, "db", scheduler)
	createJob(s, "job", scheduler)
	want := map[string]live.Split{
		"web": {OnDemand: 2, Spot: 6}, "single": {OnDemand: 1}, "spread": {OnDemand: 2, Spot: 4}, "rollout": {OnDemand: 1, Spot: 3}, "db": {OnDemand: 1, Spot: 2},
	}
	s.Eventually(time.Minute, s.HaveReadySplits(want))
	s.Eventually(time.Minute, s.HaveReadySplits(map[string]live.Split{"moving": {Spot: 4}, "fallen": {Spot: 1}}))

	// The new pod of the rollout waits for ever, and the controller stops after the release of a
	// pod.
	s.PatchDeployment("rollout", `{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}},"template":{"spec":{"nodeSelector":{"none":"none"}}}}}`)
	s.Eventually(soon, s.HasSplit("rollout", live.Split{OnDemand: 1, Spot: 3, Waiting: 1}))
	s.PatchDeployment("moving", fmt.Sprintf(`{"metadata":{"annotations":{%q:"2"}}}`, minOnDemand))
	s.Eventually(soon, func() error {
		if pods := s.Seen.Pods("moving"); !slices.ContainsFunc(pods, func(r live.PodRecord) bool { return len(r.Releases) > 0 }) {
			return errors.New("no pod has been released")
		}
		return nil
	})
	s.Must(s.Controller.Pause())
	b := readBackup(s)
	marked, released := map[string]int{}, map[string]int{}
	for _, pod := range b.pods {
		for _, mark := range marksOf(&pod) {
			marked[mark]++
			if mark == "label" {
				released[pod.Labels["app"]]++
			}
		}
	}
	s.Logf("backed up %d pods with the marks %v", len(b.pods), marked)
	for _, mark := range []string{"granted", "released", "assigned", "waiting-since", "label"} {
		if marked[mark] == 0 {
			s.Errorf("no pod has the mark %s", mark)
		}
	}
	s.Must(s.Controller.Resume())
	s.Must(live.Clear(s.Ctx, kube, s.Namespace))

	began := time.Now()
	b.create(s)
	want["moving"], want["rollout"] = live.Split{OnDemand: 2, Spot: 2}, live.Split{OnDemand: 1, Spot: 3, Waiting: 1}
	s.Eventually(2*time.Minute, s.HaveSplits(want))
	s.Logf("exact floors %s after the restore of %d pods began", time.Since(began).Round(100*time.Millisecond), len(b.pods))
	s.Eventually(soon, func() error {
		if s.Seen.Serving("fallen", nil) == 0 {
			return errors.New("the pod that fell back does not serve")
		}
		return nil
	})
	// A ReplicaSet adopts the copy of a released pod too, and deletes one pod that it has too many.
	deleted := map[string]int{}
	for _, record := range s.Seen.Pods("") {
		restored := slices.ContainsFunc(b.pods, func(pod v1.Pod) bool { return pod.Name == record.Name })
		if restored && record.Created.After(began) && record.Bound.IsZero() && !record.Left.IsZero() {
			deleted[record.App]++
		}
	}
	for app, n := range deleted {
		if n > released[app] {
			s.Errorf("%s: %d restored pods were deleted while they waited, want at most one for each of %d released pods", app, n, released[app])
		}
	}
	pods, err := live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	for _, pod := range pods {
		if grant := pod.Annotations["spot-aware-scheduler.io/granted"]; grant != "" && !strings.HasSuffix(grant, string(pod.UID)) {
			s.Errorf("pod %s has the grant of another pod: %q", pod.Name, grant)
		}
	}
}

// marksOf returns what the controller has written to a pod, as words.
func marksOf(pod *v1.Pod) (marks []string) {
	for _, mark := range []string{"granted", "released", "assigned", "waiting-since"} {
		if _, marked := pod.Annotations["spot-aware-scheduler.io/"+mark]; marked {
			marks = append(marks, mark)
		}
	}
	if pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "released" {
		marks = append(marks, "label")
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil || len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0) {
		marks = append(marks, "affinity")
	}
	return marks
}

// createSet creates a StatefulSet of three pods with volumes, and a floor of one.
func createSet(s *live.Scenario, name, scheduler string) {
	s.Helper()
	replicas, size := int32(3), v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	template, class := live.PodTemplate(name), ""
	template.Spec.SchedulerName = scheduler
	template.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	for i := range replicas {
		volume, err := kube.CoreV1().PersistentVolumes().Create(s.Ctx, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}, Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: s.Namespace, Name: fmt.Sprintf("data-%s-%d", name, i)},
			PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "none", Path: "/"}},
		}}, metav1.CreateOptions{})
		s.Must(err)
		s.BeforeClear = append(s.BeforeClear, func(ctx context.Context) error {
			return kube.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
		})
	}
	_, err := kube.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{minOnDemand: "1"}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: &class, Resources: v1.VolumeResourceRequirements{Requests: size},
			}}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// createJob creates a Job of two pods that do not end.
func createJob(s *live.Scenario, name, scheduler string) {
	s.Helper()
	template := live.PodTemplate(name)
	template.Spec.SchedulerName, template.Spec.RestartPolicy = scheduler, v1.RestartPolicyNever
	_, err := kube.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(2)), Template: template}}, metav1.CreateOptions{})
	s.Must(err)
}

// readBackup returns the live pods of the scenario's namespace and their owners, without what
// Velero removes.
func readBackup(s *live.Scenario) (b backup) {
	s.Helper()
	all := metav1.ListOptions{}
	var err error
	b.pods, err = live.Pods(s.Ctx, kube, s.Namespace, all)
	s.Must(err)
	sets, err := kube.AppsV1().ReplicaSets(s.Namespace).List(s.Ctx, all)
	s.Must(err)
	deployments, err := kube.AppsV1().Deployments(s.Namespace).List(s.Ctx, all)
	s.Must(err)
	stateful, err := kube.AppsV1().StatefulSets(s.Namespace).List(s.Ctx, all)
	s.Must(err)
	jobs, err := kube.BatchV1().Jobs(s.Namespace).List(s.Ctx, all)
	s.Must(err)
	b.replicaSets, b.deployments, b.sets, b.jobs = sets.Items, deployments.Items, stateful.Items, jobs.Items
	clean := func(m *metav1.ObjectMeta) {
		*m = metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations}
	}
	for i := range b.pods {
		pod := &b.pods[i]
		clean(&pod.ObjectMeta)
		pod.Spec.NodeName, pod.Spec.Priority, pod.Status = "", nil, v1.PodStatus{}
	}
	for i := range b.replicaSets {
		clean(&b.replicaSets[i].ObjectMeta)
	}
	for i := range b.deployments {
		clean(&b.deployments[i].ObjectMeta)
	}
	for i := range b.sets {
		clean(&b.sets[i].ObjectMeta)
	}
	for i := range b.jobs {
		job := &b.jobs[i]
		clean(&job.ObjectMeta)
		job.Spec.Selector = nil
		for _, labels := range []map[string]string{job.Labels, job.Spec.Template.Labels} {
			maps.DeleteFunc(labels, func(key, _ string) bool { return strings.Contains(key, "controller-uid") })
		}
	}
	return b
}

// create restores the objects, the pods first. It fails if a new pod has a mark.
func (b *backup) create(s *live.Scenario) {
	s.Helper()
	for _, pod := range b.pods {
		created, err := kube.CoreV1().Pods(s.Namespace).Create(s.Ctx, &pod, metav1.CreateOptions{})
		s.Must(err)
		if marks := marksOf(created); len(marks) > 0 || !live.Gated(created) {
			s.Errorf("pod %s has the marks %v of another life; gated: %v", pod.Name, marks, live.Gated(created))
		}
	}
	for _, set := range b.replicaSets {
		_, err := kube.AppsV1().ReplicaSets(s.Namespace).Create(s.Ctx, &set, metav1.CreateOptions{})
		s.Must(err)
	}
	for _, d := range b.deployments {
		_, err := kube.AppsV1().Deployments(s.Namespace).Create(s.Ctx, &d, metav1.CreateOptions{})
		s.Must(err)
	}
	for _, set := range b.sets {
		_, err := kube.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, &set, metav1.CreateOptions{})
		s.Must(err)
	}
	for _, job := range b.jobs {
		_, err := kube.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &job, metav1.CreateOptions{})
		s.Must(err)
	}
}
