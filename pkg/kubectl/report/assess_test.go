package report_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

// assessedView returns a cluster as assess reads it.
func assessedView(t *testing.T, cluster string, edit func(runtime.Object), more ...runtime.Object) *report.View {
	t.Helper()
	objects := append(clustertest.Objects(cluster), more...)
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok && pod.Spec.SchedulerName == clustertest.Profile {
			pod.Spec.SchedulerName = v1.DefaultSchedulerName
		}
		if edit != nil {
			edit(object)
		}
	}
	listed, err := lister.List(t.Context(), listertest.Start(t, objects...).Client(), lister.Scope{Volumes: true, DisruptionBudgets: true})
	if err != nil {
		t.Fatal(err)
	}
	return viewOf(t, listed, basic())
}

// assess assesses a cluster whose pods name the default scheduler, unless their line has a profile.
func assess(t *testing.T, cluster string, edit func(runtime.Object), more ...runtime.Object) *report.Assessment {
	t.Helper()
	list, err := pricing.Read([]byte("instanceType,zone,spot,onDemand\nm,,0.4,1\nodonly,,,1\n"), "prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	return assessedView(t, cluster, edit, more...).Assess(list, false)
}

// editPods returns an edit of all pods.
func editPods(edit func(*v1.Pod)) func(runtime.Object) {
	return func(object runtime.Object) {
		if pod, ok := object.(*v1.Pod); ok {
			edit(pod)
		}
	}
}

func hostPath(pod *v1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}})
}

func maxUnavailable(app, value string) *policyv1.PodDisruptionBudget {
	budget := clustertest.NewBudget(app, 0)
	budget.Name = app + "-max"
	budget.Spec.MinAvailable, budget.Spec.MaxUnavailable = nil, new(intstr.Parse(value))
	return budget
}

// controlled returns an edit that sets the controller of objects of a kind.
func controlled[T metav1.Object](by metav1.OwnerReference) func(runtime.Object) {
	return func(object runtime.Object) {
		if owner, ok := object.(T); ok {
			owner.SetOwnerReferences([]metav1.OwnerReference{by})
		}
	}
}

