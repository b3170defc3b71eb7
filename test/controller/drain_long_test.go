//go:build long

package controller

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLongNodeUpgrade: 20 nodes are upgraded one after the other with `kubectl drain`, and each
// is uncordoned when it is empty. Each of 60 Deployments has a budget that allows no eviction,
// its own or the controller's. No Deployment ever has fewer ready endpoints than replicas.
func TestLongNodeUpgrade(t *testing.T) {
	const apps = 60
	nodes := live.OnDemand(20, 8)
	s := start(t, nodes...)
	s.StartController(drains())
	replicas, all := map[string]int{}, 0
	for i := range apps {
		app := fmt.Sprintf("app-%02d", i)
		replicas[app] = 1 + i%3/2 // every third app has two
		all += replicas[app]
		if i%2 == 0 {
			s.Deploy(app, replicas[app], protected)
		} else {
			s.Deploy(app, replicas[app])
		}
	}
	for i := range apps {
		app := fmt.Sprintf("app-%02d", i)
		s.Eventually(time.Minute, s.HasReadySplit(app, split{OnDemand: replicas[app]}))
		s.serve(app, replicas[app])
		if i%2 == 0 {
			s.Eventually(soon, s.hasControllerBudget(app, "0"))
			s.Seen.RequireReady(app, replicas[app])
		} else {
			s.protect(app, replicas[app], maxUnavailable("0"))
		}
	}

	began, longest := time.Now(), time.Duration(0)
	for _, node := range nodes {
		took, err := s.drain(node.Name, time.Minute)
		s.Must(err)
		s.Must(s.empty(node.Name)())
		longest = max(longest, took)
		s.uncordon(node.Name)
	}
	t.Logf("%d nodes with %d pods of %d Deployments were drained in %s, one after the other; a drain took %s on average, %s at most",
		len(nodes), all, apps, time.Since(began).Round(time.Second), (time.Since(began) / time.Duration(len(nodes))).Round(100*time.Millisecond),
		longest.Round(100*time.Millisecond))
	s.Eventually(soon, s.noPodReleased)
	for app, n := range replicas {
		s.Eventually(soon, s.complete(app, n))
	}
	s.Eventually(soon, func() error {
		released, err := s.MetricValue(s.Controller, "spot_aware_scheduler_migrations_total", map[string]string{"method": "surge", "reason": "drain", "outcome": "moved"})
		if err == nil && (released < all || released != len(s.Seen.Removed(""))) {
			err = fmt.Errorf("%d pods were released and evicted, and %d left; want the same number, at least %d", released, len(s.Seen.Removed("")), all)
		}
		return err
	})
	t.Logf("%d pods were released and evicted", len(s.Seen.Removed("")))
	s.Auditor.Require(t)
}

// TestLongCordonWithoutDrain: the cordoned node is not drained. After ten minutes the controller
// restores the pods that it released for a drain. It releases no pod again for this cordon. (Row
// 5b of drains.)
func TestLongCordonWithoutDrain(t *testing.T) {
	const assistFor, after = 10 * time.Minute, time.Minute
	s := start(t, live.OnDemand(1, 5)...)
	apps := s.singletons()
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	for _, pod := range pods {
		// With this cost, ReplicaSets delete the replacements when the pods are restored. The pods
		// stay on the node, so the controller could release them again.
		_, err := client.CoreV1().Pods(s.Namespace).Patch(s.Ctx, pod.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+deletionCost+`":"100"}}}`), metav1.PatchOptions{})
		s.Must(err)
	}
	s.AddNodes(live.OnDemand(2, 5)[1:]...)
	s.StartController(drains())
	s.EditNode("od-1", func(n *v1.Node) { n.Spec.Unschedulable = true })
	for _, app := range apps {
		s.Eventually(soon, s.released(app, 1))
	}
	for _, app := range apps {
		s.Eventually(assistFor+soon, s.released(app, 0))
	}
	for _, app := range apps {
		s.Eventually(soon, s.complete(app, 1))
		s.Must(s.HasReadySplit(app, split{OnDemand: 1})())
	}
	s.Eventually(soon, s.HasMetric(s.Controller, 3, "spot_aware_scheduler_migrations_total", map[string]string{"reason": "drain", "outcome": "restored"}))
	for _, pod := range pods {
		record, err := s.recordOf(pod.Name)
		s.Must(err)
		stayed := record.Releases[0].Ended.Sub(record.Released())
		t.Logf("%s was released for %s", pod.Name, stayed.Round(100*time.Millisecond))
		// The recorded times are whole seconds.
		if stayed < assistFor-time.Second {
			t.Errorf("%s was released for %s, want %s", pod.Name, stayed.Round(time.Second), assistFor)
		}
		if !record.Left.IsZero() {
			t.Errorf("%s was removed, want its replacement removed", pod.Name)
		}
	}

	touched := len(s.Seen.ReleasedOrRemoved(""))
	s.RequireThroughout(after, func() error {
		if now := len(s.Seen.ReleasedOrRemoved("")); now != touched {
			return fmt.Errorf("%d pods were released or deleted after the restore, want none", now-touched)
		}
		return s.noPodReleased()
	})
	s.Must(s.HasMetric(s.Controller, 3, "spot_aware_scheduler_migrations_total", nil)())
	s.Auditor.Require(t)
}

// recordOf returns the observations of a pod.
func (s *scenario) recordOf(name string) (live.PodRecord, error) {
	for _, record := range s.Seen.Pods("") {
		if record.Name == name {
			return record, nil
		}
	}
	return live.PodRecord{}, fmt.Errorf("pod %s was not observed", name)
}
