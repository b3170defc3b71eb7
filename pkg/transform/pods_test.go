package transform

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"
)

func resources(cpu string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
}

// boundPod returns a bound pod with the fields that real pods have.
func boundPod(name string) *v1.Pod {
	volume := func(name string, source v1.VolumeSource) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: source}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
			Annotations:     map[string]string{"cni.projectcalico.org/podIP": name, "spot-aware-scheduler.io/min-on-demand": "2"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "web-1", Controller: new(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: v1.PodSpec{
			NodeName: "n", SchedulerName: "spot-aware-scheduler", PriorityClassName: "high", Priority: new(int32(7)),
			NodeSelector: map[string]string{"a": "b"}, Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}},
			Tolerations: []v1.Toleration{{Key: "t"}}, Overhead: resources("10m"), SecurityContext: &v1.PodSecurityContext{RunAsNonRoot: new(true)},
			InitContainers: []v1.Container{{Name: "init", Command: []string{"sh"}, Resources: v1.ResourceRequirements{Requests: resources("2")}}},
			Containers: []v1.Container{{
				Name: "web", Image: "web:1", Env: []v1.EnvVar{{Name: "A", Value: "b"}}, LivenessProbe: &v1.Probe{PeriodSeconds: 10},
				VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}, Ports: []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}},
				Resources: v1.ResourceRequirements{Requests: resources("1"), Limits: resources("3")},
			}},
			Volumes: []v1.Volume{
				volume("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}),
				volume("data", v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}),
				volume("token", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}),
				volume("disk", v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "v"}}),
			},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, StartTime: new(metav1.NewTime(created)), PodIP: "10.0.0.1", HostIP: "10.0.0.2",
			PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, HostIPs: []v1.HostIP{{IP: "10.0.0.2"}}, Message: "fine",
			Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue},
				{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "PreemptionByScheduler"}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "web", ContainerID: "containerd://x", AllocatedResources: resources("1000m"),
				Resources: &v1.ResourceRequirements{Requests: resources("1")}}},
		},
	}
}

func trimmedPod(t testing.TB, trimmer *PodTrimmer, pod *v1.Pod) *v1.Pod {
	t.Helper()
	before := pod.DeepCopy()
	trimmed, err := trimmer.Trim(pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the argument has changed (-before +after):\n%s", diff)
	}
	if again, err := trimmer.Trim(trimmed); again != trimmed || err != nil {
		t.Errorf("second call: another object, %v", err)
	}
	return trimmed.(*v1.Pod)
}

func TestTrimBoundPod(t *testing.T) {
	want := boundPod("p")
	want.ManagedFields = nil
	want.Annotations = map[string]string{"spot-aware-scheduler.io/min-on-demand": "2"}
	want.Spec.SecurityContext = nil
	want.Spec.InitContainers[0].Command = nil
	c := &want.Spec.Containers[0]
	c.Env, c.LivenessProbe, c.VolumeMounts = nil, nil, nil
	want.Spec.Volumes = []v1.Volume{want.Spec.Volumes[1], want.Spec.Volumes[3]}
	s := &want.Status
	s.PodIP, s.PodIPs, s.HostIP, s.HostIPs, s.Message, s.ContainerStatuses = "", nil, "", nil, "", nil
	s.Conditions = []v1.PodCondition{s.Conditions[0], s.Conditions[2]}
	if diff := cmp.Diff(want, trimmedPod(t, new(PodTrimmer), boundPod("p"))); diff != "" {
		t.Errorf("Trim (-want +got):\n%s", diff)
	}
}

// The controller also reads readiness, annotations and volumes.
func TestTrimMovedPod(t *testing.T) {
	pod := boundPod("p")
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	scheduler, controller := trimmedPod(t, new(PodTrimmer), pod), trimmedPod(t, NewMovedPodTrimmer(), pod)
	want := scheduler.DeepCopy()
	want.Annotations, want.Status.Conditions = pod.Annotations, pod.Status.Conditions
	want.Spec.Volumes = append(want.Spec.Volumes, pod.Spec.Volumes[4])
	if diff := cmp.Diff(want, controller); diff != "" {
		t.Errorf("Trim (-want +got):\n%s", diff)
	}
}

// Plugins and extenders receive a pending pod untrimmed.
func TestTrimPendingPod(t *testing.T) {
	pod := boundPod("p")
	pod.Spec.NodeName = ""
	want := pod.DeepCopy()
	want.ManagedFields = nil
	if diff := cmp.Diff(want, trimmedPod(t, new(PodTrimmer), pod)); diff != "" {
		t.Errorf("Trim (-want +got):\n%s", diff)
	}
}

