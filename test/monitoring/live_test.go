package monitoring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const namespace = "shop"

// extended is the profile, and the namespace, of the pods that a stock kube-scheduler places with
// the extender. In a cluster the extender serves the scheduler's profile, because only one of the
// two runs. Here both run.
const extended = "through-the-extender"

// gatedApp is the app whose pods have the capacity gate, which the admission policy adds in the
// autoscaler mode.
const gatedApp = "gated"

// programs is a lab with all programs, and a Prometheus that scrapes them as the overlays configure
// it.
type programs struct {
	*testing.T
	ctx                             context.Context
	cp                              *lab.ControlPlane
	client                          kubernetes.Interface
	scheduler, controller, extender *lab.Process
	prometheus                      promv1.API
	began                           time.Time
}

// TestQueries takes all programs through placements, a waiting pod and an interruption. It then
// runs all queries of the dashboard and the alerts on Prometheus.
func TestQueries(t *testing.T) {
	w := start(t)
	// Prometheus must have the first sample of the counters and histograms before anything happens.
	w.eventually("Prometheus to scrape all programs", func() error {
		found, _, err := w.prometheus.Query(w.ctx, `spot_aware_scheduler_caches_synced == 1`, time.Now())
		if err == nil && len(found.(model.Vector)) != 3 {
			err = fmt.Errorf("synced caches: %v, want 3", found)
		}
		return err
	})
	w.runWorkloads()

	// The programs may still react to the last event.
	for name, check := range map[string]func(*testing.T) error{"metrics": w.checkMetrics, "logs": w.checkLogs} {
		t.Run(name, func(t *testing.T) {
			if err := live.Until(w.ctx, live.Soon, func() error { return check(t) }); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("dashboard", func(t *testing.T) {
		d := dashboardOf(t)
		values := map[string]string{"__rate_interval": "10s", "__range": "2m"}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				values[v.Name] = w.valuesOf(t, v)
			}
		}
		queries := 0
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				queries++
				matrix := w.returnsData(t, p.Title, q.Query(values))
				for _, label := range labelIn.FindAllStringSubmatch(q.LegendFormat, -1) {
					for _, series := range matrix {
						if _, ok := series.Metric[model.LabelName(label[1])]; !ok {
							t.Errorf("%s: the legend names %s, but %v does not have it", p.Title, label[1], series.Metric)
						}
					}
				}
			}
		}
		t.Logf("ran %d queries", queries)
	})
	t.Run("alerts", func(t *testing.T) {
		groups := allGroups(t)
		for _, group := range groups {
			for _, rule := range group.Rules {
				if rule.Record != "" {
					continue // the dashboard tests it
				}
				for _, match := range selector.FindAllString(rule.Expr, -1) {
					w.returnsData(t, rule.Alert, match)
				}
			}
		}
		loaded, err := w.prometheus.Rules(w.ctx)
		live.Must(t, err)
		n := 0
		for _, group := range loaded.Groups {
			for _, rule := range group.Rules {
				n++
				alert, isAlert := rule.(promv1.AlertingRule)
				record, isRecord := rule.(promv1.RecordingRule)
				if isAlert && alert.Health != promv1.RuleHealthGood || isRecord && record.Health != promv1.RuleHealthGood || isAlert == isRecord {
					t.Errorf("%s: %+v, want a healthy rule", group.Name, rule)
				}
			}
		}
		if len(loaded.Groups) != len(groups) || n == 0 {
			t.Errorf("Prometheus has %d groups with %d rules, want %d groups", len(loaded.Groups), n, len(groups))
		}
	})
}

// allGroups returns the groups of all overlays.
func allGroups(t *testing.T) []group {
	t.Helper()
	groups, _ := alertsOf(t, overlay)
	more, _ := alertsOf(t, extenderOverlay)
	for _, g := range more {
		if !slices.ContainsFunc(groups, func(other group) bool { return other.Name == g.Name }) {
			groups = append(groups, g)
		}
	}
	return groups
}

