package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// GateName is the scheduling gate that the admission policy of the autoscaler mode sets.
const GateName = "spot-aware-scheduler.io/capacity"

// cleanupLimit limits the time of the cleanup of one test.
const cleanupLimit = 5 * time.Minute

// Scenario is one test's part of a control plane: a namespace, nodes and programs. The cleanup of
// the test stops the programs, checks that no program lacked a right, and deletes all objects.
type Scenario struct {
	*testing.T
	Ctx       context.Context
	Plane     *lab.ControlPlane
	Client    kubernetes.Interface
	Namespace string
	// Others are further namespaces of the scenario.
	Others                []string
	Scheduler, Controller *lab.Process // nil until they are started
	// Programs are further programs that the cleanup stops.
	Programs []*lab.Process
	// Auditor watches the whole test and fails it at every finding. nil until Audit.
	Auditor *audit.Auditor
	// Seen contains the observations of the scenario's pods and of the nodes. nil until Watch.
	Seen *History
	// Starts are the times at which the API server started during the test.
	Starts []Start
	// ExpectDenials means that the test removes rights of the programs.
	ExpectDenials bool
	// BeforeClear are called by the cleanup after the programs have ended, and before it deletes
	// the workloads.
	BeforeClear []func(context.Context) error
	// CountSplits counts the pods of a namespace by capacity type. nil means Splits.
	CountSplits func(ctx context.Context, client kubernetes.Interface, namespace string) (map[string]Split, error)
	// RemoveNodes deletes the nodes at the end. nil deletes the objects.
	RemoveNodes func(context.Context) error
}

// NewScenario returns a scenario with these nodes and without programs.
func NewScenario(t *testing.T, plane *lab.ControlPlane, client kubernetes.Interface, nodes ...lab.NodeSpec) *Scenario {
	t.Helper()
	s := &Scenario{T: t, Ctx: t.Context(), Plane: plane, Client: client}
	s.Namespace = s.NewNamespace()
	t.Cleanup(s.clean)
	s.AddNodes(nodes...)
	return s
}

// NewNamespace creates a namespace. Its name is unique.
func (s *Scenario) NewNamespace() string {
	s.Helper()
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	ns, err := s.Client.CoreV1().Namespaces().Create(s.Ctx, ns, metav1.CreateOptions{})
	s.Must(err)
	return ns.Name
}

// In returns the scenario for a subtest.
func (s *Scenario) In(t *testing.T) *Scenario {
	inner := *s
	inner.T = t
	return &inner
}

// Audit starts an auditor with the policy of the shipped configuration, changed by edit unless that
// is nil. Call it before a scheduler binds any pod.
func (s *Scenario) Audit(edit func(config map[string]any), options audit.Options) {
	s.Helper()
	options.Policy = Policy(s.T, s.Plane.Root, edit)
	s.Auditor = audit.Watch(s.T, s.Plane.Config(), options)
}

// Policy returns the auditor's form of the policy of the shipped configuration, changed by edit
// unless that is nil.
func Policy(t testing.TB, root string, edit func(config map[string]any)) *audit.Policy {
	t.Helper()
	config, err := SchedulerConfig(root, edit)
	Must(t, err)
	policy, err := audit.PolicyFromSchedulerConfig(config)
	Must(t, err)
	return policy
}

// StartScheduler starts the scenario's scheduler.
func (s *Scenario) StartScheduler(options lab.SchedulerOptions) {
	s.Helper()
	var err error
	s.Scheduler, err = s.Plane.StartScheduler(s.Ctx, options)
	s.Must(err)
}

// StartController starts the scenario's controller with these settings.
func (s *Scenario) StartController(with Settings, flags ...string) {
	s.Helper()
	s.Controller = s.StartAnotherController(with, flags...)
}

// StartAnotherController starts one more controller.
func (s *Scenario) StartAnotherController(with Settings, flags ...string) *lab.Process {
	s.Helper()
	p, err := s.Plane.StartController(s.Ctx, lab.ControllerOptions{Edit: with.Edit, Flags: append([]string{"-v=2"}, flags...)})
	s.Must(err)
	return p
}

// ApplyMode applies the manifests of AutoscalerMode or AnyScheduler, and waits until the API server
// sets the gate. The cleanup deletes the manifests.
func (s *Scenario) ApplyMode(overlay string) {
	s.Helper()
	s.ApplyWebhook(overlay, "")
	s.WaitForGate()
}

// ApplyWebhook applies the manifests of an overlay that gates new pods, with the address of the
// webhook. The cleanup deletes them.
func (s *Scenario) ApplyWebhook(overlay, webhook string) {
	s.Helper()
	// The manifests grant rights to an account of the base manifests.
	_, err := s.Plane.ControllerKubeconfig(s.Ctx)
	s.Must(err)
	s.Must(kubectlMode(s.Ctx, s.Plane, overlay, webhook, "apply"))
	s.BeforeClear = append(s.BeforeClear, func(ctx context.Context) error {
		return kubectlMode(ctx, s.Plane, overlay, webhook, "delete", "--ignore-not-found")
	})
}

// WaitForGate waits until the API server sets the gate.
func (s *Scenario) WaitForGate() {
	s.Helper()
	s.Eventually(2*Soon, func() error {
		pod, err := s.Client.CoreV1().Pods(s.Namespace).Create(s.Ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: PodTemplate("probe").Spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !Gated(pod) {
			err = errors.New("the API server does not set the gate")
		}
		return err
	})
}

// Gated reports whether the pod has the gate of the autoscaler mode.
func Gated(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate v1.PodSchedulingGate) bool { return gate.Name == GateName })
}

