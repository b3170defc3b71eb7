package report_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

const optInNodes = "node od on-demand m/a cpu=64\nnode sp spot m/a cpu=64\n"

// selecting returns a PodDisruptionBudget for the pods of several apps.
func selecting(name, setting, value string, apps ...string) *policyv1.PodDisruptionBudget {
	budget := clustertest.NewBudget(name, 0)
	budget.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: apps}}}
	budget.Spec.MinAvailable = nil
	switch setting {
	case "minAvailable":
		budget.Spec.MinAvailable = new(intstr.Parse(value))
	case "maxUnavailable":
		budget.Spec.MaxUnavailable = new(intstr.Parse(value))
	}
	return budget
}

// running returns objects of a running cluster without the product: all pods are ready.
func running(cluster string, more ...runtime.Object) []runtime.Object {
	objects := append(clustertest.Objects(optInNodes+cluster), more...)
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			pod.Spec.SchedulerName = v1.DefaultSchedulerName
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}
	}
	return objects
}

func loaded(t clustertest.TB, objects []runtime.Object) *report.View {
	t.Helper()
	listed, err := lister.Load(context.Background(), "-", strings.NewReader(listertest.Dump(t, objects...)), lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	return viewOf(t, listed, basic())
}

// optIn applies the patches of the assessment that make workloads opt in, if chosen
// returns true for them. Afterwards the replicas of such a workload beyond its floor run on spot.
func optIn(t clustertest.TB, objects []runtime.Object, chosen func(report.AssessedWorkload) bool) {
	t.Helper()
	floors := map[string]int{}
	for _, w := range loaded(t, objects).Assess(pricing.New(nil, "none"), false).Workloads {
		if w.Patch == nil || !chosen(w) {
			continue
		}
		floors[w.Name] = 1 // of the policy
		for _, object := range objects {
			owner, ok := object.(metav1.Object)
			if _, isPod := object.(*v1.Pod); !ok || isPod || owner.GetName() != w.Name {
				continue
			}
			var patch struct{ Metadata metav1.ObjectMeta }
			if err := json.Unmarshal(w.Patch.Patch, &patch); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{owner.GetAnnotations()[spot.MinOnDemandAnnotation], patch.Metadata.Annotations[spot.MinOnDemandAnnotation]} {
				if n, err := strconv.Atoi(text); err == nil {
					floors[w.Name] = n
				}
			}
		}
	}
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			app, ordinal := pod.Labels["app"], pod.Name[strings.LastIndex(pod.Name, "-")+1:]
			if floor, in := floors[app]; in {
				pod.Spec.SchedulerName, pod.Spec.NodeName = clustertest.Profile, "sp"
				if n, err := strconv.Atoi(ordinal); err != nil || n < floor {
					pod.Spec.NodeName = "od"
				}
			}
		}
	}
}

// outside counts the pods outside of spot, and all pods, of some apps.
func outside(objects []runtime.Object, apps ...string) (n, all int) {
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok && slices.Contains(apps, pod.Labels["app"]) {
			if all++; pod.Spec.NodeName == "od" {
				n++
			}
		}
	}
	return n, all
}

// lost returns what requires more pods outside of spot than there are: PodDisruptionBudgets, and
// majorities of StatefulSets with volumes.
func lost(objects []runtime.Object) map[string]bool {
	short := map[string]bool{}
	for _, object := range objects {
		budget, ok := object.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		of := []string{budget.Spec.Selector.MatchLabels["app"]}
		for _, e := range budget.Spec.Selector.MatchExpressions {
			of = e.Values
		}
		n, all := outside(objects, of...)
		if m := budget.Spec.MaxUnavailable; m != nil {
			value, _ := intstr.GetScaledValueFromIntOrPercent(m, all, true)
			short["budget "+budget.Name] = n < all-value
		} else {
			value, _ := intstr.GetScaledValueFromIntOrPercent(budget.Spec.MinAvailable, all, true)
			short["budget "+budget.Name] = n < value
		}
	}
	for _, object := range objects {
		pod, ok := object.(*v1.Pod)
		if ok && len(pod.Spec.Volumes) > 0 && pod.OwnerReferences[0].Kind == "StatefulSet" {
			n, all := outside(objects, pod.Labels["app"])
			short["majority "+pod.Labels["app"]] = all >= 3 && n <= all/2
		}
	}
	return short
}