// checkMetrics compares the metrics of all programs with docs/metrics.md. It returns an error
// unless all of this project's metrics are present with the documented type and labels. The page
// must name every label value, except the values of profile, node and signal.
func (w *programs) checkMetrics(t *testing.T) error {
	var problems []error
	page := read(t, root+"/docs/metrics.md")
	type metric struct{ Type, Labels string }
	documented, served := map[string]metric{}, map[string]metric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(spot_aware_scheduler_\\w+)` \\| (\\w+) \\| ([^|]*)\\|").FindAllStringSubmatch(page, -1) {
		labels := strings.NewReplacer("`", "", ",", "").Replace(strings.TrimSpace(row[3]))
		// caches_synced has two rows. That of the scheduler, which is read last, has a label.
		if labels != "" || documented[row[1]].Labels == "" {
			documented[row[1]] = metric{row[2], labels}
		}
	}
	for _, p := range []*lab.Process{w.controller, w.extender, w.scheduler} {
		text, err := p.Metrics(w.ctx)
		live.Must(w, err)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		live.Must(w, err)
		for name, family := range families {
			if !strings.HasPrefix(name, "spot_aware_scheduler_") {
				continue
			}
			labels := map[string]bool{}
			for _, series := range family.Metric {
				for _, label := range series.Label {
					labels[label.GetName()] = true
					if !slices.Contains([]string{"profile", "node", "signal"}, label.GetName()) && !strings.Contains(page, "`"+label.GetValue()+"`") {
						problems = append(problems, fmt.Errorf("%s: docs/metrics.md does not mention %s %q", name, label.GetName(), label.GetValue()))
					}
				}
			}
			served[name] = metric{strings.ToLower(family.GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), " ")}
		}
	}
	for name, m := range documented {
		names := strings.Fields(m.Labels)
		slices.Sort(names)
		documented[name] = metric{m.Type, strings.Join(names, " ")}
	}
	if diff := cmp.Diff(documented, served); diff != "" {
		problems = append(problems, fmt.Errorf("metrics (-docs/metrics.md +served):\n%s", diff))
	}
	return errors.Join(problems...)
}

// logLine matches a line of klog: the message, and then names with values.
var logLine = regexp.MustCompile(`(?m)^[IWE]\d{4} [^\]]*\] "([^"]+)"(.*)$`)

// shape returns the constant part of a line: its message and the names of its values.
func shape(message, values string) string {
	for _, name := range regexp.MustCompile(` (\w+)=(?:"(?:[^"\\]|\\.)*"|\S+)`).FindAllStringSubmatch(values, -1) {
		message += " " + name[1]
	}
	return message
}

// checkLogs returns an error unless the programs log the lines in docs/monitoring.md. Each
// placement must be logged once, and each waiting pod once.
func (w *programs) checkLogs(t *testing.T) error {
	var problems []error
	logged, placed, waits := map[string]bool{}, map[string]int{}, 0
	for _, p := range []*lab.Process{w.scheduler, w.controller} {
		for _, line := range logLine.FindAllStringSubmatch(read(t, p.Log), -1) {
			logged[shape(line[1], line[2])] = true
			pod, _, _ := strings.Cut(strings.TrimPrefix(line[2], " pod="), " ")
			switch line[1] {
			case "Placed pod":
				placed[pod]++
			case "Pod waiting":
				if !strings.Contains(line[2], "owner not known yet") { // informers may deliver owners after their pods
					waits++
				}
			}
		}
	}
	pods, err := live.Pods(w.ctx, w.client, namespace, metav1.ListOptions{})
	live.Must(w, err)
	for _, pod := range pods {
		want := 1
		if pod.Spec.NodeName == "" {
			want = 0
		}
		if got := placed[fmt.Sprintf("%q", namespace+"/"+pod.Name)]; got != want {
			problems = append(problems, fmt.Errorf("%s on node %q: %d lines log its placement, want %d", pod.Name, pod.Spec.NodeName, got, want))
		}
	}
	attempts := strings.Count(read(t, w.scheduler.Log), `"Unable to schedule pod; no fit; waiting" pod="shop/single-`)
	if waits != 1 || attempts < 2 {
		problems = append(problems, fmt.Errorf("%d lines log a waiting pod, want 1 after at least 2 attempts, have %d attempts", waits, attempts))
	}
	shown := logLine.FindAllStringSubmatch(read(t, root+"/docs/monitoring.md"), -1)
	if len(shown) < 5 {
		t.Errorf("docs/monitoring.md shows %d log lines, expected at least 5: the expression matches too little", len(shown))
	}
	for _, line := range shown {
		if !logged[shape(line[1], line[2])] {
			problems = append(problems, fmt.Errorf("no program logged %q, which docs/monitoring.md shows", shape(line[1], line[2])))
		}
	}
	return errors.Join(problems...)
}

