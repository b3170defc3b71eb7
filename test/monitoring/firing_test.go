package monitoring

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	// rival is the namespace of a second installation.
	rival = "rival"
	// guarded is the namespace in which a policy denies evictions.
	guarded = "guarded"
	// smallNodes is the number of spot nodes with one slot. Signals on more than ten nodes open the
	// breaker.
	smallNodes = 12
	// blockedPods is the number of pods that are deleted at a deadline.
	blockedPods = 12
)

// TestAlertsFire takes the built programs into the states of the alerts about reclaim signals, and
// waits until Prometheus fires them. The rules have no "for", because some are of hours: promtool
// tests that (alerts.yaml).
func TestAlertsFire(t *testing.T) {
	w := startAlarmed(t)
	w.fires("two leaders", "SpotLeadersInTwoNamespaces")
	for _, p := range w.cp.Controllers() {
		if p != w.controller && p != w.dryRun {
			live.Must(t, p.Stop())
		}
	}
	w.runBlocked()
	live.Must(t, w.cp.CreateNodes(w.ctx, live.Nodes("small", lab.Spot, "c5.xlarge", smallNodes, 1)...))
	w.silent("ManySpotNodesReclaimed", "ManyPodsDeletedAtTheDeadline", "EvictionsDenied", "SpotReclaimBelowFloor", "SpotBreakerOpen",
		"SpotReclaimDuringPause", "SpotBreakerClosedWithoutEnd", "SpotBreakerForcedClosed")

	w.notice("big", spot.InterruptionTaint, 15*time.Second)
	w.fires("a policy denies an eviction", "EvictionsDenied")
	w.fires("pods are deleted at the deadline", "ManyPodsDeletedAtTheDeadline")
	w.fires("a floor is not met", "SpotReclaimBelowFloor")

	w.silent("ManySpotNodesReclaimed", "SpotBreakerOpen")
	began := time.Now()
	for i := range smallNodes {
		w.notice(fmt.Sprintf("small-%d", i+1), "cloud.google.com/impending-node-termination", 0)
	}
	w.fires("all spot nodes have a signal", "ManySpotNodesReclaimed", "SpotBreakerOpen")
	// TestPagesArriveInTime has the rest of a minute.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the alerts fired %s after the first signal, want at most 10 s", took)
	}

	w.silent("SpotReclaimDuringPause", "SpotBreakerClosedWithoutEnd", "SpotBreakerForcedClosed")
	_, err := w.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(w.ctx, &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "spot-controller-switches"},
		Data:       map[string]string{"pause": "only: [reclaim]", "breaker": "state: Closed"},
	}, metav1.CreateOptions{})
	live.Must(t, err)
	w.fires("switches", "SpotReclaimDuringPause", "SpotBreakerClosedWithoutEnd", "SpotBreakerForcedClosed")

	w.silentInDryRun()
	live.Must(t, w.dryRun.Stop())
	w.fires("no controller", "SpotControllerAway")
}

// alarmed are programs, and a dry run of the controller.
type alarmed struct {
	programs
	dryRun *lab.Process
	alerts map[string]rule
}

