package controller

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestDeletedNodes: 30 Nodes are deleted at once, and all replacements are created within 5 s.
// Kubernetes itself deletes the pods after 40 s.
func TestDeletedNodes(t *testing.T) {
	const nodes, perNode, apps = 30, 5, 10
	const all = nodes * perNode
	s := start(t, live.Spot(nodes, perNode)...)
	want := map[string]split{}
	s.forEachApp(apps, func(app string) { s.Deploy(app, all/apps, live.Annotated(minOnDemand, "0")) })
	for i := range apps {
		want[fmt.Sprintf("app-%d", i)] = split{Spot: all / apps}
	}
	s.StartController(interruptionsOnly()) // meanwhile the pods start
	s.Eventually(time.Minute, s.HaveReadySplits(want))
	s.awaitRounds(2) // one that began after all pods were bound
	var names []string
	for _, spec := range live.Spot(nodes, perNode) {
		names = append(names, spec.Name)
	}
	began := time.Now()
	s.forNodes(names, func(name string) { s.Must(client.CoreV1().Nodes().Delete(s.Ctx, name, metav1.DeleteOptions{})) })
	s.Eventually(soon, func() error {
		if got := len(s.Seen.Pods("")); got < 2*all {
			return fmt.Errorf("%d pods were created, want %d", got, 2*all)
		}
		return nil
	})
	records := s.Seen.Pods("") // oldest first
	last := records[len(records)-1].Created.Sub(began)
	t.Logf("the last of %d replacements was created %s after the deletion of %d nodes", all, last.Round(10*time.Millisecond), nodes)
	if last > 5*time.Second {
		t.Errorf("the last replacement was created after %s, want 5s", last)
	}
}

// awaitRounds returns when the controller has completed this many more rounds. The first may have
// begun before.
func (s *scenario) awaitRounds(n int) {
	s.Helper()
	const rounds = "spot_aware_scheduler_controller_plan_duration_seconds_count"
	before, err := s.MetricValue(s.Controller, rounds, nil)
	s.Must(err)
	s.Eventually(soon, func() error {
		now, err := s.MetricValue(s.Controller, rounds, nil)
		if err == nil && now < before+n {
			err = fmt.Errorf("%d more rounds, want %d", now-before, n)
		}
		return err
	})
}