// A trimmed pod requests as much as the whole pod, also while it is being resized.
func TestTrimmedPodsOccupyTheSame(t *testing.T) {
	quantities := rapid.SampledFrom([]string{"", "1", "1000m", "2", "3"})
	rapid.Check(t, func(t *rapid.T) {
		list := func(label string) v1.ResourceList {
			if q := quantities.Draw(t, label); q != "" {
				return resources(q)
			}
			return nil
		}
		pod := &v1.Pod{Spec: v1.PodSpec{NodeName: "n"}}
		container := func(name string) (v1.Container, []v1.ContainerStatus) {
			c := v1.Container{Name: name, Env: []v1.EnvVar{{Name: "A"}}, Resources: v1.ResourceRequirements{Requests: list("requests")}}
			if rapid.Bool().Draw(t, "without status") {
				return c, nil
			}
			s := v1.ContainerStatus{Name: name, AllocatedResources: list("allocated")}
			if rapid.Bool().Draw(t, "reports resources") {
				s.Resources = &v1.ResourceRequirements{Requests: list("actual")}
			}
			return c, []v1.ContainerStatus{s}
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "containers") {
			c, s := container(fmt.Sprint("c", i))
			pod.Spec.Containers, pod.Status.ContainerStatuses = append(pod.Spec.Containers, c), append(pod.Status.ContainerStatuses, s...)
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "init containers") {
			c, s := container(fmt.Sprint("i", i))
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			}
			pod.Spec.InitContainers, pod.Status.InitContainerStatuses = append(pod.Spec.InitContainers, c), append(pod.Status.InitContainerStatuses, s...)
		}
		if rapid.Bool().Draw(t, "infeasible") {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
		}
		trimmed, err := new(PodTrimmer).Trim(pod)
		if err != nil {
			t.Fatal(err)
		}
		options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
		want, got := resourcehelper.PodRequests(pod, options), resourcehelper.PodRequests(trimmed.(*v1.Pod), options)
		if !maps.EqualFunc(want, got, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }) {
			t.Fatalf("requests %v, want %v", got, want)
		}
	})
}

// Pods of one controller share equal parts. Sharing never changes a pod.
func TestPodsShareEqualParts(t *testing.T) {
	trimmer := new(PodTrimmer)
	first := trimmedPod(t, trimmer, boundPod("first"))
	second := trimmedPod(t, trimmer, boundPod("second"))
	if unsafe.SliceData(first.Spec.Containers) != unsafe.SliceData(second.Spec.Containers) {
		t.Error("equal containers are not shared")
	}
	// The writer of a pod chooses its controller reference. A forged reference must not change
	// other pods.
	changes := map[string]func(*v1.Pod){
		"labels":      func(p *v1.Pod) { p.Labels["app"] = "other" },
		"annotations": func(p *v1.Pod) { p.Annotations["spot-aware-scheduler.io/min-on-demand"] = "0" },
		"owners":      func(p *v1.Pod) { p.OwnerReferences[0].Name = "other" },
		"namespace":   func(p *v1.Pod) { p.Namespace = "other" },
		"requests":    func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = resources("9") },
		"notation":    func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = resources("1000m") },
		"ports":       func(p *v1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 9 },
		"volumes":     func(p *v1.Pod) { p.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "other" },
		"selector":    func(p *v1.Pod) { p.Spec.NodeSelector["a"] = "other" },
		"affinity":    func(p *v1.Pod) { p.Spec.Affinity = nil },
		"priority":    func(p *v1.Pod) { p.Spec.Priority = new(int32(9)) },
		"tolerations": func(p *v1.Pod) { p.Spec.Tolerations[0].Key = "other" },
		"conditions":  func(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionFalse },
		"scheduler":   func(p *v1.Pod) { p.Spec.SchedulerName = "other" },
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		pod := boundPod(name)
		changes[name](pod)
		alone, got := trimmedPod(t, new(PodTrimmer), pod), trimmedPod(t, trimmer, pod)
		if !reflect.DeepEqual(alone, got) {
			t.Errorf("other %s: got %+v, want %+v", name, got, alone)
		}
	}
	if diff := cmp.Diff(trimmedPod(t, new(PodTrimmer), boundPod("first")), first); diff != "" {
		t.Errorf("the first pod has changed (-before +after):\n%s", diff)
	}
}

// The trimmer forgets controllers without pods. The creator of a pod chooses the length of their
// UIDs.
func TestPodTrimmerForgets(t *testing.T) {
	trimmer, long := new(PodTrimmer), strings.Repeat("u", 10_000)
	before := heap()
	for i := range 20 * minSweep {
		pod := boundPod("p")
		pod.OwnerReferences[0].UID = types.UID(fmt.Sprint(long, i))
		if _, err := trimmer.Trim(pod); err != nil {
			t.Fatal(err)
		}
		if i%minSweep == 0 {
			runtime.GC()
		}
	}
	if n := len(trimmer.controllers.objects); n > 5*minSweep {
		t.Errorf("%d controllers without pods are remembered", n)
	}
	if grown := int64(heap() - before); grown > 1<<20 {
		t.Errorf("controllers without pods use %d bytes", grown)
	}
	runtime.KeepAlive(trimmer)
}

// TestFailedPod: of a failed pod only the fields remain that identify it, its owners and the reason
// of its end, and that rules match.
func TestFailedPod(t *testing.T) {
	pod := boundPod("web-0")
	pod.Status.Phase = v1.PodFailed
	want := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", UID: "web-0", Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
			Annotations: map[string]string{"spot-aware-scheduler.io/min-on-demand": "2"}, CreationTimestamp: pod.CreationTimestamp,
		},
		Spec: v1.PodSpec{SchedulerName: "spot-aware-scheduler", PriorityClassName: "high", Priority: new(int32(7))},
		Status: v1.PodStatus{Phase: v1.PodFailed, QOSClass: v1.PodQOSBurstable, Conditions: []v1.PodCondition{
			{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "PreemptionByScheduler"},
		}},
	}
	for range 2 { // an informer trims some objects twice
		trimmed, err := FailedPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, trimmed); diff != "" {
			t.Fatalf("trimmed (-want +got):\n%s", diff)
		}
		pod = trimmed.(*v1.Pod)
	}
}