// startAlarmed starts a lab with one spot node, pods that wait for on-demand nodes, a scheduler,
// two controllers that lead in different namespaces, and the dry run of a controller. A second
// installation does not start with the shipped rights, so it gets the rights of an administrator.
func startAlarmed(t *testing.T) *alarmed {
	t.Helper()
	w := &alarmed{programs: programs{T: t, ctx: t.Context()}}
	var err error
	w.cp, err = lab.Start(w.ctx, lab.Options{})
	live.Must(t, err)
	t.Cleanup(func() { live.Must(t, w.cp.Stop()) })
	w.client, err = kubernetes.NewForConfig(w.cp.Config())
	live.Must(t, err)
	for _, name := range []string{namespace, guarded, rival} {
		_, err = w.client.CoreV1().Namespaces().Create(w.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		live.Must(t, err)
	}
	live.Must(t, w.cp.CreateNodes(w.ctx, lab.NodeSpec{Name: "big", Capacity: lab.Spot, CPU: fmt.Sprint(blockedPods + 1)}))
	w.create(namespace, live.NewDeployment("floor", 2, live.Annotated(spot.MinOnDemandAnnotation, "2"), live.Annotated(spot.FallbackAfterAnnotation, "1h")))
	w.scheduler, err = w.cp.StartScheduler(w.ctx, lab.SchedulerOptions{})
	live.Must(t, err)
	start := func(options lab.ControllerOptions) *lab.Process {
		p, err := w.cp.StartController(w.ctx, options)
		live.Must(t, err)
		return p
	}
	w.controller, w.dryRun = start(lab.ControllerOptions{}), start(lab.ControllerOptions{Flags: []string{"--dry-run"}})
	t.Setenv("POD_NAMESPACE", rival)
	other := start(lab.ControllerOptions{Kubeconfig: w.cp.Kubeconfig})

	var groups []group
	groups, w.alerts = alertsOf(t, overlay)
	for i := range groups {
		groups[i].Interval = ""
		for j := range groups[i].Rules {
			groups[i].Rules[j].For = ""
		}
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	writeRules(t, rules, groups)
	namespaces := map[*lab.Process]string{w.controller: metav1.NamespaceSystem, w.dryRun: metav1.NamespaceSystem, other: rival}
	w.prometheus, err = Scrape(w.ctx, w.cp, time.Second, More{Rules: rules, Namespaces: namespaces}, w.scheduler, w.controller, w.dryRun, other)
	live.Must(t, err)
	return w
}

func (w *alarmed) create(in string, d *appsv1.Deployment) {
	w.Helper()
	_, err := w.client.AppsV1().Deployments(in).Create(w.ctx, d, metav1.CreateOptions{})
	live.Must(w, err)
}

// runBlocked fills the node big with pods whose replacements fit on no other node, and one whose
// eviction a policy denies.
func (w *alarmed) runBlocked() {
	w.Helper()
	onSpot := live.Annotated(spot.MinOnDemandAnnotation, "0")
	w.create(namespace, live.NewDeployment("blocked", blockedPods, onSpot, live.OnlyOn(v1.LabelHostname, "big")))
	w.create(guarded, live.NewDeployment("guarded", 1, onSpot))
	for in, want := range map[string]int32{namespace: blockedPods, guarded: 1} {
		w.eventually("ready pods in "+in, func() error {
			deployments, err := w.client.AppsV1().Deployments(in).List(w.ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var ready int32
			for _, d := range deployments.Items {
				ready += d.Status.ReadyReplicas
			}
			if ready != want {
				return fmt.Errorf("%d, want %d", ready, want)
			}
			return nil
		})
	}
	w.denyEvictions()
	zero := intstr.FromInt32(0)
	_, err := w.client.PolicyV1().PodDisruptionBudgets(namespace).Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "blocked"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &zero, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "blocked"}}},
	}, metav1.CreateOptions{})
	live.Must(w, err)
}

// denyEvictions creates a policy that denies evictions in the namespace guarded, and waits until
// the API server enforces it.
func (w *alarmed) denyEvictions() {
	w.Helper()
	policies := w.client.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(w.ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: guarded},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: guarded}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no evictions today"}},
		},
	}, metav1.CreateOptions{})
	live.Must(w, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(w.ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: guarded},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: guarded, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	live.Must(w, err)
	pods, err := live.Pods(w.ctx, w.client, guarded, metav1.ListOptions{})
	live.Must(w, err)
	w.eventually("denied evictions", func() error {
		err := w.client.PolicyV1().Evictions(guarded).Evict(w.ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name, Namespace: guarded}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
		if err == nil || !strings.Contains(err.Error(), "no evictions today") {
			return fmt.Errorf("the eviction of %s: %v", pods[0].Name, err) // nil without the policy
		}
		return nil
	})
}