// Every class, with its reason or change.
func TestAssessClasses(t *testing.T) {
	const nodes = "node od on-demand m/a\nnode sp spot m/a\n"
	budget := clustertest.NewBudget("web", 1)
	unhealthy := clustertest.NewBudget("web", 2)
	unhealthy.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, CurrentHealthy: 2, DesiredHealthy: 2}
	for name, test := range map[string]struct {
		cluster string
		edit    func(runtime.Object)
		more    []runtime.Object
		class   report.Class
		why     string
		floor   int
		patch   string // the kind, or - if the command is to wait for a change
	}{
		"ready":         {"deployment web 3 od od od", nil, []runtime.Object{budget}, report.ReadyForSpot, "", 1, "deployment"},
		"its own floor": {"deployment web 4 od od od od min=50%", nil, []runtime.Object{budget}, report.ReadyForSpot, "", 2, "deployment"},
		"no budget":     {"deployment web 3 od od od", nil, nil, report.NeedsChange, "add a PodDisruptionBudget", 1, "-deployment"},
		"protected by the controller": {"deployment web 3 od od od", editPods(func(pod *v1.Pod) {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, spot.ProtectAnnotation, "true")
		}), nil, report.ReadyForSpot, "", 1, "deployment"},
		"stateful":                          {"statefulset web 3 od od od", nil, []runtime.Object{budget}, report.ReadyForSpot, "", 1, "statefulset"},
		"a single replica":                  {"deployment web 1 sp", nil, nil, report.StaysOnDemand, "", 1, "deployment"},
		"a single replica on on-demand":     {"deployment web 1 od", nil, nil, report.StaysOnDemand, "at your next rollout", 1, ""},
		"a single replica with a budget":    {"deployment web 1 sp", nil, []runtime.Object{budget}, report.StaysOnDemand, "", 1, "deployment"},
		"a single replica that may be lost": {"deployment web 1 od min=0", nil, nil, report.ReadyForSpot, "", 0, "deployment"},
		"a budget that allows nothing now":  {"deployment web 3 od od od", nil, []runtime.Object{unhealthy}, report.NeedsChange, "allows no eviction now: 2 of 3 pods are healthy", 2, "-deployment"},
		"two budgets":                       {"deployment web 3 od od od", nil, []runtime.Object{budget, maxUnavailable("web", "1")}, report.NeedsChange, "keep one of its 2 PodDisruptionBudgets", 2, "-deployment"},
		"requires on-demand":                {"deployment web 3 od od od only=on-demand", nil, []runtime.Object{budget}, report.NeedsChange, "admits only on-demand nodes", 1, "-deployment"},
		"requires spot":                     {"deployment web 3 sp sp sp only=spot", nil, []runtime.Object{budget}, report.NeedsChange, "that contradicts the floor", 1, "-deployment"},
		"fits no spot node":                 {"deployment web 3 od od od cpu=9", nil, []runtime.Object{budget}, report.NeedsChange, "fit no spot node. On sp: insufficient cpu", 1, "-deployment"},
		"another scheduler":                 {"deployment web 3 od od od profile=volcano", nil, []runtime.Object{budget}, report.NotForSpot, "name the scheduler volcano, which only --mode keep-scheduler keeps", 1, ""},
		"data on nodes":                     {"deployment web 3 od od od", editPods(hostPath), []runtime.Object{budget}, report.NeedsChange, "hostPath volume data may be lost", 1, "-deployment"},
		"a Job":                             {"job web 3 od od od", nil, nil, report.NeedsChange, "create the Job again", 0, ""},
		"a CronJob":                         {"job web 3 od od od", controlled[*batchv1.Job](clustertest.OwnedBy("batch/v1/CronJob", "nightly")), nil, report.ReadyForSpot, "", 0, "cronjob"},
		"an operator": {"statefulset web 3 od od od", controlled[*appsv1.StatefulSet](clustertest.OwnedBy("example.com/v1/Database", "db")),
			[]runtime.Object{budget}, report.NeedsChange, "set schedulerName in Database db, which controls it", 1, ""},
		"an unknown kind": {"pod web-1 od owner=CloneSet/web\npod web-2 od owner=CloneSet/web", nil, []runtime.Object{budget}, report.NeedsChange, "in the pod template of CloneSet web", 1, ""},

		"opted in":                   {"deployment web 3 od od od", editPods(func(pod *v1.Pod) { pod.Spec.SchedulerName = clustertest.Profile }), []runtime.Object{budget}, report.OptedIn, "", 1, ""},
		"a node autoscaler":          {"deployment x-aws-cluster-autoscaler 1 od", nil, nil, report.Infrastructure, "", 1, ""},
		"this scheduler":             {"deployment spot-aware-scheduler 2 od od", nil, nil, report.Infrastructure, "", 1, ""},
		"another scheduler's pods":   {"deployment web 1 od", editPods(func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "docker.io/volcanosh/volcano-scheduler:v1@sha256:0" }), nil, report.Infrastructure, "", 1, ""},
		"a label of an autoscaler":   {"deployment web 1 od", editPods(func(pod *v1.Pod) { pod.Labels["app.kubernetes.io/name"] = "karpenter" }), nil, report.Infrastructure, "", 1, ""},
		"a critical component":       {"deployment dns 2 od od class=system-cluster-critical", nil, nil, report.Infrastructure, "", 1, ""},
		"an app with a similar name": {"deployment airflow-scheduler 1 sp", nil, nil, report.StaysOnDemand, "", 1, "deployment"},
		"do not disrupt":             {"deployment web 3 od od od", editPods(func(pod *v1.Pod) { pod.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"} }), []runtime.Object{budget}, report.NeedsChange, "asks not to disrupt", 1, "-deployment"},
		"one pod is not safe": {"deployment web 3 od od od", editPods(func(pod *v1.Pod) {
			if pod.Name == "web-2" {
				pod.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
			}
		}), []runtime.Object{budget}, report.NeedsChange, "asks not to disrupt", 1, "-deployment"},
		"a long grace period":     {"deployment web 3 od od od", editPods(func(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(7200)) }), []runtime.Object{budget}, report.NeedsChange, "its grace period of 2h0m0s", 1, "-deployment"},
		"fewer pods than desired": {"deployment web 3 od od", nil, []runtime.Object{budget}, report.NotChecked, "2 of its 3 pods are known", 1, ""},
		"an unknown claim": {"statefulset web 2 od od", editPods(func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}}}}
		}), []runtime.Object{budget}, report.NotChecked, "whether its data is on one node", 1, ""},

		"a bare pod":                   {"pod web-1 od", nil, nil, report.NotForSpot, "no controller creates the pod again", 1, ""},
		"a single replica with a path": {"deployment web 1 od", editPods(hostPath), nil, report.NotForSpot, "hostPath volume data", 1, ""},
		"a budget that blocks":         {"deployment web 3 od od od", nil, []runtime.Object{maxUnavailable("web", "0")}, report.NeedsChange, "blocks every eviction: maxUnavailable 0 of 3", 3, "-deployment"},
		"a budget of all":              {"deployment web 3 od od od", nil, []runtime.Object{clustertest.NewBudget("web", 3)}, report.NeedsChange, "blocks every eviction: minAvailable 3 of 3", 3, "-deployment"},
		"a floor of all":               {"deployment web 3 od od sp min=100%", nil, []runtime.Object{budget}, report.StaysOnDemand, "", 3, "deployment"},
		"a Job that does not retry": {"job web 1 od", func(object runtime.Object) {
			if job, ok := object.(*batchv1.Job); ok {
				job.Spec.BackoffLimit = new(int32(0))
			}
		}, nil, report.NotForSpot, "the Job fails if it loses a pod", 1, ""},
		"a Job that its controller may restart": {"job web 1 od by=jobset.x-k8s.io/v1alpha2/JobSet/train", func(object runtime.Object) {
			if job, ok := object.(*batchv1.Job); ok {
				job.Spec.BackoffLimit = new(int32(0))
			}
		}, nil, report.NotChecked, "unknown whether its controller starts it again", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := assess(t, nodes+test.cluster, test.edit, test.more...)
			if len(a.Workloads) != 1 {
				t.Fatalf("%d workloads, want 1: %+v", len(a.Workloads), a.Workloads)
			}
			w := a.Workloads[0]
			patch := ""
			if w.Patch != nil {
				if patch = w.Patch.Kind; w.Class == report.NeedsChange {
					patch = "-" + patch
				}
			}
			if why := strings.Join(w.Reasons, "; "); w.Class != test.class || !strings.Contains(why, test.why) || test.why == "" && why != "" ||
				w.Floor != test.floor || patch != test.patch {
				t.Errorf("%s %q floor %d patch %q, want %s %q floor %d patch %q", w.Class, why, w.Floor, patch, test.class, test.why, test.floor, test.patch)
			}
		})
	}
}

