package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// pause pauses the controller, and returns the moment after which nothing may be removed.
func (s *scenario) pause(args ...string) time.Time {
	s.Helper()
	s.removeSwitchesAtEnd()
	if out := s.KubectlSpot(append([]string{"pause"}, args...)...); !strings.Contains(out, "Paused: ") || !strings.Contains(out, "kubectl spot resume") {
		s.Errorf("kubectl spot pause: %s", out)
	}
	return time.Now().Add(time.Second)
}

// removeSwitchesAtEnd makes the cleanup of the test delete what kubectl spot has switched.
func (s *scenario) removeSwitchesAtEnd() {
	s.Cleanup(func() {
		s.Must(client.CoreV1().ConfigMaps("kube-system").DeleteCollection(context.Background(), metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: "metadata.name=spot-controller-switches"}))
	})
}

// nothingRemovedSince returns a check that no controller has evicted, deleted, released or tainted
// anything since a moment: by the requests that the API server has received, and by the objects.
func (s *scenario) nothingRemovedSince(since time.Time) func() error {
	return func() error {
		for _, r := range s.requests(since, "pods") {
			if r.verb == "delete" || r.subresource == "eviction" {
				return fmt.Errorf("while paused: %s", r)
			}
		}
		for _, record := range s.Seen.Pods("") {
			for _, release := range record.Releases {
				if release.Began.After(since) {
					return fmt.Errorf("pod %s was released while paused", record.Name)
				}
			}
		}
		return nil
	}
}

// onlyReplacedReleased returns an error if a released pod is left whose ReplicaSet has room for it.
func (s *scenario) onlyReplacedReleased() error {
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := map[string]int{}
	for i := range pods {
		if live.IsReady(&pods[i]) && pods[i].Labels["pod-template-hash"] != "released" {
			ready[pods[i].Labels["app"]]++
		}
	}
	for i := range pods {
		app := pods[i].Labels["app"]
		if pods[i].Labels["pod-template-hash"] == "released" && ready[app] < int(*s.Deployment(app).Spec.Replicas) {
			return fmt.Errorf("pod %s is still released, and %d pods of its ReplicaSet are ready", pods[i].Name, ready[app])
		}
	}
	return nil
}

// slowly makes surges last: a replacement counts when it has been ready for ten seconds.
func slowly(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 }

// TestPauseDuringMassReclaim: a user pauses the controller while all spot nodes are reclaimed. The
// leader is killed, and the next one obeys. A node that vanishes meanwhile takes its pods with it.
// After the pause, the other nodes are drained in time.
func TestPauseDuringMassReclaim(t *testing.T) {
	const nodes, apps = 7, 30
	s := start(t, live.Spot(nodes, 10)...)
	want, moved := map[string]split{}, map[string]split{}
	s.forEachApp(apps, func(app string) { s.Deploy(app, 2, live.Annotated(minOnDemand, "0"), slowly) })
	for i := range apps {
		want[fmt.Sprintf("app-%d", i)], moved[fmt.Sprintf("app-%d", i)] = split{Spot: 2}, split{OnDemand: 2}
	}
	s.Eventually(2*time.Minute, s.HaveReadySplits(want))
	s.AddNodes(live.OnDemand(nodes, 10)...)
	with := interruptionsOnly()
	with["leaderElection.leaseDuration"] = "5s"
	both := []*lab.Process{s.StartAnotherController(with), s.StartAnotherController(with)}
	var leader, standby *lab.Process
	s.Eventually(soon, func() (err error) {
		leader, standby, err = s.findLeader(both)
		return err
	})

	var others []string
	for i := 2; i <= nodes; i++ {
		others = append(others, fmt.Sprintf("spot-%d", i))
	}
	deadline := s.notice("spot-1", time.Minute)
	for _, name := range others {
		s.notice(name, 5*time.Minute)
	}
	s.Eventually(soon, func() error {
		if released := s.Seen.ReleasedOrRemoved(""); len(released) < 10 {
			return fmt.Errorf("%d pods are moved", len(released))
		}
		return nil
	})
	quietSince := s.pause("--for", "1h", "--message", "a test")
	began := time.Now()
	s.Eventually(2*soon, s.onlyReplacedReleased)
	t.Logf("released pods had returned %s after the pause", time.Since(began).Round(100*time.Millisecond))
	time.Sleep(time.Until(quietSince))
	const last = "last-1"
	s.AddNodes(live.Nodes("last", lab.Spot, "c5.xlarge", 1, 10)...)
	s.EditNode(last, tainted(reclaimed)) // the controller would add its taint
	s.RequireThroughout(quiet, s.nothingRemovedSince(quietSince))

	s.Must(leader.Kill())
	s.Controller = standby
	s.Eventually(time.Minute, func() error {
		_, _, err := s.findLeader([]*lab.Process{standby})
		return err
	})
	s.Eventually(soon, s.HasMetric(standby, 1, "spot_aware_scheduler_paused", map[string]string{"cause": "reclaim"}))
	s.RequireThroughout(quiet, s.nothingRemovedSince(quietSince))
	if out := s.KubectlSpot("status", "-n", s.Namespace); !strings.Contains(out, "warning: the controller is paused: everything until ") ||
		!strings.Contains(out, "with a node that is being reclaimed: the controller is paused") {
		t.Errorf("status does not show the pause:\n%s", out)
	}
	left, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{FieldSelector: "spec.nodeName=spot-1"})
	s.Must(err)
	time.Sleep(time.Until(deadline))
	s.RequireThroughout(3*time.Second, s.nothingRemovedSince(quietSince))
	if node := s.Node(last); len(node.Spec.Taints) != 1 || node.Annotations[deadlineAnnotation] == "" {
		t.Errorf("%s has the taints %v and annotations %v, want only the taint of its signal", last, node.Spec.Taints, node.Annotations)
	}
	s.LoseNodes("spot-1")
	t.Logf("%d pods ended with spot-1", len(left))

	if out := s.KubectlSpot("resume"); !strings.Contains(out, "Resumed. ") {
		t.Errorf("kubectl spot resume: %s", out)
	}
	resumed := time.Now()
	for _, name := range others {
		s.Eventually(2*time.Minute, s.empty(name))
	}
	t.Logf("all nodes were empty %s after the pause", time.Since(resumed).Round(100*time.Millisecond))
	s.Eventually(soon, s.marked(last, true))
	s.Eventually(2*soon, s.HaveReadySplits(moved))
	s.Eventually(soon, s.noPodReleased)
	for _, record := range s.Seen.Removed("") {
		if record.Left.After(resumed) && record.Method() == "deleted" && record.Node != "spot-1" {
			// The ReplicaSet controller deletes a pod that is one too many.
			if record.Ready.IsZero() || record.Capacity == "spot" {
				continue
			}
			t.Errorf("pod %s on %s was deleted after the pause", record.Name, record.Node)
		}
	}
}