// If all of its active commands are applied, a loss of all spot nodes takes no PodDisruptionBudget
// and no majority that it does not take today. The commands that are comments set the floors that
// keep both.
func TestOptInOfApplications(t *testing.T) {
	boutique := ""
	for _, name := range strings.Fields("adservice cartservice checkoutservice currencyservice emailservice frontend loadgenerator paymentservice productcatalogservice recommendationservice redis-cart shippingservice") {
		boutique += "deployment " + name + " 1 od\n"
	}
	for name, test := range map[string]struct {
		cluster string
		more    []runtime.Object
		want    map[string]string // class and floor of each workload
	}{
		"Vault 3": {"statefulset vault 3 od od od volume=a\nbudget vault 1 maxUnavailable=1", nil, map[string]string{"vault": "WithChange 2"}},
		"Vault 5": {"statefulset vault 5 od od od od od volume=a\nbudget vault 1 maxUnavailable=2", nil, map[string]string{"vault": "WithChange 3"}},
		"Pulsar": {`statefulset zookeeper 3 od od od volume=a
			budget zookeeper 1 maxUnavailable=1
			statefulset bookie 4 od od od sp volume=a
			budget bookie 1 maxUnavailable=1
			statefulset broker 3 od od sp
			budget broker 1 maxUnavailable=1
			deployment proxy 3 od sp sp
			budget proxy 1 minAvailable=1`, nil,
			map[string]string{"zookeeper": "WithChange 2", "bookie": "WithChange 3", "broker": "WithChange 2", "proxy": "Now 1"}},
		"CockroachDB":           {"statefulset cockroachdb 3 od od od volume=a\nbudget cockroachdb 1 maxUnavailable=1", nil, map[string]string{"cockroachdb": "WithChange 2"}},
		"Kafka":                 {"statefulset kafka 6 od od od od od od volume=a\nbudget kafka 1 maxUnavailable=1", nil, map[string]string{"kafka": "WithChange 5"}},
		"Kafka, percent":        {"statefulset kafka 6 od od od od od od volume=a\nbudget kafka 1 maxUnavailable=34%", nil, map[string]string{"kafka": "WithChange 4"}},
		"etcd without a budget": {"statefulset etcd 5 od od od od od volume=a", nil, map[string]string{"etcd": "WithChange 3"}},
		"Vault, a weak budget":  {"statefulset vault 3 od od od volume=a\nbudget vault 1 minAvailable=1", nil, map[string]string{"vault": "WithChange 2"}},
		"two replicas":          {"statefulset pair 2 od sp volume=a\nbudget pair 1 minAvailable=1", nil, map[string]string{"pair": "Now 1"}},
		"redis-ha":              {"statefulset redis-ha-server 3 od od od\nbudget redis-ha-server 1 minAvailable=2", nil, map[string]string{"redis-ha-server": "WithChange 2"}},
		"ECK": {"statefulset masters 3 od od od volume=a\nstatefulset data 3 od od od volume=a\nstatefulset ingest 2 od sp",
			[]runtime.Object{selecting("es", "maxUnavailable", "1", "masters", "data", "ingest")},
			map[string]string{"masters": "WithChange 3", "data": "WithChange 3", "ingest": "WithChange 2"}},
		"ECK, half": {"statefulset masters 3 od od od volume=a\nstatefulset data 3 od od od volume=a\nstatefulset ingest 2 od od",
			[]runtime.Object{selecting("es", "minAvailable", "50%", "masters", "data", "ingest")},
			map[string]string{"masters": "WithChange 2", "data": "WithChange 2", "ingest": "Now 1"}},
		"a budget whose other pods are on spot": {"statefulset a 3 od od od\nstatefulset b 3 sp sp sp only=spot",
			[]runtime.Object{selecting("both", "minAvailable", "2", "a", "b")},
			map[string]string{"a": "WithChange 2", "b": "WithChange 1"}},
		"Online Boutique": {boutique, nil, nil},
		"an outage":       {"deployment web 2 od od min=0\nbudget web 1 minAvailable=0", nil, map[string]string{"web": "WithChange 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := running(test.cluster, test.more...)
			got := map[string]string{}
			for _, w := range loaded(t, objects).Assess(pricing.New(nil, "none"), false).Workloads {
				if got[w.Name] = fmt.Sprintf("%s %d", w.Class, w.Floor); test.want == nil && w.Patch != nil {
					t.Errorf("%s has a command, which gains nothing", w.Name)
				}
			}
			if diff := cmp.Diff(test.want, got); test.want != nil && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			today := lost(objects)
			optIn(t, objects, func(w report.AssessedWorkload) bool { return w.Class != report.NeedsChange })
			for what, short := range lost(objects) {
				if short && !today[what] {
					t.Errorf("a loss of all spot nodes takes the %s", what)
				}
			}
			effects := func(view *report.View) {
				result, err := view.SimulateLoss([]string{"all-spot"})
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range result.Workloads {
					if !w.NoFloor && w.Effect != report.LossKeepsFloor {
						t.Errorf("%s: %s", w.Name, w.Effect)
					}
				}
			}
			effects(loaded(t, objects))
			objects = running(test.cluster, test.more...)
			optIn(t, objects, func(report.AssessedWorkload) bool { return true })
			for what, short := range lost(objects) {
				if short && !today[what] {
					t.Errorf("with all commands, a loss of all spot nodes takes the %s", what)
				}
			}
			effects(loaded(t, objects))
		})
	}
}