// notice adds a taint to a node, and the deadline unless left is 0.
func (w *alarmed) notice(name, taint string, left time.Duration) {
	w.Helper()
	live.Must(w, live.EditNode(w.ctx, w.client, live.Soon, name, func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: taint, Value: "test", Effect: v1.TaintEffectNoSchedule, TimeAdded: ptr.To(metav1.Now())})
		if left != 0 {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, spot.InterruptionDeadlineAnnotation, time.Now().Add(left).UTC().Format(time.RFC3339))
		}
	}))
}

// fires waits until the alerts fire.
func (w *alarmed) fires(what string, names ...string) {
	w.Helper()
	began := time.Now()
	w.eventually(what, func() error {
		firing := w.firing()
		for _, name := range names {
			if !slices.Contains(firing, name) {
				return fmt.Errorf("%s does not fire, %v do", name, firing)
			}
		}
		return nil
	})
	w.Logf("%s: %v after %s", what, names, time.Since(began).Round(time.Millisecond))
}

// silent fails the test if one of the alerts fires.
func (w *alarmed) silent(names ...string) {
	w.Helper()
	firing := w.firing()
	for _, name := range names {
		if slices.Contains(firing, name) {
			w.Errorf("%s fires too early", name)
		}
	}
}

func (w *alarmed) firing() (names []string) {
	w.Helper()
	found, err := w.prometheus.Alerts(w.ctx)
	live.Must(w, err)
	for _, alert := range found.Alerts {
		if alert.State == promv1.AlertStateFiring {
			names = append(names, string(alert.Labels[model.AlertNameLabel]))
		}
	}
	return names
}

// silentInDryRun ends the controller. SpotControllerAway stays silent while only the dry run
// answers.
func (w *alarmed) silentInDryRun() {
	w.Helper()
	live.Must(w, w.controller.Stop())
	query := func(expr string) model.Vector {
		found, _, err := w.prometheus.Query(w.ctx, expr, time.Now())
		live.Must(w, err)
		return found.(model.Vector)
	}
	w.eventually("Prometheus to see no leader", func() error {
		if found := query(`leader_election_master_status{job="spot-controller"}`); len(found) > 0 {
			return fmt.Errorf("%v", found)
		}
		return nil
	})
	if found := query(w.alerts["SpotControllerAway"].Expr); len(found) > 0 {
		w.Errorf("SpotControllerAway fires in a dry run: %v", found)
	}
}

// TestPagesArriveInTime checks that a critical alert that fires at once reaches Alertmanager within
// 20 s after its metrics have changed. With group_wait of Alertmanager, 30 s by default, the page
// arrives within a minute.
func TestPagesArriveInTime(t *testing.T) {
	const interval = "10s"
	groups, _ := alertsOf(t, overlay)
	atOnce := 0
	for _, group := range groups {
		for _, rule := range group.Rules {
			if rule.Labels["severity"] == "critical" && rule.For == "" {
				if atOnce++; group.Interval != interval {
					t.Errorf("%s is evaluated every %q, want %s", rule.Alert, group.Interval, interval)
				}
			}
		}
	}
	if atOnce < 4 {
		t.Errorf("%d critical alerts fire at once, want at least 4", atOnce)
	}
	monitors := 0
	for _, document := range built(t, overlay) {
		var monitor struct {
			Kind string `json:"kind"`
			Spec struct {
				Endpoints []struct {
					Interval string `json:"interval"`
				} `json:"endpoints"`
			} `json:"spec"`
		}
		live.Must(t, yaml.Unmarshal([]byte(document), &monitor))
		if monitor.Kind != "ServiceMonitor" {
			continue
		}
		if monitors++; len(monitor.Spec.Endpoints) != 1 || monitor.Spec.Endpoints[0].Interval != interval {
			t.Errorf("Prometheus scrapes %+v, want every %s", monitor.Spec.Endpoints, interval)
		}
	}
	if monitors != 2 {
		t.Errorf("%d ServiceMonitors, want 2", monitors)
	}
}
