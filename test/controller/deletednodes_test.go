package controller

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestDeletedNodes: the Nodes reach the controller's cache 10 s after their pods, and no pod is
// deleted. Then all Nodes are deleted at once, and all replacements are created within 5 s.
func TestDeletedNodes(t *testing.T) {
	const nodes, perNode, apps = 30, 5, 10
	s := start(t)
	proxy := s.startBehindProxy(interruptionsOnly())
	proxy.Hold()
	specs, names := live.Spot(nodes, perNode), []string(nil)
	for i := range specs {
		specs[i].InstanceType = "unpriced.large" // a metric counts such nodes in the controller's cache
		names = append(names, specs[i].Name)
	}
	s.AddNodes(specs...)
	const all = nodes * perNode
	s.forEachApp(apps, func(app string) { s.Deploy(app, all/apps, live.Annotated(minOnDemand, "0")) })
	created := func(want int) func() error {
		return func() error {
			if got := len(s.Seen.Pods("")); got < want {
				return fmt.Errorf("%d pods were created, want %d", got, want)
			}
			return nil
		}
	}
	bound := func() error {
		for _, record := range s.Seen.Pods("") {
			if record.Bound.IsZero() {
				return fmt.Errorf("%s is not bound", record.Name)
			}
		}
		return created(all)()
	}
	s.Eventually(soon, bound)
	s.RequireThroughout(10*time.Second, s.untouched(""))

	proxy.Release()
	s.Eventually(soon, s.HasMetric(s.Controller, nodes, "spot_aware_scheduler_unpriced_nodes", nil))
	s.awaitRounds(2)
	s.Must(s.untouched("")())
	began := time.Now()
	s.forNodes(names, func(name string) { s.Must(client.CoreV1().Nodes().Delete(s.Ctx, name, metav1.DeleteOptions{})) })
	s.Eventually(soon, created(2*all))
	var last time.Duration
	for _, record := range s.Seen.Pods("") {
		last = max(last, record.Created.Sub(began))
	}
	t.Logf("the last of %d replacements was created %s after the deletion of %d nodes", all, last.Round(10*time.Millisecond), nodes)
	if last > 5*time.Second {
		t.Errorf("the last replacement was created after %s, want 5s", last)
	}
}

// awaitRounds returns when the controller has completed this many more rounds, which read its
// caches anew. Another round may be in progress before.
func (s *scenario) awaitRounds(n int) {
	s.Helper()
	const rounds = "spot_aware_scheduler_controller_plan_duration_seconds_count"
	before, err := s.MetricValue(s.Controller, rounds, nil)
	s.Must(err)
	s.Eventually(soon, func() error {
		now, err := s.MetricValue(s.Controller, rounds, nil)
		if err == nil && now < before+n {
			err = fmt.Errorf("%d rounds", now-before)
		}
		return err
	})
}
