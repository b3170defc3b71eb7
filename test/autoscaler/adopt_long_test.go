//go:build long

package autoscaler

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

func TestLongAdoption(t *testing.T)     { adopt(t, false) }
func TestLongKeptAdoption(t *testing.T) { adopt(t, true) }

// adopt opts in 12 workloads that run in a usual cluster of EKS: a managed node group for the
// system, and a NodePool that permits both types. Then it rolls all out, lets Karpenter
// consolidate, and removes all spot nodes. After each step the floors are exact within a minute and
// the start of a node, and status, what-if and the auditor agree.
func adopt(t *testing.T, keep bool) {
	const step = time.Minute
	s := start(t, setup{stock: true, karpenter: lab.KarpenterOptions{NodePools: []lab.NodePool{{Name: "apps", Labels: map[string]string{"team": "apps"}}}}})
	s.AddNodes(systemNode())
	want := map[string]split{}
	for i := range 12 {
		name, replicas, atLeast := fmt.Sprintf("app-%02d", i), i%6+1, keptFloors[i%len(keptFloors)]
		s.deploy(name, replicas, "200m", "64Mi", floor(atLeast), func(d *appsv1.Deployment) {
			if i%2 == 0 {
				d.Spec.Template.Spec.NodeSelector = map[string]string{"team": "apps"}
			}
		})
		want[name] = onFloor(atLeast, replicas)
	}
	s.deploy("gone", 8, "1", "64Mi") // leaves nodes with room, which Karpenter consolidates later
	s.Eventually(step, s.complete)
	s.remove("gone")
	s.Eventually(step, s.isDeleted("gone"))
	settled := func(what string) {
		t.Helper()
		began := time.Now()
		s.Eventually(step+soon, s.HaveSplits(want))
		s.Eventually(step, s.complete)
		s.Eventually(soon, func() error { return s.agree(want) })
		t.Logf("%s: exact floors after %s", what, time.Since(began).Round(100*time.Millisecond))
	}

	s.mode = true
	if keep {
		s.ApplyMode(live.AnyScheduler)
		s.startController()
		s.Must(labelNamespace(s.Ctx, s.Namespace, "keep-scheduler"))
	} else {
		s.ApplyMode(live.AutoscalerMode)
		s.startController()
		s.Programs = append(s.Programs, s.Scheduler)
		s.StartScheduler(lab.SchedulerOptions{})
		for name := range want {
			s.PatchDeployment(name, `{"spec":{"template":{"spec":{"schedulerName":"spot-aware-scheduler"}}}}`)
		}
	}
	settled("opted in")
	if keep {
		s.Audit(nil, audit.Options{SchedulerName: v1.DefaultSchedulerName, Gated: true})
	} else {
		s.Audit(nil, audit.Options{})
	}
	for name := range want {
		s.SetImage(name, "app:2")
	}
	settled("rolled out")
	s.consolidate(5 * time.Second)
	s.Eventually(2*step, func() error {
		if s.consolidated() == 0 {
			return errors.New("Karpenter has consolidated no pod")
		}
		return nil
	})
	s.awaitStableNodes(20 * time.Second)
	settled(fmt.Sprintf("consolidated %d pods", s.consolidated()))
	s.loseSpot()
	for name, split := range want {
		if got := s.Seen.Serving(name, nil); got < split.OnDemand {
			t.Errorf("%s: %d replicas serve after the loss of all spot, want %d", name, got, split.OnDemand)
		}
	}
	settled("lost all spot")
	s.Auditor.Require(t)
}

// agree returns an error unless kubectl spot reports the wanted splits, all floors as met, and the
// floors as what remains after a loss of all spot, and the auditor knows no deficit.
func (s *scenario) agree(want map[string]split) error {
	var status struct {
		Items []struct {
			Name                               string
			Floor, OnDemand, Spot, WithoutSpot int
			State                              string
		}
	}
	s.decode(&status, "status")
	for _, w := range status.Items {
		if got := (split{OnDemand: w.OnDemand, Spot: w.Spot}); got != want[w.Name] || w.Floor != got.OnDemand || w.WithoutSpot != got.OnDemand || w.State != "OK" {
			return fmt.Errorf("status of %+v, want %+v and OK", w, want[w.Name])
		}
	}
	var loss struct {
		Workloads []struct {
			Name, Effect string
			Floor, After int
		}
	}
	s.decode(&loss, "what-if", "--lose=all-spot")
	for _, w := range loss.Workloads {
		if n := want[w.Name].OnDemand; w.Floor != n || w.After != n || w.Effect != "KeepsFloor" {
			return fmt.Errorf("what-if of %+v, want %d", w, n)
		}
	}
	if len(status.Items) != len(want) || len(loss.Workloads) == 0 {
		return fmt.Errorf("status has %d workloads and what-if %d, want %d", len(status.Items), len(loss.Workloads), len(want))
	}
	if s.Auditor != nil {
		for _, deficit := range s.Auditor.Deficits() {
			return fmt.Errorf("the auditor finds %v", deficit)
		}
	}
	return nil
}

// decode runs kubectl spot for the scenario's namespace and decodes its JSON.
func (s *scenario) decode(into any, args ...string) {
	s.Helper()
	out := s.KubectlSpot(append(args, "-n", s.Namespace, "-o=json")...)
	_, object, _ := strings.Cut(out, "{") // warnings precede it
	s.Must(json.NewDecoder(strings.NewReader("{" + object)).Decode(into))
}