// A volume that is local to a node keeps every replica there.
func TestAssessLocalVolume(t *testing.T) {
	a := assess(t, "node od on-demand m/a\nnode sp spot m/a\nstatefulset web 2 od od volume=a", func(object runtime.Object) {
		if volume, ok := object.(*v1.PersistentVolume); ok {
			volume.Spec.Local = &v1.LocalVolumeSource{Path: "/disk"}
		}
		if pod, ok := object.(*v1.Pod); ok {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}
	}, clustertest.NewBudget("web", 1))
	if w := a.Workloads[0]; w.Class != report.NotForSpot || !strings.Contains(w.Reasons[0], "PersistentVolume") || w.Patch != nil || report.OptionalCount(w.WithoutSpotThen) != "2" {
		t.Errorf("%s %v, patch %v, %v left", w.Class, w.Reasons, w.Patch, report.OptionalCount(w.WithoutSpotThen))
	}
}

// The first ordinals of a StatefulSet need on-demand, and the others spot, where their volumes are.
func TestAssessOrdinals(t *testing.T) {
	for zone, want := range map[string]report.Class{"a": report.NeedsChange, "b": report.ReadyForSpot} {
		a := assess(t, "node od on-demand m/a\nnode sp spot m/b\nstatefulset web 2 od sp volume=a", func(object runtime.Object) {
			if volume, ok := object.(*v1.PersistentVolume); ok && volume.Name == "pv-web-1" {
				volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{zone}
			}
		}, clustertest.NewBudget("web", 1))
		if w := a.Workloads[0]; w.Class != want {
			t.Errorf("volume of ordinal 1 in zone %s: %s %q, want %s", zone, w.Class, w.Reasons, want)
		}
	}
}

