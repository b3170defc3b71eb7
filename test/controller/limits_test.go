package controller

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// counts is how long a move counts against the limits: an hour, and a minute in which its request
// may still arrive.
const counts = 61 * time.Minute

// replaceLedger replaces the ledger by that of an earlier leader, with one heal at this time.
func (s *scenario) replaceLedger(at time.Time) {
	s.Helper()
	move := fmt.Sprintf(`{"time":%q,"cause":"heal","namespace":%q,"workload":"Deployment/earlier"}`, at.UTC().Format(time.RFC3339), s.Namespace)
	ledger := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "spot-controller-ledger"}, Data: map[string]string{"uid-of-a-pod": move}}
	ledgers := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	s.Must(ledgers.DeleteCollection(s.Ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + ledger.Name}))
	_, err := ledgers.Create(s.Ctx, ledger, metav1.CreateOptions{})
	s.Must(err)
}

// states returns a check that kubectl spot status shows the workloads in these states.
func (s *scenario) states(want map[string]string) func() error {
	return func() error {
		out := s.KubectlSpot("status", "-n", s.Namespace)
		for app, state := range want {
			if !regexp.MustCompile(`(?m)^deployment/` + app + ` +` + state + ` `).MatchString(out) {
				return fmt.Errorf("status does not show that %s is %s:\n%s", app, state, out)
			}
		}
		return nil
	}
}

// releasedPods returns all pods that were released.
func (s *scenario) releasedPods() []live.PodRecord {
	return slices.DeleteFunc(s.Seen.Pods(""), func(r live.PodRecord) bool { return r.Released().IsZero() })
}

// TestLimitedHeal: an earlier leader has used the limit of one move per hour, and two floors are
// unmet. The controller reports this, and heals one floor when the earlier move is an hour old. The
// other floor then waits for the next hour. (Row 7 of the issue.)
func TestLimitedHeal(t *testing.T) {
	s := start(t, append(live.Spot(2, 10), live.OnDemand(1, 2)...)...)
	apps := []string{"one", "two"}
	healed, unmet := split{OnDemand: 1, Spot: 2}, split{Spot: 3}
	for _, app := range apps {
		s.Deploy(app, 3, live.Annotated(fallbackAfter, "1s"))
	}
	s.Eventually(soon, s.HaveReadySplits(map[string]split{"one": healed, "two": healed}))
	s.LoseNodes("od-1")
	s.Eventually(soon, s.HaveReadySplits(map[string]split{"one": unmet, "two": unmet}))
	s.AddNodes(live.OnDemand(2, 10)[1:]...)

	next := time.Now().Add(25 * time.Second).Truncate(time.Second)
	s.replaceLedger(next.Add(-counts))
	with := onlyReason("heal")
	with["limits.movesPerHour"] = 1
	s.StartController(with)
	limited := func(want int) func() error {
		return s.HasMetric(s.Controller, want, "spot_aware_scheduler_moves_limited", map[string]string{"cause": "heal"})
	}
	for _, app := range apps {
		s.Eventually(soon, s.HasEvent(app, "LimitReached", "Moves wait (heal): limits.movesPerHour is 1: the next move (heal) may start at "))
	}
	s.Eventually(soon, limited(2)) // alert SpotMovesForFloorsLimited
	s.Eventually(soon, s.states(map[string]string{"one": "BelowFloor", "two": "BelowFloor"}))
	t.Logf("kubectl spot status, %s before the limit allows a move:\n%s", time.Until(next), s.KubectlSpot("status", "-n", s.Namespace))

	s.Eventually(time.Until(next)+soon, limited(1))
	s.Eventually(soon, s.Moved(1, 1, "surge", "heal"))
	moved := s.releasedPods()
	if len(moved) != 1 || moved[0].Released().Before(next) {
		t.Fatalf("released %v, want one pod after %s", moved, next)
	}
	first := moved[0].App
	t.Logf("a pod of %s was released %s after the limit allowed it", first, moved[0].Released().Sub(next).Round(time.Millisecond))
	second := apps[1-slices.Index(apps, first)]
	s.Eventually(soon, s.HaveReadySplits(map[string]split{first: healed, second: unmet}))
	s.Eventually(soon, s.states(map[string]string{first: "OK", second: "BelowFloor"}))
	s.RequireThroughout(quiet, s.Moved(1, 1, "surge", "heal"))
}