// start starts the lab with some nodes, all programs and Prometheus.
func start(t *testing.T) *programs {
	t.Helper()
	w := &programs{T: t, ctx: t.Context(), began: time.Now()}
	var err error
	w.cp, err = lab.Start(w.ctx, lab.Options{})
	live.Must(w, err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range append(append(w.cp.Schedulers(), w.cp.Controllers()...), w.cp.Process("spot-extender")) {
				if p == nil {
					continue
				}
				t.Logf("end of the log of %s:\n%s", p.Name, live.Tail(p.Log, 10))
			}
		}
		if err := w.cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	w.client, err = kubernetes.NewForConfig(w.cp.Config())
	live.Must(w, err)
	for _, name := range []string{namespace, extended} {
		_, err = w.client.CoreV1().Namespaces().Create(w.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		live.Must(w, err)
	}
	// It counts as spot, but awaitSplit counts by the project's own label, so no pod may run there.
	contradictory := lab.NodeSpec{Name: "contradictory", InstanceType: "c5.xlarge", Zone: "zone-a",
		Taints: []v1.Taint{{Key: "example.com/none", Effect: v1.TaintEffectNoSchedule}},
		Labels: map[string]string{"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "ON_DEMAND"}}
	live.Must(w, w.cp.CreateNodes(w.ctx, slices.Concat(live.OnDemand(1, 2), live.Spot(3, 4), []lab.NodeSpec{contradictory})...))
	w.scheduler, err = w.cp.StartScheduler(w.ctx, lab.SchedulerOptions{Flags: []string{"-v=2"}})
	live.Must(w, err)
	w.controller, err = w.cp.StartController(w.ctx, lab.ControllerOptions{Flags: []string{"-v=2"}, Edit: func(config map[string]any) {
		config["gating"] = map[string]any{"enabled": true, "labels": []any{lab.CapacityLabel}, "spotLabel": lab.CapacityLabel}
	}})
	live.Must(w, err)
	w.startExtender()
	rules := filepath.Join(w.TempDir(), "rules.yaml")
	writeRules(t, rules, allGroups(t))
	w.prometheus, err = Scrape(w.ctx, w.cp, time.Second, More{Rules: rules}, w.scheduler, w.controller, w.extender)
	live.Must(w, err)
	return w
}

// startExtender starts the extender, and a stock kube-scheduler that uses it, for a separate
// profile.
func (w *programs) startExtender() {
	w.Helper()
	rename := func(config map[string]any) {
		for _, p := range config["profiles"].([]any) {
			if profile := p.(map[string]any); profile["schedulerName"] == "spot-aware-scheduler" {
				profile["schedulerName"] = extended
			}
		}
	}
	e, err := w.cp.StartExtender(w.ctx, lab.ExtenderOptions{EditScheduler: rename, Flags: []string{"--profile=" + extended}})
	live.Must(w, err)
	w.extender = e.Process
	options, err := w.cp.ExtendedScheduler(e.Address)
	live.Must(w, err)
	connect := options.Edit
	options.Edit = func(config map[string]any) { connect(config); rename(config) }
	_, err = w.cp.StartScheduler(w.ctx, options)
	live.Must(w, err)
}

// runWorkloads places pods. One pod waits for on-demand, and a spot node is reclaimed with notice.
func (w *programs) runWorkloads() {
	w.Helper()
	w.deploy(namespace, "web", 4, map[string]string{spot.MinOnDemandAnnotation: "2"})
	w.awaitSplit("web", live.Split{OnDemand: 2, Spot: 2})
	// kube-scheduler's own series start with their first count. Prometheus therefore sees an
	// increase only from here on.
	w.eventually("Prometheus to count the first pods", func() error {
		found, _, err := w.prometheus.Query(w.ctx, `sum(scheduler_pod_scheduling_sli_duration_seconds_count)`, time.Now())
		if vector, ok := found.(model.Vector); err == nil && (!ok || len(vector) != 1 || vector[0].Value < 4) {
			err = fmt.Errorf("%v, want 4", found)
		}
		return err
	})
	w.deploy(namespace, "single", 1, map[string]string{spot.FallbackAfterAnnotation: "1h"})
	w.deploy(namespace, "misspelt", 2, map[string]string{spot.MinOnDemandAnnotation: "0", spot.MaxPerPoolAnnotation: "many"})
	w.awaitSplit("misspelt", live.Split{Spot: 2})
	w.deploy(namespace, gatedApp, 2, map[string]string{spot.MinOnDemandAnnotation: "0"})
	w.awaitSplit(gatedApp, live.Split{Spot: 2})
	w.deploy(extended, "through-extender", 2, map[string]string{spot.MinOnDemandAnnotation: "0"})
	w.eventually("web to be ready", func() error { // otherwise a surge does not move its pods
		d, err := w.client.AppsV1().Deployments(namespace).Get(w.ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 4 {
			err = fmt.Errorf("%d replicas are available, want 4", d.Status.AvailableReplicas)
		}
		return err
	})
	pods, err := live.Pods(w.ctx, w.client, namespace, metav1.ListOptions{LabelSelector: "app=web"})
	live.Must(w, err)
	i := slices.IndexFunc(pods, func(p v1.Pod) bool { return strings.HasPrefix(p.Spec.NodeName, "spot-") })
	if i < 0 {
		w.Fatal("no pod of web runs on a spot node")
	}
	live.Must(w, live.EditNode(w.ctx, w.client, live.Soon, pods[i].Spec.NodeName, func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: spot.InterruptionTaint, Value: "test", Effect: v1.TaintEffectNoSchedule})
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[spot.InterruptionDeadlineAnnotation] = time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
	}))
	for event, expected := range map[string]struct {
		program *lab.Process
		metric  string
		least   float64
	}{
		"a pod waits":              {w.scheduler, "spot_aware_scheduler_waiting_for_on_demand_pods", 1},
		"a node is empty":          {w.controller, "spot_aware_scheduler_evacuation_duration_seconds_count", 1},
		"the extender places pods": {w.extender, "spot_aware_scheduler_placements_total", 2},
	} {
		w.eventually(event, func() error {
			got, err := live.Metric(w.ctx, expected.program, expected.metric, nil)
			if err == nil && got < expected.least {
				err = fmt.Errorf("%s is %v, want %v", expected.metric, got, expected.least)
			}
			return err
		})
	}
}

func (w *programs) deploy(in, name string, replicas int32, annotations map[string]string) {
	w.Helper()
	template := live.PodTemplate(name)
	if in == extended {
		template.Spec.SchedulerName = extended
	}
	if name == gatedApp {
		template.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: spot.CapacityGate}}
	}
	_, err := w.client.AppsV1().Deployments(in).Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template,
		},
	}, metav1.CreateOptions{})
	live.Must(w, err)
}

