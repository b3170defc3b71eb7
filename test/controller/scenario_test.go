package controller

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// soon limits the time of an immediate reaction on a loaded machine.
const soon = live.Soon

// scenario is the state of one test. Its objects are deleted at the end of the test.
type scenario struct {
	*testing.T
	ctx       context.Context
	namespace string
	// others are the namespaces of splitIntoNamespaces.
	others     []string
	began      time.Time
	scheduler  *lab.Process
	controller *lab.Process // nil until startController
	// seen contains the observations of the scenario's pods.
	seen *history
	// auditor watches the whole test and fails the test at every finding.
	auditor *audit.Auditor
	// forbids: the test makes the API server deny some rights of the controller.
	forbids bool
	// starts are the restarts of the API server during the test.
	starts []live.Start
}

// settings are fields of the controller's configuration, by path. All other fields have their
// shipped values.
type settings map[string]any

// interruptionsOnly disables all moves from nodes that are not interrupted.
func interruptionsOnly() settings {
	return settings{"rebalance.heal": false, "rebalance.makeRoom": false, "rebalance.returnToSpot": false, "deletionCosts.enabled": false}
}

// onlyReason enables one kind of rebalancing, without a calm period.
func onlyReason(reason string) settings {
	return settings{
		"rebalance.heal": false, "rebalance.makeRoom": false, "rebalance.returnToSpot": false, "deletionCosts.enabled": false,
		"rebalance." + reason: true, "rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s",
	}
}

// edit sets the fields in a decoded configuration.
func (f settings) edit(config map[string]any) {
	for path, value := range f {
		parent, names := config, strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			inner, ok := parent[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				parent[name] = inner
			}
			parent = inner
		}
		parent[names[len(names)-1]] = value
	}
}

// start starts a scheduler with these nodes. It starts no controller.
func start(t *testing.T, nodes ...lab.NodeSpec) *scenario {
	t.Helper()
	s := &scenario{T: t, ctx: t.Context(), began: time.Now()}
	s.namespace = s.newNamespace()
	t.Cleanup(s.clean)
	s.addNodes(nodes...)
	config, err := live.SchedulerConfig(controlPlane.Root, nil)
	s.must(err)
	policy, err := audit.PolicyFromSchedulerConfig(config)
	s.must(err)
	s.auditor = audit.Watch(t, controlPlane.Config(), audit.Options{Policy: policy, Author: requestLog.author, Forged: hostile})
	s.seen = s.watch()
	// The periodic flush of unschedulable pods would hide lost wake-ups, so it is disabled.
	s.scheduler, err = controlPlane.StartScheduler(s.ctx, lab.SchedulerOptions{Flags: []string{"--pod-max-in-unschedulable-pods-duration=1h"}})
	s.must(err)
	return s
}

func (s *scenario) newNamespace() string {
	s.Helper()
	ns, err := client.CoreV1().Namespaces().Create(s.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	s.must(err)
	return ns.Name
}

// splitIntoNamespaces returns the scenario n times, each with a namespace of its own for its
// workloads. Real clusters do not have hundreds of PodDisruptionBudgets in one namespace: the API
// server reads all budgets at every eviction there.
func (s *scenario) splitIntoNamespaces(n int) []*scenario {
	s.Helper()
	parts := make([]*scenario, n)
	for i := range parts {
		part := *s
		part.namespace = s.newNamespace()
		s.others = append(s.others, part.namespace)
		s.seen.follow(s, part.namespace)
		parts[i] = &part
	}
	return parts
}

// startController starts the scenario's controller with these settings.
func (s *scenario) startController(with settings, flags ...string) {
	s.Helper()
	s.controller = s.startAnotherController(with, flags...)
}

// startAnotherController starts one more controller.
func (s *scenario) startAnotherController(with settings, flags ...string) *lab.Process {
	s.Helper()
	p, err := controlPlane.StartController(s.ctx, lab.ControllerOptions{Edit: with.edit, Flags: append([]string{"-v=2"}, flags...)})
	s.must(err)
	return p
}

// clean deletes all objects of the scenario. It stops the programs first, so that no pod is moved
// or bound meanwhile.
func (s *scenario) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if s.Failed() {
		s.logPods(ctx)
		s.logEvents(ctx)
	}
	for _, p := range append(controlPlane.Schedulers(), controlPlane.Controllers()...) {
		if p.Err() != nil && p != s.scheduler && p != s.controller {
			continue // of an earlier test, or ended by this test
		}
		if s.Failed() {
			s.Logf("the log of %s ends with:\n%s", p.Name, live.Tail(p.Log, 40))
		}
		if err := p.Stop(); err != nil {
			s.Errorf("stopping %s: %v", p.Name, err)
		}
	}
	s.checkRights()
	// Without the old leases, the next programs become leaders at once.
	for _, lease := range []string{"spot-aware-scheduler", "spot-controller"} {
		if err := client.CoordinationV1().Leases("kube-system").Delete(ctx, lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	}
	for _, namespace := range append(s.others, s.namespace) {
		if err := client.CoreV1().ResourceQuotas(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			s.Error(err)
		}
		if err := live.Clear(ctx, client, namespace); err != nil {
			s.Errorf("cleaning up: %v", err)
		}
		if err := client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	}
	if err := client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.Errorf("cleaning up nodes: %v", err)
	}
}