// Whichever active commands are applied, they never lower what is ready outside of spot below what
// a PodDisruptionBudget or a majority requires.
func TestOptInKeepsBudgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cluster strings.Builder
		apps := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "workloads")]
		for _, app := range apps {
			places := rapid.SliceOfN(rapid.SampledFrom([]string{"od", "od", "sp"}), 1, 5).Draw(t, "places of "+app)
			options := rapid.SampledFrom([]string{"", " volume=a", " min=2", " min=0", " only=spot", " hostpath"}).Draw(t, "options of "+app)
			kind := rapid.SampledFrom([]string{"statefulset", "deployment"}).Draw(t, "kind of "+app)
			fmt.Fprintf(&cluster, "%s %s %d %s%s\n", kind, app, len(places), strings.Join(places, " "), options)
		}
		var budgets []runtime.Object
		for i := range rapid.IntRange(0, 2).Draw(t, "budgets") {
			of := rapid.SliceOfNDistinct(rapid.SampledFrom(apps), 1, -1, rapid.ID[string]).Draw(t, "selected")
			budgets = append(budgets, selecting("budget"+strconv.Itoa(i), rapid.SampledFrom([]string{"minAvailable", "maxUnavailable"}).Draw(t, "setting"),
				rapid.SampledFrom([]string{"0", "1", "2", "4", "34%", "50%"}).Draw(t, "value"), of...))
		}
		objects := running(cluster.String(), budgets...)
		today := lost(objects)
		skipped := rapid.SampledFrom(append([]string{""}, apps...)).Draw(t, "skipped")
		optIn(t, objects, func(w report.AssessedWorkload) bool { return w.Class != report.NeedsChange && w.Name != skipped })
		for what, short := range lost(objects) {
			if short && !today[what] {
				t.Fatalf("a loss of all spot nodes takes the %s of\n%s", what, &cluster)
			}
		}
	})
}

