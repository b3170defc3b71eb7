package autoscaler

import (
	"context"
	"errors"
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

// soon limits the time of an immediate reaction on a loaded machine. It includes the 2 s for a
// new node of Karpenter.
const soon = 2 * live.Soon

// gateName is the scheduling gate that the admission policy of the autoscaler mode sets.
const gateName = "spot-aware-scheduler.io/capacity"

// setup configures a scenario.
type setup struct {
	// mode enables the autoscaler mode: the admission policy, and gating in the controller's
	// configuration.
	mode bool
	// stock starts kube-scheduler instead of this project's scheduler.
	stock bool
	// controller are settings of the controller's configuration. nil without mode: no controller
	// is started.
	controller settings
	// safety are fields of ReplicaSafetyArgs.
	safety    settings
	karpenter lab.KarpenterOptions
}

// settings are fields of a configuration, by path. All other fields have their shipped values.
type settings map[string]any

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

// editSafety sets the fields in the ReplicaSafetyArgs of a scheduler's configuration.
func (f settings) editSafety(config map[string]any) {
	for _, plugin := range config["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any) {
		if plugin := plugin.(map[string]any); plugin["name"] == "ReplicaSafety" {
			f.edit(plugin["args"].(map[string]any))
		}
	}
}

// with returns these settings, overridden by others.
func (f settings) with(others settings) settings {
	all := settings{}
	for _, part := range []settings{f, others} {
		for path, value := range part {
			all[path] = value
		}
	}
	return all
}

// modeOn enables the mode in the controller's configuration. The controller does not wait for a
// calm period before it moves pods.
var modeOn = settings{"gating.enabled": true, "rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s"}

// scenario is the state of one test. Its objects are deleted at the end of the test.
type scenario struct {
	*testing.T
	setup
	ctx        context.Context
	namespace  string
	scheduler  *lab.Process
	controller *lab.Process // nil if there is none
	karpenter  *lab.Process
	// pools are the NodePools as last applied.
	pools []lab.NodePool
	// seen contains the observations of the scenario's pods and of Karpenter's nodes.
	seen *history
	// auditor watches the whole test and fails the test at every finding. nil with setup.stock.
	auditor *audit.Auditor
}

// start starts the programs of the setup.
func start(t *testing.T, with setup) *scenario {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	s := &scenario{T: t, setup: with, ctx: t.Context()}
	ns, err := kube.CoreV1().Namespaces().Create(s.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	s.must(err)
	s.namespace = ns.Name
	t.Cleanup(s.clean)
	if len(s.setup.karpenter.NodePools) == 0 {
		s.setup.karpenter.NodePools = []lab.NodePool{{}}
	}
	s.pools = s.setup.karpenter.NodePools
	s.seen = s.watch()
	if s.mode {
		s.applyMode()
	}
	if s.stock {
		s.scheduler, err = controlPlane.StartStockScheduler(s.ctx)
		s.must(err)
	} else {
		config, err := live.SchedulerConfig(controlPlane.Root, s.safety.editSafety)
		s.must(err)
		policy, err := audit.PolicyFromSchedulerConfig(config)
		s.must(err)
		s.auditor = audit.Watch(t, controlPlane.Config(), audit.Options{Policy: policy})
		s.scheduler, err = controlPlane.StartScheduler(s.ctx, lab.SchedulerOptions{Edit: s.safety.editSafety})
		s.must(err)
	}
	if s.mode || s.setup.controller != nil {
		s.startController()
	}
	s.karpenter, err = controlPlane.StartKarpenter(s.ctx, s.setup.karpenter)
	s.must(err)
	return s
}

// startController starts the scenario's controller.
func (s *scenario) startController() {
	s.Helper()
	with := s.setup.controller
	if s.mode {
		with = modeOn.with(with)
	}
	var err error
	s.controller, err = controlPlane.StartController(s.ctx, lab.ControllerOptions{
		Edit: with.edit, EditScheduler: s.safety.editSafety, Flags: []string{"-v=2"},
	})
	s.must(err)
}

// applyMode applies the manifests of the mode, and waits until the API server sets the gate.
func (s *scenario) applyMode() {
	s.Helper()
	// The manifests grant rights to an account of the base manifests.
	_, err := controlPlane.ControllerKubeconfig(s.ctx)
	s.must(err)
	s.must(live.KubectlAutoscalerMode(s.ctx, controlPlane, "apply"))
	s.eventually(soon, func() error {
		template := live.PodTemplate("probe")
		pod, err := kube.CoreV1().Pods(s.namespace).Create(s.ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: template.Spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !gated(pod) {
			err = errors.New("the API server does not set the gate")
		}
		return err
	})
}

// gated reports whether the pod has the gate of the mode.
func gated(pod *v1.Pod) bool {
	for _, gate := range pod.Spec.SchedulingGates {
		if gate.Name == gateName {
			return true
		}
	}
	return false
}

// clean deletes all objects of the scenario. It stops the programs first, so that no pod is moved
// or bound meanwhile.
func (s *scenario) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s.seen.end()
	if s.Failed() {
		s.logCluster(ctx)
	}
	for _, p := range []*lab.Process{s.scheduler, s.controller} {
		if p == nil {
			continue
		}
		if s.Failed() {
			s.Logf("the log of %s ends with:\n%s", p.Name, live.Tail(p.Log, 40))
		}
		if p.Err() == nil {
			if err := p.Stop(); err != nil {
				s.Errorf("stopping %s: %v", p.Name, err)
			}
		}
		if err := live.Denied(p); err != nil {
			s.Error(err)
		}
	}
	if s.mode {
		if err := live.KubectlAutoscalerMode(ctx, controlPlane, "delete"); err != nil {
			s.Error(err)
		}
	}
	// Without the old leases, the next programs become leaders at once.
	for _, lease := range []string{"spot-aware-scheduler", "spot-controller", "kube-scheduler"} {
		if err := kube.CoordinationV1().Leases("kube-system").Delete(ctx, lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	}
	if err := live.Clear(ctx, kube, s.namespace); err != nil {
		s.Errorf("cleaning up: %v", err)
	}
	if s.karpenter != nil {
		if s.Failed() {
			s.Logf("the log of Karpenter ends with:\n%s", live.Tail(s.karpenter.Log, 15))
		}
		if err := s.karpenter.Stop(); err != nil {
			s.Error(err)
		}
	}
	if err := removeNodes(ctx); err != nil {
		s.Errorf("cleaning up nodes: %v", err)
	}
	if err := kube.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		s.Error(err)
	}
}

// logCluster logs the state of the cluster after a failure.
func (s *scenario) logCluster(ctx context.Context) {
	for _, node := range s.seen.all() {
		s.Logf("node %+v", node)
	}
	pods, err := kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	for i, pod := range pods.Items {
		if i == 40 {
			s.Logf("and %d more pods", len(pods.Items)-i)
			break
		}
		s.Logf("pod %s on %q: phase %s, gated %t, terminating %t, annotations %v", pod.Name, pod.Spec.NodeName, pod.Status.Phase, gated(&pod),
			pod.DeletionTimestamp != nil, pod.Annotations)
	}
	list, err := kube.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	logged := map[string]int{}
	for _, event := range list.Items {
		if logged[event.Reason]++; logged[event.Reason] <= 3 {
			s.Logf("%s %s %s: %s", event.Source.Component, event.Reason, event.InvolvedObject.Name, event.Message)
		}
	}
	s.Logf("events by reason: %v", logged)
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually waits until check returns nil. It fails with the last error of check after limit.
func (s *scenario) eventually(limit time.Duration, check func() error) {
	s.Helper()
	s.must(live.Until(s.ctx, limit, check))
}

// requireThroughout fails the test unless check returns nil during the whole time.
func (s *scenario) requireThroughout(limit time.Duration, check func() error) {
	s.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		s.must(check())
	}
}

// metricValue returns the sum of a process's metric over all series with these labels.
func (s *scenario) metricValue(p *lab.Process, name string, labels map[string]string) int {
	s.Helper()
	sum, err := live.Metric(s.ctx, p, name, labels)
	s.must(err)
	return int(math.Round(sum))
}

// consolidated returns the number of pods that Karpenter evicted to consolidate their nodes.
func (s *scenario) consolidated() int {
	s.Helper()
	return s.metricValue(s.karpenter, "karpenter_pods_drained_total", map[string]string{"reason": "Underutilized"})
}