// awaitSplit returns when the app has this split. A node without the project's own label counts as
// on-demand here.
func (w *programs) awaitSplit(app string, want live.Split) {
	w.Helper()
	w.eventually("placement of "+app, func() error {
		splits, err := live.Splits(w.ctx, w.client, namespace)
		if err == nil && splits[app] != want {
			err = fmt.Errorf("%s: %+v, want %+v", app, splits[app], want)
		}
		return err
	})
}

// valuesOf returns the value that Grafana substitutes for a variable when all its values are
// selected.
func (w *programs) valuesOf(t *testing.T, v Variable) string {
	t.Helper()
	match := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
	if match == nil {
		t.Fatalf("variable %s: %q, want label_values(METRIC, LABEL)", v.Name, v.Definition)
	}
	values, _, err := w.prometheus.LabelValues(w.ctx, match[2], []string{match[1]}, w.began, time.Now())
	if err != nil || len(values) == 0 {
		t.Fatalf("variable %s: %v, %v; want values", v.Name, values, err)
	}
	var all []string
	for _, value := range values {
		all = append(all, regexp.QuoteMeta(string(value)))
	}
	return "(" + strings.Join(all, "|") + ")"
}

// returnsData fails the test unless the query returns a number for some time in this test. It
// retries for a while.
func (w *programs) returnsData(t *testing.T, source, expr string) (matrix model.Matrix) {
	t.Helper()
	err := live.Until(w.ctx, live.Soon, func() error {
		value, warnings, err := w.prometheus.QueryRange(w.ctx, expr, promv1.Range{Start: w.began, End: time.Now(), Step: time.Second})
		if err != nil || len(warnings) > 0 {
			return fmt.Errorf("%w %q", err, warnings)
		}
		matrix = value.(model.Matrix)
		for _, series := range matrix {
			for _, sample := range series.Values {
				if v := float64(sample.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
					return nil
				}
			}
		}
		return fmt.Errorf("%d series, none with a number", len(matrix))
	})
	if err != nil {
		t.Errorf("%s: %s: %v", source, expr, err)
	}
	return matrix
}

func (w *programs) eventually(what string, check func() error) {
	w.Helper()
	if err := live.Until(w.ctx, 3*live.Soon, check); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}
