package lister_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// setOf returns a StatefulSet with this pod specification.
func setOf(name string, replicas int32, spec v1.PodSpec) *appsv1.StatefulSet {
	spec.SchedulerName = "spot-aware-scheduler"
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Template: v1.PodTemplateSpec{Spec: spec}}}
}

// jobOf returns a Job with a condition, or an active Job without one.
func jobOf(name string, condition batchv1.JobConditionType) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	job.Spec.Template.Spec.SchedulerName = "spot-aware-scheduler"
	if condition != "" {
		job.Status.Conditions = []batchv1.JobCondition{
			{Type: "Other", Status: v1.ConditionFalse}, {Type: condition, Status: v1.ConditionTrue}}
	}
	return job
}

func TestTemplatePods(t *testing.T) {
	for name, test := range map[string]struct {
		scope lister.Scope
		want  []string
	}{
		"replicas wanted":       {lister.Scope{}, []string{"db-0", "report-0"}},
		"including scaled to 0": {lister.Scope{IncludeScaledToZero: true}, []string{"db-0", "idle-0", "report-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := listertest.Start(t, setOf("idle", 0, v1.PodSpec{}), setOf("db", 1, v1.PodSpec{}), jobOf("report", ""),
				jobOf("done", batchv1.JobComplete), jobOf("failed", batchv1.JobFailed), jobOf("suspended", batchv1.JobSuspended))
			var got []string
			for _, pod := range templatePods(t, server, test.scope) {
				got = append(got, pod.Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func templatePods(t *testing.T, server *listertest.Server, scope lister.Scope) []*v1.Pod {
	t.Helper()
	listed, err := lister.List(t.Context(), server.Client(), scope)
	if err != nil {
		t.Fatal(err)
	}
	return listed.TemplatePods()
}

// TestWantedQOS: the QoS classes equal the classes that the API server computes with its own
// defaults and rules.
func TestTemplatePodQOS(t *testing.T) {
	list := func(amounts ...string) v1.ResourceList {
		list := v1.ResourceList{}
		for i, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}[:len(amounts)] {
			if amounts[i] != "" {
				list[name] = resource.MustParse(amounts[i])
			}
		}
		return list
	}
	container := func(requests, limits v1.ResourceList) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	specOf := func(containers ...v1.Container) v1.PodSpec { return v1.PodSpec{Containers: containers} }
	whole := func(requests, limits v1.ResourceList, containers ...v1.Container) v1.PodSpec {
		return v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: requests, Limits: limits}, Containers: containers}
	}
	full := container(list("1", "1Gi"), list("1", "1Gi"))
	for name, test := range map[string]struct {
		spec v1.PodSpec
		want v1.PodQOSClass
	}{
		"nothing":                                {specOf(v1.Container{}), v1.PodQOSBestEffort},
		"other resources, and zero CPU":          {specOf(container(list("0", "", "1Gi"), list("", "", "1Gi"))), v1.PodQOSBestEffort},
		"a request":                              {specOf(container(list("1"), nil)), v1.PodQOSBurstable},
		"a limit of one resource":                {specOf(container(nil, list("1"))), v1.PodQOSBurstable},
		"limits":                                 {specOf(container(nil, list("1", "1Gi"))), v1.PodQOSGuaranteed},
		"requests as limits":                     {specOf(full), v1.PodQOSGuaranteed},
		"requests as limits, in other units":     {specOf(container(list("1000m", "1024Mi"), list("1", "1Gi"))), v1.PodQOSGuaranteed},
		"lower requests":                         {specOf(container(list("1", "1Mi"), list("1", "1Gi"))), v1.PodQOSBurstable},
		"a container without resources":          {specOf(full, v1.Container{}), v1.PodQOSBurstable},
		"an init container without resources":    {v1.PodSpec{InitContainers: []v1.Container{{}}, Containers: []v1.Container{full}}, v1.PodQOSBurstable},
		"pod-level resources":                    {whole(list("1", "1Gi"), list("1", "1Gi"), v1.Container{}), v1.PodQOSGuaranteed},
		"pod-level limits":                       {whole(nil, list("2", "1Gi"), v1.Container{}), v1.PodQOSGuaranteed},
		"empty pod-level resources":              {whole(nil, nil, full), v1.PodQOSBestEffort},
		"pod-level limits above the containers'": {whole(nil, list("4", "4Gi"), full, full), v1.PodQOSBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			pods := templatePods(t, listertest.Start(t, setOf("db", 1, test.spec)), lister.Scope{})
			if got := pods[0].Status.QOSClass; got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			admitted := &v1.Pod{Spec: *test.spec.DeepCopy()}
			corev1.SetObjectDefaults_Pod(admitted)
			if class := qos.ComputePodQOS(admitted); class != test.want {
				t.Errorf("the API server computes %s, want %s", class, test.want)
			}
		})
	}
}

func TestTemplatePodPriority(t *testing.T) {
	class := func(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
	}
	classes := []runtime.Object{class("high", 100, false), class("normal", 10, true), class("usual", 20, true)}
	for name, test := range map[string]struct {
		class   string
		classes []runtime.Object
		denied  string
		want    string
		gap     bool
	}{
		"its class":       {class: "high", classes: classes, want: `"high" 100`},
		"the default":     {classes: classes, want: `"normal" 10`},
		"no default":      {classes: classes[:1], want: `"" 0`},
		"no such class":   {class: "other", classes: classes, want: `"other" 0`},
		"classes unknown": {class: "high", classes: classes, denied: "priorityclasses", want: `"high" 0`, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := listertest.Start(t, append([]runtime.Object{setOf("db", 1, v1.PodSpec{PriorityClassName: test.class})}, test.classes...)...)
			server.Deny = []string{test.denied}
			listed, err := lister.List(t.Context(), server.Client(), lister.Scope{Namespace: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			pods := listed.TemplatePods()
			if got := fmt.Sprintf("%q %d", pods[0].Spec.PriorityClassName, ptr.Deref(pods[0].Spec.Priority, 0)); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if (listed.GapOf("PriorityClass") != nil) != test.gap || len(listed.Gaps) > 0 {
				t.Errorf("gap %v, other gaps %v, want a gap: %t, and no other gaps", listed.GapOf("PriorityClass"), listed.Gaps, test.gap)
			}
		})
	}
}