// HasGated returns a check that so many pods of the app, or of all apps if it is empty, have the
// gate.
func (s *Scenario) HasGated(app string, want int) func() error {
	return func() error {
		var options metav1.ListOptions
		if app != "" {
			options.LabelSelector = "app=" + app
		}
		pods, err := Pods(s.Ctx, s.Client, s.Namespace, options)
		if err != nil {
			return err
		}
		got := 0
		for i := range pods {
			if Gated(&pods[i]) {
				got++
			}
		}
		if got != want {
			return fmt.Errorf("%d pods are gated, want %d %s", got, want, app)
		}
		return nil
	}
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must ends the test if err is not nil.
func (s *Scenario) Must(err error) {
	s.Helper()
	Must(s.T, err)
}

// Eventually waits until check returns nil. It fails with the last error of check after limit.
func (s *Scenario) Eventually(limit time.Duration, check func() error) {
	s.Helper()
	s.Must(Until(s.Ctx, limit, check))
}

// RequireThroughout fails the test unless check returns nil during the whole time.
func (s *Scenario) RequireThroughout(length time.Duration, check func() error) {
	s.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(longestPause) {
		s.Must(check())
	}
}

// clean deletes all objects of the scenario. It stops the programs first, so that no pod is moved
// or bound meanwhile.
func (s *Scenario) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	if s.Failed() {
		s.logCluster(ctx)
	}
	programs := slices.Concat(s.Plane.Schedulers(), s.Plane.Controllers(), s.Programs)
	s.stop(programs)
	if !s.ExpectDenials {
		s.checkRights(programs)
	}
	for _, p := range programs {
		examined[p] = true
	}
	var errs []error
	for _, f := range s.BeforeClear {
		errs = append(errs, f(ctx))
	}
	// Without the old leases, the next programs become leaders at once, and learn nothing about the
	// nodes of this test.
	for _, lease := range []string{"spot-aware-scheduler", "spot-controller", "spot-extender", "kube-scheduler"} {
		err := s.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, lease, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	for _, namespace := range append(s.Others, s.Namespace) {
		errs = append(errs,
			s.Client.CoreV1().ResourceQuotas(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
			Clear(ctx, s.Client, namespace),
			s.Client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	}
	if s.RemoveNodes != nil {
		errs = append(errs, s.RemoveNodes(ctx))
	} else {
		errs = append(errs, s.Client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	if err := errors.Join(errs...); err != nil {
		s.Errorf("cleaning up: %v", err)
	}
}

// stop stops programs, and logs the end of their logs if the test failed.
func (s *Scenario) stop(programs []*lab.Process) {
	for _, p := range programs {
		if examined[p] {
			continue
		}
		if s.Failed() && (p.Err() == nil || p == s.Scheduler || p == s.Controller) {
			s.Logf("the log of %s ends with:\n%s", p.Name, Tail(p.Log, 40))
		}
		if err := p.Stop(); err != nil {
			s.Errorf("stopping %s: %v", p.Name, err)
		}
	}
}

// examined contains the programs of earlier tests, whose logs were searched.
var examined = map[*lab.Process]bool{}

// checkRights fails the test if a program lacked a right. All programs run with the shipped
// ServiceAccounts.
func (s *Scenario) checkRights(programs []*lab.Process) {
	for _, p := range programs {
		if examined[p] {
			continue
		}
		if err := Denied(p, s.Starts...); err != nil {
			s.Error(err)
		}
	}
}

// Examined makes the cleanup ignore the log of a program that has ended.
func (s *Scenario) Examined(p *lab.Process) { examined[p] = true }

// logCluster logs the state of the cluster after a failure.
func (s *Scenario) logCluster(ctx context.Context) {
	const most = 40
	if s.Seen != nil {
		nodes := s.Seen.Nodes()
		for _, node := range nodes[:min(most, len(nodes))] {
			s.Logf("node %+v", node)
		}
	}
	pods, err := s.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for _, pod := range pods.Items[:min(most, len(pods.Items))] {
		s.Logf("pod %s on %q: phase %s, ready %t, gates %v, node selector %v, terminating %t, annotations %v, owned by %d",
			pod.Name, pod.Spec.NodeName, pod.Status.Phase, IsReady(&pod), pod.Spec.SchedulingGates, pod.Spec.NodeSelector,
			pod.DeletionTimestamp != nil, pod.Annotations, len(pod.OwnerReferences))
	}
	budgets, err := s.Client.PolicyV1().PodDisruptionBudgets(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for _, budget := range budgets.Items[:min(most, len(budgets.Items))] {
		s.Logf("budget %s: generation %d, %+v", budget.Name, budget.Generation, budget.Status)
	}
	s.logEvents(ctx)
}

// logEvents logs the number of events of each reason, and some notes.
func (s *Scenario) logEvents(ctx context.Context) {
	list, err := s.Client.EventsV1().Events(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	logged := map[string]int{}
	for _, event := range list.Items {
		reason := fmt.Sprintf("%s %s", event.ReportingController, event.Reason)
		if logged[reason]++; logged[reason] <= 3 {
			s.Logf("%s %s: %s", reason, event.Regarding.Name, event.Note)
		}
	}
	s.Logf("events by reason: %v", logged)
}