// TestPauseDuringReturns: a user pauses the controller during five returns to spot. The released
// pods return to their ReplicaSets on on-demand. After the pause all pods return to spot at once.
func TestPauseDuringReturns(t *testing.T) {
	const apps = 6
	s := start(t, live.OnDemand(1, 2*apps)...)
	want, back := map[string]split{}, map[string]split{}
	s.forEachApp(apps, func(app string) { s.Deploy(app, 1, live.Annotated(minOnDemand, "0"), slowly) })
	for i := range apps {
		want[fmt.Sprintf("app-%d", i)], back[fmt.Sprintf("app-%d", i)] = split{OnDemand: 1}, split{Spot: 1}
	}
	s.Eventually(2*soon, s.HaveReadySplits(want))
	for app := range want {
		s.Seen.RequireReady(app, 1)
	}
	s.AddNodes(live.Spot(2, apps)...)
	s.StartController(onlyReason("returnToSpot"))
	s.Eventually(time.Minute, func() error {
		if released := s.Seen.ReleasedOrRemoved(""); len(released) < 5 {
			return fmt.Errorf("%d pods are moved", len(released))
		}
		return nil
	})
	quietSince := s.pause("--only", "return-to-spot")
	time.Sleep(time.Until(quietSince))
	s.Eventually(2*soon, s.onlyReplacedReleased)
	s.Eventually(2*soon, s.HaveReadySplits(want))
	s.RequireThroughout(quiet, s.nothingRemovedSince(quietSince))
	s.Eventually(soon, s.HasMetric(s.Controller, 1, "spot_aware_scheduler_paused", map[string]string{"cause": "return-to-spot"}))
	s.Eventually(soon, s.HasMetric(s.Controller, 0, "spot_aware_scheduler_paused", map[string]string{"cause": "reclaim"}))
	s.KubectlSpot("resume")
	resumed := time.Now()
	s.Eventually(2*time.Minute, s.HaveReadySplits(back))
	t.Logf("all pods were on spot %s after the pause", time.Since(resumed).Round(100*time.Millisecond))
	s.Eventually(soon, s.noPodReleased)
}

// TestPauseWithGatedPods: while the controller is paused, it removes the gates of new pods as
// always. A pod that waits for on-demand falls back only after the pause.
func TestPauseWithGatedPods(t *testing.T) {
	s := start(t, live.Spot(2, 30)...)
	s.ApplyMode(live.AutoscalerMode)
	with := interruptionsOnly()
	with["gating.enabled"], with["gating.nodeStartup"] = true, "10s"
	s.StartController(with)
	ungated := func(app string) time.Duration {
		began := time.Now()
		s.Deploy(app, 10, live.Annotated(minOnDemand, "0"))
		s.Eventually(2*soon, s.HasReadySplit(app, split{Spot: 10}))
		return time.Since(began)
	}
	before := ungated("before")
	quietSince := s.pause()
	s.Deploy("floor", 1, live.Annotated(minOnDemand, "1"), live.Annotated(fallbackAfter, "10s"))
	during := ungated("during")
	t.Logf("10 gated pods were ready after %s, and while paused after %s", before.Round(100*time.Millisecond), during.Round(100*time.Millisecond))
	if during > before+5*time.Second {
		t.Errorf("gated pods were ready after %s while paused, and before after %s", during, before)
	}
	s.Eventually(soon, s.HasGated("", 0))
	s.RequireThroughout(20*time.Second, s.nothingRemovedSince(quietSince))
	s.KubectlSpot("resume")
	s.Eventually(time.Minute, s.HasReadySplit("floor", split{Spot: 1}))
}