// The change names a rule if the policy ignores the annotation.
func TestAssessWithIgnoredAnnotations(t *testing.T) {
	for policy, want := range map[decision.AnnotationPolicy]string{decision.AllowAnnotations: spot.MinOnDemandAnnotation, decision.IgnoreAnnotations: "minOnDemand in a rule"} {
		view := loaded(t, running("statefulset vault 3 od od od volume=a"))
		view.Policy.Annotations = policy
		if why := strings.Join(view.Assess(pricing.New(nil, "none"), false).Workloads[0].Reasons, "; "); !strings.Contains(why, "set "+want) {
			t.Errorf("%q, want %q", why, want)
		}
	}
}

// A command that would not replace all pods, or only restart them, is missing.
func TestOptInWithoutGain(t *testing.T) {
	onSet := func(edit func(*appsv1.StatefulSet)) func(runtime.Object) {
		return func(object runtime.Object) {
			if set, ok := object.(*appsv1.StatefulSet); ok {
				edit(set)
			}
		}
	}
	budget := clustertest.NewBudget("web", 1)
	for name, test := range map[string]struct {
		cluster, why string
		edit         func(runtime.Object)
		class        report.Class
	}{
		"OnDelete": {"statefulset web 3 od od sp", "OnDelete", onSet(func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}), report.NeedsChange},
		"a partition": {"statefulset web 3 od od sp", "a partition", onSet(func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(3))}
		}), report.NeedsChange},
		"paused": {"deployment web 3 od od sp", "it is paused", func(object runtime.Object) {
			if d, ok := object.(*appsv1.Deployment); ok {
				d.Spec.Paused = true
			}
		}, report.NeedsChange},
		"all on on-demand": {"deployment web 2 od od min=2", "at your next rollout", nil, report.StaysOnDemand},
	} {
		t.Run(name, func(t *testing.T) {
			w := assess(t, "node od on-demand m/a\nnode sp spot m/a\n"+test.cluster, test.edit, budget).Workloads[0]
			if why := strings.Join(w.Reasons, "; "); w.Patch != nil || w.Class != test.class || !strings.Contains(why, test.why) {
				t.Errorf("%s %q, patch %v; want %s %q without a patch", w.Class, why, w.Patch, test.class, test.why)
			}
		})
	}
	// Without any spot node there is nothing to gain, in no class.
	for _, w := range assess(t, "node od on-demand m/a\ndeployment web 3 od od od\ndeployment one 1 od\ndeployment all 2 od od min=2\ndeployment new 1 -", nil, budget).Workloads {
		if w.Patch != nil {
			t.Errorf("%s: %s has a command without a spot node", w.Name, w.Class)
		}
	}
}

// One PodDisruptionBudget over several workloads is also what status and what-if judge by.
func TestBudgetOverSeveralWorkloads(t *testing.T) {
	for value, want := range map[string][]string{
		"2": {"statefulset/a OK: 1 of 3, 1+2, left 1 and 1 without m/a []", "statefulset/b OK: 1 of 3, 1+2, left 1 and 1 without m/a []"},
		"3": {`statefulset/a AtRisk: 1 of 3, 1+2, left 1 and 1 without m/a ["a loss of all spot leaves 1, but a PodDisruptionBudget requires 2"]`,
			`statefulset/b AtRisk: 1 of 3, 1+2, left 1 and 1 without m/a ["a loss of all spot leaves 1, but a PodDisruptionBudget requires 2"]`},
	} {
		objects := running("statefulset a 3 od sp sp\nstatefulset b 3 od sp sp", selecting("both", "minAvailable", value, "a", "b"))
		for _, object := range objects {
			if pod, ok := object.(*v1.Pod); ok {
				pod.Spec.SchedulerName = clustertest.Profile
			}
		}
		view := loaded(t, objects)
		all, _ := view.Statuses()
		if diff := cmp.Diff(want, statusLines(all)); diff != "" {
			t.Errorf("minAvailable %s (-want +got):\n%s", value, diff)
		}
	}
}