// The pods of kube-system, DaemonSets and static pods are no workloads to assess.
func TestAssessOmits(t *testing.T) {
	a := assess(t, "node od on-demand m/a\ndaemonset agent od\ndeployment web 2 od od\ndeployment idle 0\npod lost od owner=ReplicaSet/gone", func(object runtime.Object) {
		if pod, ok := object.(*v1.Pod); ok && strings.HasPrefix(pod.Name, "web") {
			pod.Namespace, pod.OwnerReferences = metav1.NamespaceSystem, nil
		}
	})
	if len(a.Workloads) != 0 || a.UnknownOwners != 1 {
		t.Errorf("%+v", a)
	}
}

// Ready replicas that a loss of all spot leaves, and costs. The nodes cost 1 on on-demand and 0.4
// on spot. Each pod requests a quarter of its node.
func TestAssessNumbers(t *testing.T) {
	a := assess(t, `
		node od on-demand m/a
		node sp spot m/a
		node nolist on-demand x/a
		node nospot on-demand odonly/a
		deployment web 4 od od od sp
		deployment onspot 2 sp sp
		deployment single 1 sp
		deployment unknown 2 od nolist
		deployment alone 1 nolist
		deployment nospotprice 2 nospot nospot
		statefulset db 2 sp od
		job sum 1 sp
		pod bare sp`, editPods(func(pod *v1.Pod) {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		if pod.Name == "web-0" {
			pod.Status.Conditions = nil
		}
	}))
	got := map[string]string{}
	for _, w := range a.Workloads {
		got[w.Name] = fmt.Sprintf("%d ready, %s then %s left, %s then %s", w.Ready, report.OptionalCount(w.WithoutSpot), report.OptionalCount(w.WithoutSpotThen), report.OptionalDollars(w.Now), report.OptionalDollars(w.Then))
	}
	const quarter = report.HoursPerMonth / 4.0
	want := map[string]string{
		"web":         fmt.Sprintf("3 ready, 2 then 1 left, %.2f then %.2f", quarter*3.4, quarter*2.2),
		"onspot":      fmt.Sprintf("2 ready, 0 then 1 left, %.2f then %.2f", quarter*0.8, quarter*1.4),
		"single":      fmt.Sprintf("1 ready, 0 then 1 left, %.2f then %.2f", quarter*0.4, quarter*1.0),
		"unknown":     "2 ready, 2 then 1 left, unknown then unknown",
		"alone":       "1 ready, 1 then 1 left, unknown then unknown",
		"nospotprice": "2 ready, 2 then 1 left, unknown then unknown",
		"db":          fmt.Sprintf("2 ready, 1 then 1 left, %.2f then %.2f", quarter*1.4, quarter*1.4),
		"sum":         fmt.Sprintf("1 ready, 0 then 0 left, %.2f then %.2f", quarter*0.4, quarter*0.4),
		"bare":        fmt.Sprintf("1 ready, 0 then 0 left, %.2f then %.2f", quarter*0.4, quarter*0.4),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a.UnknownCosts != 3 || a.Outages != 3 || a.OutagesThen != 1 || a.SpotNodes != 1 || a.OnDemandNodes != 3 || a.Unpriced["x/a"] != 1 {
		t.Errorf("%+v", a)
	}
	if now, then := report.OptionalDollars(a.Now), report.OptionalDollars(a.Then); now != fmt.Sprintf("%.2f", quarter*6.8) || then != fmt.Sprintf("%.2f", quarter*6.8) {
		t.Errorf("%s then %s", now, then)
	}
}

// What is not known is not 0.
func TestAssessUnknown(t *testing.T) {
	a := assess(t, "node od on-demand x/a\nnode gone spot m/a\ndeployment web 3 od gone gone", func(object runtime.Object) {
		switch o := object.(type) {
		case *v1.Node:
			if o.Name == "gone" {
				o.Name = "other"
			}
		case *v1.Pod:
			o.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}
	})
	w := a.Workloads[0]
	if w.Ready != 3 || w.UnknownNodes != 2 || w.WithoutSpot != nil || w.Now != nil || a.Now != nil || a.UnknownOutages != 1 || a.Outages != 0 {
		t.Errorf("%+v\n%+v", w, a)
	}
	free := assess(t, "node od on-demand m/a\ndeployment web 1 od", editPods(func(pod *v1.Pod) { pod.Spec.Containers[0].Resources = v1.ResourceRequirements{} }))
	if free.Now != nil || free.UnknownCosts != 1 {
		t.Errorf("pods without requests cost %v", report.OptionalDollars(free.Now))
	}
	gpus := assess(t, "node od on-demand m/a\ndeployment web 1 od", func(object runtime.Object) {
		switch o := object.(type) {
		case *v1.Node:
			o.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("2")
		case *v1.Pod:
			o.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
		}
	})
	if got, want := report.OptionalDollars(gpus.Now), fmt.Sprintf("%.2f", report.HoursPerMonth/2.0); got != want {
		t.Errorf("a pod with half of the GPUs costs %s, want %s", got, want)
	}
}

// Without spot nodes, a pool to come decides.
func TestAssessSpotPool(t *testing.T) {
	for pool, want := range map[string]report.Class{
		"":                                       report.NotChecked,
		"instanceType=m":                         report.ReadyForSpot,
		"instanceType=m,taint=spot:NoSchedule":   report.NeedsChange,
		"instanceType=small,cpu=500m,memory=1Gi": report.NeedsChange,
		"instanceType=large,cpu=64,memory=256Gi,zone=b,label=a=b": report.ReadyForSpot,
	} {
		view := assessedView(t, "node od on-demand m/a\ndeployment web 3 od od od", nil, clustertest.NewBudget("web", 1))
		if pool != "" {
			node, err := view.NewSpotPool(pool)
			if err != nil {
				t.Fatal(err)
			}
			view.SpotPools = append(view.SpotPools, node)
		}
		if w := view.Assess(pricing.BuiltIn(), false).Workloads[0]; w.Class != want {
			t.Errorf("%q: %s %q, want %s", pool, w.Class, w.Reasons, want)
		}
	}
	view := assessedView(t, "node od on-demand m/a", nil)
	for text, want := range map[string]string{
		"":                                 "has no value",
		"zone=a":                           "it has no instanceType",
		"instanceType=x":                   "the size of x is unknown: add cpu and memory",
		"instanceType=x,cpu=1":             "the size of x is unknown: add cpu and memory",
		"instanceType=m,cpu=many,memory=1": `cpu "many": quantities must match`,
		"instanceType=m,taint=a=b":         "expected KEY[=VALUE]:NoSchedule",
		"instanceType=m,size=4":            `unknown field "size"`,
	} {
		if _, err := view.NewSpotPool(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A second replica is an offer with a price, unless something indicates that only one may run.
func TestAssessOffers(t *testing.T) {
	quorum := clustertest.NewBudget("web", 1)
	quorum.Spec.MinAvailable = new(intstr.FromInt32(2))
	const quarter = report.HoursPerMonth / 4.0
	for name, test := range map[string]struct {
		cluster string
		edit    func(runtime.Object)
		more    []runtime.Object
		want    string
		effect  report.LossEffect
	}{
		"a single replica":  {"deployment web 1 od", nil, nil, fmt.Sprintf("a second replica, on spot, if it may run twice at a time: may it? (%.2f USD a month)", quarter*0.4), report.LossKeepsFloor},
		"a single database": {"statefulset web 1 od", nil, nil, "", report.LossKeepsFloor},
		"Recreate": {"deployment web 1 od", func(object runtime.Object) {
			if d, ok := object.(*appsv1.Deployment); ok {
				d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
			}
		}, nil, "", report.LossKeepsFloor},
		"an operator":                 {"deployment strimzi-cluster-operator 1 od", nil, nil, "", report.LossKeepsFloor},
		"a component":                 {"deployment web 1 od", editPods(func(pod *v1.Pod) { pod.Labels["app.kubernetes.io/component"] = "controller-manager" }), nil, "", report.LossKeepsFloor},
		"a database without a volume": {"deployment web 1 od", editPods(func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "docker.io/library/postgres:17" }), nil, "", report.LossKeepsFloor},
		"an ephemeral volume": {"deployment web 1 od", editPods(func(pod *v1.Pod) {
			pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
		}), nil, "", report.LossKeepsFloor},
		"no surge": {"deployment web 1 od", func(object runtime.Object) {
			if d, ok := object.(*appsv1.Deployment); ok {
				d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("0%"))}
			}
		}, nil, "", report.LossKeepsFloor},
		"a surge": {"deployment web 1 od", func(object runtime.Object) {
			if d, ok := object.(*appsv1.Deployment); ok {
				d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("25%"))}
			}
		}, nil, "a second replica", report.LossKeepsFloor},
		"a quorum":          {"statefulset web 3 od od od", nil, []runtime.Object{quorum}, "", report.LossKeepsFloor},
		"a floor as budget": {"statefulset web 3 od od od min=2", nil, []runtime.Object{quorum}, "", report.LossKeepsFloor},
		"the floor 0":       {"deployment web 2 sp sp min=0", nil, nil, "", report.LossToZeroAllowed},
		"no floor":          {"pod web sp", nil, nil, "", report.LossToZero},
		"opted in":          {"deployment web 3 od od od profile=spot-aware-scheduler", editPods(func(pod *v1.Pod) { pod.Spec.SchedulerName = clustertest.Profile }), []runtime.Object{quorum}, "", report.LossBelowDisruptionBudget},
	} {
		t.Run(name, func(t *testing.T) {
			w := assess(t, "node od on-demand m/a\nnode od2 on-demand m/a\nnode sp spot m/a\n"+test.cluster, test.edit, test.more...).Workloads[0]
			got := ""
			for _, offer := range w.Offers {
				got += offer.String()
			}
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" || w.EffectThen != test.effect {
				t.Errorf("offers %q, effect %s; want %q, %s", got, w.EffectThen, test.want, test.effect)
			}
		})
	}
}

