package report_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

// assess assesses a cluster whose pods name the default scheduler, unless their line has a profile.
func assess(t *testing.T, cluster string, edit func(runtime.Object), more ...runtime.Object) *report.Assessment {
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
	view := viewOf(t, listed, basic())
	view.Controller = listed.Controller
	list, err := pricing.Read([]byte("instanceType,zone,spot,onDemand\nm,,0.4,1\nodonly,,,1\n"), "prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	return view.Assess(list, false)
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
		"ready":                             {"deployment web 3 od od od", nil, []runtime.Object{budget}, report.ReadyForSpot, "", 1, "deployment"},
		"its own floor":                     {"deployment web 4 od od od od min=50%", nil, []runtime.Object{budget}, report.ReadyForSpot, "", 2, "deployment"},
		"no budget":                         {"deployment web 3 od od od", nil, nil, report.NeedsChange, "add a PodDisruptionBudget", 1, "deployment"},
		"stateful":                          {"statefulset web 3 od od od", nil, []runtime.Object{budget}, report.ReadyForSpot, "", 1, "statefulset"},
		"a single replica":                  {"deployment web 1 od", nil, nil, report.NeedsChange, "run a second replica", 1, "deployment"},
		"a single replica with a budget":    {"deployment web 1 od", nil, []runtime.Object{budget}, report.NeedsChange, "run a second replica", 1, "deployment"},
		"a single replica that may be lost": {"deployment web 1 od min=0", nil, nil, report.ReadyForSpot, "", 0, "deployment"},
		"a budget that allows nothing now":  {"deployment web 3 od od od", nil, []runtime.Object{unhealthy}, report.NeedsChange, "allows no eviction now: 2 of 3 pods are healthy", 1, "-deployment"},
		"two budgets":                       {"deployment web 3 od od od", nil, []runtime.Object{budget, maxUnavailable("web", "1")}, report.NeedsChange, "keep one of its 2 PodDisruptionBudgets", 1, "-deployment"},
		"requires on-demand":                {"deployment web 3 od od od only=on-demand", nil, []runtime.Object{budget}, report.NeedsChange, "remove the node selector or node affinity that requires on-demand", 1, "deployment"},
		"requires spot":                     {"deployment web 3 sp sp sp only=spot", nil, []runtime.Object{budget}, report.NeedsChange, "it contradicts the floor", 1, "-deployment"},
		"fits no spot node":                 {"deployment web 3 od od od cpu=9", nil, []runtime.Object{budget}, report.NeedsChange, "fit no spot node. On sp: insufficient cpu", 1, "deployment"},
		"another scheduler":                 {"deployment web 3 od od od profile=volcano", nil, []runtime.Object{budget}, report.NeedsChange, "name the scheduler volcano", 1, "-deployment"},
		"data on nodes":                     {"deployment web 3 od od od", editPods(hostPath), []runtime.Object{budget}, report.NeedsChange, "hostPath volume data may be lost", 1, "-deployment"},
		"a Job":                             {"job web 3 od od od", nil, nil, report.NeedsChange, "create the Job again", 0, ""},
		"a CronJob":                         {"job web 3 od od od", controlled[*batchv1.Job](clustertest.OwnedBy("batch/v1/CronJob", "nightly")), nil, report.ReadyForSpot, "", 0, "cronjob"},
		"an operator": {"statefulset web 3 od od od", controlled[*appsv1.StatefulSet](clustertest.OwnedBy("example.com/v1/Database", "db")),
			[]runtime.Object{budget}, report.NeedsChange, "set schedulerName in Database db, which controls it", 1, ""},
		"an unknown kind": {"pod web-1 od owner=CloneSet/web\npod web-2 od owner=CloneSet/web", nil, []runtime.Object{budget}, report.NeedsChange, "in the pod template of CloneSet web", 1, ""},

		"a bare pod":                   {"pod web-1 od", nil, nil, report.NotForSpot, "no controller creates the pod again", 1, ""},
		"a single replica with a path": {"deployment web 1 od", editPods(hostPath), nil, report.NotForSpot, "hostPath volume data", 1, "deployment"},
		"a budget that blocks":         {"deployment web 3 od od od", nil, []runtime.Object{maxUnavailable("web", "0")}, report.NotForSpot, "blocks every eviction: maxUnavailable 0", 1, ""},
		"a budget of all":              {"deployment web 3 od od od", nil, []runtime.Object{clustertest.NewBudget("web", 3)}, report.NotForSpot, "blocks every eviction: minAvailable 3 of 3", 1, ""},
		"a floor of all":               {"deployment web 3 od od od min=100%", nil, []runtime.Object{budget}, report.NotForSpot, "its floor is all of its replicas: minOnDemand 100% from annotation", 3, "deployment"},
		"a Job that does not retry": {"job web 1 od", func(object runtime.Object) {
			if job, ok := object.(*batchv1.Job); ok {
				job.Spec.BackoffLimit = new(int32(0))
			}
		}, nil, report.NotForSpot, "from the default of Jobs without retries", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := assess(t, nodes+test.cluster, test.edit, test.more...)
			if len(a.Workloads) != 1 {
				t.Fatalf("%d workloads, want 1: %+v", len(a.Workloads), a.Workloads)
			}
			w := a.Workloads[0]
			patch := ""
			if w.Patch != nil {
				if patch = w.Patch.Kind; w.Hold() {
					patch = "-" + patch
				}
			}
			if why := strings.Join(w.Reasons, "; "); w.Class != test.class || !strings.Contains(why, test.why) || test.why == "" && why != "" && test.class == report.ReadyForSpot ||
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
	if w := a.Workloads[0]; w.Class != report.NotForSpot || !strings.Contains(w.Reasons[0], "PersistentVolume") || w.WithoutSpotThen != 2 {
		t.Errorf("%s %v, %d left", w.Class, w.Reasons, w.WithoutSpotThen)
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
		got[w.Name] = fmt.Sprintf("%d ready, %d then %d left, %s then %s", w.Ready, w.WithoutSpot, w.WithoutSpotThen, report.OptionalDollars(w.Now), report.OptionalDollars(w.Then))
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
	if now, then := fmt.Sprintf("%.2f", a.Now), fmt.Sprintf("%.2f", a.Then); now != fmt.Sprintf("%.2f", quarter*6.8) || then != fmt.Sprintf("%.2f", quarter*6.8) {
		t.Errorf("%s then %s", now, then)
	}
}

// A workload that has opted in needs no patch.
func TestAssessOptedIn(t *testing.T) {
	a := assess(t, "node od on-demand m/a\ndeployment web 3 od od od", editPods(func(pod *v1.Pod) { pod.Spec.SchedulerName = clustertest.Profile }))
	if w := a.Workloads[0]; !w.OptedIn || w.Patch != nil {
		t.Errorf("%+v, want no patch", w)
	}
}

// A patch sets only the scheduler.
func TestAssessPatches(t *testing.T) {
	for cluster, want := range map[string]string{
		"deployment web 3 od":  `{"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}`,
		"statefulset web 3 od": `{"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}`,
		"job web 3 od":         `{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}}}`,
	} {
		a := assess(t, "node od on-demand m/a\n"+cluster, controlled[*batchv1.Job](clustertest.OwnedBy("batch/v1/CronJob", "nightly")))
		if patch := a.Workloads[0].Patch; patch == nil || string(patch.Patch) != want || !json.Valid(patch.Patch) {
			t.Errorf("%s: %+v, want %s", cluster, patch, want)
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
	for _, want := range []string{"&lt;script&gt;", "&lt;the&gt; policy", "&lt;b&gt;gap", "shop: deployment/web", "Should not run on spot", "1 March 2026"} {
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
