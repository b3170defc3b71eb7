package extender

import (
	"fmt"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestExtenderMetrics checks the metrics that the dashboard and the alerts SpotExtenderAway and
// SpotCachesNotInSync use.
func TestExtenderMetrics(t *testing.T) {
	live.NewScenario(t, controlPlane, client, live.OnDemand(1, 4)...)
	e := startExtender(t)
	awaitLeader(t, newClient(t, schedulerTLS(t)), e.Address, "od-1")
	for metric, labels := range map[string]map[string]string{
		"leader_election_master_status":      {"name": "spot-extender"},
		"spot_aware_scheduler_caches_synced": {"profile": "spot-aware-scheduler"},
	} {
		live.Must(t, live.Until(t.Context(), 10*time.Second, func() error {
			got, err := live.Metric(t.Context(), e.Process, metric, labels)
			if err == nil && got != 1 {
				err = fmt.Errorf("%s%v is %v, want 1", metric, labels, got)
			}
			return err
		}))
	}
}