// logPods logs the pods of the scenario's namespace and the status of its budgets.
func (s *scenario) logPods(ctx context.Context) {
	pods, err := client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for _, pod := range pods.Items {
		s.Logf("pod %s on %q: phase %s, ready %t, terminating %t, annotations %v, owned by %d", pod.Name, pod.Spec.NodeName, pod.Status.Phase,
			isReady(&pod), pod.DeletionTimestamp != nil, pod.Annotations, len(pod.OwnerReferences))
	}
	budgets, err := client.PolicyV1().PodDisruptionBudgets(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for _, budget := range budgets.Items {
		s.Logf("budget %s: generation %d, %+v", budget.Name, budget.Generation, budget.Status)
	}
}

// logEvents logs the controller's events: the number of each reason, and some notes.
func (s *scenario) logEvents(ctx context.Context) {
	list, err := client.EventsV1().Events(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	reasons := map[string]int{}
	for _, event := range list.Items {
		if event.ReportingController == "spot-controller" {
			if reasons[event.Reason]++; reasons[event.Reason] <= 3 {
				s.Logf("%s %s: %s", event.Reason, event.Regarding.Name, event.Note)
			}
		}
	}
	s.Logf("events of the controller by reason: %v", reasons)
}

// checkedLogs are the programs whose logs were already searched in an earlier test.
var checkedLogs = map[*lab.Process]bool{}

// checkRights fails the test if a program that ended during the test lacked a right. All programs
// run with the shipped ServiceAccounts.
func (s *scenario) checkRights() {
	for _, p := range append(controlPlane.Schedulers(), controlPlane.Controllers()...) {
		if checkedLogs[p] || p.Err() == nil {
			continue
		}
		checkedLogs[p] = true
		if s.forbids {
			continue
		}
		if err := live.Denied(p, s.starts...); err != nil {
			s.Error(err)
		}
	}
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// addNodes creates nodes and waits until pods can be scheduled to them.
func (s *scenario) addNodes(nodes ...lab.NodeSpec) {
	s.Helper()
	if len(nodes) > 0 {
		s.must(controlPlane.CreateNodes(s.ctx, nodes...))
	}
}

// loseNodes deletes nodes and their pods, like a reclaim without notice.
func (s *scenario) loseNodes(names ...string) {
	s.Helper()
	now := int64(0)
	for _, name := range names {
		s.must(client.CoreV1().Nodes().Delete(s.ctx, name, metav1.DeleteOptions{}))
		s.must(client.CoreV1().Pods(s.namespace).DeleteCollection(s.ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + name}))
	}
}

// node returns a node.
func (s *scenario) node(name string) *v1.Node {
	s.Helper()
	node, err := client.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	return node
}

// editNode changes a node; see live.EditNode.
func (s *scenario) editNode(name string, edit func(*v1.Node)) {
	s.Helper()
	s.must(live.EditNode(s.ctx, client, soon, name, edit))
}

// eventually waits until check returns nil. It fails with the last error of check after limit.
func (s *scenario) eventually(limit time.Duration, check func() error) {
	s.Helper()
	s.must(live.Until(s.ctx, limit, check))
}

// requireThroughout fails the test unless check returns nil during the whole time.
func (s *scenario) requireThroughout(as time.Duration, check func() error) {
	s.Helper()
	for end := time.Now().Add(as); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		s.must(check())
	}
}

// hasMetric returns a check that a metric of the controller has this value, summed over all series
// with these labels.
func (s *scenario) hasMetric(want int, name string, labels map[string]string) func() error {
	return func() error {
		got, err := s.metricValue(name, labels)
		if err == nil && got != want {
			err = fmt.Errorf("%s%v is %d, want %d", name, labels, got, want)
		}
		return err
	}
}

// metricValue returns the sum of a metric of the controller over all series with these labels.
func (s *scenario) metricValue(name string, labels map[string]string) (int, error) {
	sum, err := live.Metric(s.ctx, s.controller, name, labels)
	return int(math.Round(sum)), err
}

// moved returns a check that `want` pods were moved by this method for this reason, and no other
// pods.
func (s *scenario) moved(want int, method, reason string) func() error {
	return s.movedAmong(want, want, method, reason)
}

// movedAmong returns a check that `want` pods were moved by this method for this reason, and
// `inAll` pods in total.
func (s *scenario) movedAmong(want, inAll int, method, reason string) func() error {
	const name = "spot_aware_scheduler_migrations_total"
	return func() error {
		all, err := s.metricValue(name, nil)
		if err != nil {
			return err
		}
		these, err := s.metricValue(name, map[string]string{"method": method, "reason": reason, "outcome": "moved"})
		if err == nil && (these != want || all != inAll) {
			err = fmt.Errorf("%d pods moved by %s for %s, and %d in all, want %d and %d", these, method, reason, all, want, inAll)
		}
		return err
	}
}

// hasEvent returns a check that the object has an event with this reason and with this text in its
// note.
func (s *scenario) hasEvent(object, reason, note string) func() error {
	return func() error {
		list, err := client.EventsV1().Events(s.namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		var notes []string
		for _, event := range list.Items {
			if strings.HasPrefix(event.Regarding.Name, object) && strings.Contains(event.Note, note) {
				return nil
			}
			notes = append(notes, event.Regarding.Name+": "+event.Note)
		}
		return fmt.Errorf("no event %s of %s contains %q; notes: %q", reason, object, note, notes)
	}
}