// A patch sets only the scheduler, or the label, and a floor that the budget of 1 requires.
func TestAssessPatches(t *testing.T) {
	for cluster, want := range map[string]string{
		"deployment web 3 od od od min=0": `{"metadata":{"annotations":{"spot-aware-scheduler.io/min-on-demand":"1"}},"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}`,
		"deployment web 3 od od od":       `{"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}`,
		"statefulset web 3 od od od":      `{"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}`,
		"job web 3 od od od":              `{"spec":{"jobTemplate":{"metadata":{"annotations":{"spot-aware-scheduler.io/min-on-demand":"1"}},"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}}}`,
	} {
		a := assess(t, "node od on-demand m/a\nnode sp spot m/a\n"+cluster, controlled[*batchv1.Job](clustertest.OwnedBy("batch/v1/CronJob", "nightly")),
			clustertest.NewBudget("web", 1))
		if patch := a.Workloads[0].Patch; patch == nil || string(patch.Patch) != want || !json.Valid(patch.Patch) {
			t.Errorf("%s: %+v, want %s", cluster, patch, want)
		}
		view := assessedView(t, "node od on-demand m/a\nnode sp spot m/a\n"+cluster, controlled[*batchv1.Job](clustertest.OwnedBy("batch/v1/CronJob", "nightly")),
			clustertest.NewBudget("web", 1))
		view.Mode = report.ModeKeepScheduler
		want = strings.Replace(want, `{"spec":{"schedulerName":"spot-aware-scheduler"}}`, `{"metadata":{"labels":{"spot-aware-scheduler.io/opt-in":"keep-scheduler"}}}`, 1)
		if patch := view.Assess(pricing.BuiltIn(), false).Workloads[0].Patch; patch == nil || string(patch.Patch) != want || !json.Valid(patch.Patch) {
			t.Errorf("keep-scheduler, %s: %+v, want %s", cluster, patch, want)
		}
	}
}

