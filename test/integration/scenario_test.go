package integration

import (
	"context"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// scenario is one test's part of the cluster. The cleanup of the test deletes all its objects.
type scenario struct {
	*testing.T
	ctx       context.Context
	namespace string
	scheduler *lab.Process
	options   lab.SchedulerOptions
	// extender answers the scheduler's requests and serves the placement metrics; nil unless
	// throughExtender.
	extender *lab.Extender
	// auditor watches the whole test, and fails it at the first breach of a floor or lost wake-up.
	auditor *audit.Auditor
	// starts are the times at which the API server started during the test.
	starts []live.Start
}

// args returns an edit of the shipped configuration that sets fields of ReplicaSafetyArgs; a nil
// value removes the field.
func args(fields map[string]any) func(config map[string]any) {
	return func(config map[string]any) {
		profile := config["profiles"].([]any)[0].(map[string]any)
		for _, entry := range profile["pluginConfig"].([]any) {
			entry := entry.(map[string]any)
			if entry["name"] != "ReplicaSafety" {
				continue
			}
			args := entry["args"].(map[string]any)
			for field, value := range fields {
				if value == nil {
					delete(args, field)
				} else {
					args[field] = value
				}
			}
		}
	}
}

// start starts a scheduler with these nodes and the shipped configuration, modified by edits.
func start(t *testing.T, nodes []lab.NodeSpec, edits ...func(config map[string]any)) *scenario {
	t.Helper()
	s := &scenario{T: t, ctx: t.Context()}
	ns, err := client.CoreV1().Namespaces().Create(s.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	s.must(err)
	s.namespace = ns.Name
	t.Cleanup(s.clean)
	s.addNodes(nodes...)
	s.options = lab.SchedulerOptions{
		Edit: func(config map[string]any) {
			for _, edit := range edits {
				edit(config)
			}
		},
		// Periodic retries would hide a lost wake-up, so this effectively disables them.
		Flags: []string{"--pod-max-in-unschedulable-pods-duration=1h", "-v=2"},
	}
	policy, err := audit.PolicyFromSchedulerConfig(shippedConfig(t, s.options.Edit))
	s.must(err)
	s.auditor = audit.Watch(t, controlPlane.Config(), audit.Options{Policy: policy})
	s.startScheduler()
	return s
}

// shippedConfig returns the shipped configuration, modified by edit.
func shippedConfig(t *testing.T, edit func(config map[string]any)) []byte {
	t.Helper()
	data, err := live.SchedulerConfig(controlPlane.Root, edit)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// throughExtender means that a stock kube-scheduler with spot-extender places the pods, by the same
// policy, instead of this project's scheduler.
var throughExtender = os.Getenv("SPOT_THROUGH") == "extender"

func (s *scenario) startScheduler() {
	s.Helper()
	options := s.options
	var err error
	if throughExtender {
		s.extender, err = controlPlane.StartExtender(s.ctx, lab.ExtenderOptions{EditScheduler: options.Edit, Flags: []string{"-v=2"}})
		s.must(err)
		options, err = controlPlane.ExtendedScheduler(s.extender.Address)
		s.must(err)
		options.Flags = s.options.Flags
	}
	s.scheduler, err = controlPlane.StartScheduler(s.ctx, options)
	s.must(err)
}

// metricsProcess returns the process that serves the placement metrics.
func (s *scenario) metricsProcess() *lab.Process {
	if s.extender != nil {
		return s.extender.Process
	}
	return s.scheduler
}

// clean deletes all objects of the scenario. It stops the scheduler first so that no more pods are
// placed.
func (s *scenario) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), manyPods)
	defer cancel()
	if s.scheduler != nil {
		if s.Failed() {
			s.Log("the scheduler's log ends with:\n" + live.Tail(s.scheduler.Log, 40))
		}
		if err := s.scheduler.Stop(); err != nil {
			s.Errorf("stopping the scheduler: %v", err)
		}
	}
	if s.extender != nil {
		if s.Failed() {
			s.Log("the extender's log ends with:\n" + live.Tail(s.extender.Log, 60))
		}
		if err := s.extender.Stop(); err != nil {
			s.Errorf("stopping the extender: %v", err)
		}
		if err := live.Denied(s.extender.Process, s.starts...); err != nil {
			s.Error(err)
		}
	}
	s.checkRights()
	// Without the old lease the next scheduler leads at once, and learns nothing about the nodes of
	// this test.
	for _, lease := range []string{"spot-aware-scheduler", "spot-extender"} {
		if err := client.CoordinationV1().Leases("kube-system").Delete(ctx, lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	}
	if err := s.deleteWorkloads(ctx); err != nil {
		s.Errorf("cleaning up: %v", err)
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{}); err != nil {
		s.Error(err)
	}
	if err := client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.Errorf("cleaning up nodes: %v", err)
	}
}

// examined lists the schedulers whose logs an earlier test has searched.
var examined = map[*lab.Process]bool{}

// checkRights fails the test if a scheduler that exited during it lacked a right. All schedulers
// run with the shipped ServiceAccount and its shipped rights.
func (s *scenario) checkRights() {
	for _, scheduler := range controlPlane.Schedulers() {
		if examined[scheduler] || scheduler.Err() == nil {
			continue
		}
		examined[scheduler] = true
		if err := live.Denied(scheduler, s.starts...); err != nil {
			s.Error(err)
		}
	}
}

// deleteWorkloads deletes the owners of pods first. It returns when no pod is left and no more are
// created.
func (s *scenario) deleteWorkloads(ctx context.Context) error {
	return live.Clear(ctx, client, s.namespace)
}

// run runs a part of the scenario as a subtest.
func (s *scenario) run(name string, part func(s *scenario)) {
	s.T.Helper()
	s.T.Run(name, func(t *testing.T) {
		sub := *s
		sub.T = t
		part(&sub)
	})
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

// editNode updates a node; see live.EditNode.
func (s *scenario) editNode(name string, edit func(*v1.Node)) {
	s.Helper()
	s.must(live.EditNode(s.ctx, client, 10*time.Second, name, edit))
}

// eventually waits until check returns nil. After limit it fails the test with the last error.
func (s *scenario) eventually(limit time.Duration, check func() error) {
	s.Helper()
	s.must(until(s.ctx, limit, check))
}

// until waits until check returns nil. It returns the last error if limit expires or ctx is done.
func until(ctx context.Context, limit time.Duration, check func() error) error {
	return live.Until(ctx, limit, check)
}
