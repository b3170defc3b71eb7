package round

import (
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Limits of 0 refuse the moves whose cause is limited, with the name of the limit.
func TestLimited(t *testing.T) {
	p := &Planner{clients: Clients{Gate: safety.NewGate(safety.Options{Clock: clocktesting.NewFakePassiveClock(clustertest.Now)})}}
	pod := clustertest.NewReplica("web", &snapshot.Node{Node: clustertest.NewNode("n", "spot", "m/a")})
	for reason, want := range map[migration.Reason]string{
		migration.Heal:         "limits.movesPerHour is 0: no move (heal) may start",
		migration.Advisory:     "limits.movesPerHour is 0: no move (advisory) may start",
		migration.Interruption: "", migration.Drain: "", migration.Requested: "",
	} {
		if got := p.limited(pod, reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}