// The page needs no network, and texts of tenants are escaped.
func TestAssessmentHTML(t *testing.T) {
	a := assess(t, "node od on-demand m/a\nnode sp spot m/a\ndeployment web 3 od od od\npod web-1 od owner=CloneSet/x\npod bare sp", editPods(func(pod *v1.Pod) {
		if pod.Name == "web-1" {
			pod.Spec.SchedulerName = "<script>alert(1)</script>"
		}
	}))
	page, err := a.HTML("<the> policy", []string{"<b>gap"}, clustertest.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"&lt;script&gt;", "&lt;the&gt; policy", "&lt;b&gt;gap", "shop: deployment/web", "Should not run on spot", "1 March 2026",
		`<td class="why" data-label="reason">no controller creates the pod again`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, never := range []string{"<script", "http://", "https://", "<b>gap", "src=", "url("} {
		if strings.Contains(string(page), never) {
			t.Errorf("the page contains %q", never)
		}
	}
}

// Less input never gives a workload a better class, and never a command that is not a comment.
func TestAssessLess(t *testing.T) {
	quorum := clustertest.NewBudget("quorum", 1)
	quorum.Spec.MinAvailable = new(intstr.FromInt32(2))
	objects := append(clustertest.Objects(`
		node od on-demand m/a
		node od2 on-demand m/b label=disk=ssd
		node sp spot m/a
		node sp2 spot small/b cpu=1 label=disk=ssd
		node tainted spot m/b taint=example.com/team
		deployment web 3 od od2 sp
		deployment blocked 3 od od2 sp
		deployment none 3 od od2 sp
		deployment single 1 od
		deployment path 1 od
		deployment large 2 od od2 cpu=2
		deployment ssd 2 od2 od2 requires=disk=ssd
		deployment kept 2 od od
		deployment volcano-scheduler 1 od
		deployment old 4 od od sp sp old=2
		deployment ours 2 od sp profile=spot-aware-scheduler
		statefulset quorum 3 od od2 sp
		statefulset local 3 od od od volume=a
		statefulset data 3 od od od volume=a
		job sum 2 sp sp
		pod bare od
		pod clone-1 od owner=CloneSet/clone
		pod clone-2 sp owner=CloneSet/clone`), quorum, clustertest.NewBudget("web", 1), maxUnavailable("blocked", "0"), clustertest.NewBudget("large", 1),
		clustertest.NewBudget("ssd", 1), clustertest.NewBudget("kept", 1), clustertest.NewBudget("data", 1), clustertest.NewBudget("local", 1), clustertest.NewBudget("clone", 1))
	for _, object := range objects {
		switch o := object.(type) {
		case *v1.PersistentVolume:
			if strings.Contains(o.Name, "local") {
				o.Spec.Local = &v1.LocalVolumeSource{Path: "/disk"}
			}
		case *v1.Pod:
			if !strings.HasPrefix(o.Name, "ours") {
				o.Spec.SchedulerName = v1.DefaultSchedulerName
			}
			if strings.HasPrefix(o.Name, "path") {
				hostPath(o)
			}
			if o.Name == "kept-1" {
				o.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			}
		}
	}
	classesOf := func(t clustertest.TB, objects []runtime.Object) map[string]report.AssessedWorkload {
		listed, err := lister.Load(context.Background(), "-", strings.NewReader(listertest.Dump(t, objects...)), lister.Scope{})
		if err != nil {
			return nil // there are no nodes or no pods
		}
		view := viewOf(t, listed, basic())
		view.DisruptionBudgetsUnknown = slices.Contains(listed.Missing, "poddisruptionbudgets")
		all := map[string]report.AssessedWorkload{}
		for _, w := range view.Assess(pricing.BuiltIn(), false).Workloads {
			all[w.Ref.String()] = w
		}
		return all
	}
	rank := []report.Class{report.NotChecked, report.NotForSpot, report.NeedsChange, report.StaysOnDemand, report.ReadyForSpot}
	active := func(w report.AssessedWorkload) bool { return w.Patch != nil && w.Class != report.NeedsChange }
	groupOf := func(object runtime.Object) string { // the kind; spot nodes are a kind of their own
		if node, ok := object.(*v1.Node); ok {
			return node.Labels[spot.CapacityLabel]
		}
		return fmt.Sprintf("%T", object)
	}
	var groups []string
	for _, object := range objects {
		if group := groupOf(object); !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	whole := classesOf(t, objects)
	if len(whole) != 17 {
		t.Fatalf("%d workloads, want 17: %v", len(whole), whole)
	}
	rapid.Check(t, func(t *rapid.T) {
		removed := rapid.SliceOfNDistinct(rapid.IntRange(0, len(objects)-1), 0, 12, rapid.ID[int]).Draw(t, "removed")
		kinds := rapid.SliceOfN(rapid.SampledFrom(groups), 0, 2).Draw(t, "removed kinds")
		var rest []runtime.Object
		for i, object := range objects {
			if !slices.Contains(removed, i) && !slices.Contains(kinds, groupOf(object)) {
				rest = append(rest, object)
			}
		}
		for name, less := range classesOf(t, rest) {
			if more := whole[name]; slices.Index(rank, less.Class) > slices.Index(rank, more.Class) || active(less) && !active(more) {
				t.Errorf("without some objects, %s is %s %q (patch %v), with all %s %q", name, less.Class, less.Reasons, less.Patch, more.Class, more.Reasons)
			}
		}
	})
}
