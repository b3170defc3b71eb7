package round

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Config contains the configuration of the controller and the policy of the scheduler.
type Config struct {
	*controller.SpotControllerConfiguration
	// Profile is the schedulerName of the pods to which Policy applies.
	Profile string
	Policy  *decision.Policy
	// Signals is the table of signals.
	Signals []providers.Signal
	// GatingLabels are the labels of the autoscaler mode; nil unless it is enabled.
	GatingLabels *gating.Labels
	// Memory passes state on to later leaders; nil for none.
	Memory *leader.Memory
}

// replacementTimeout returns how long a replacement may take.
func (c *Config) replacementTimeout() time.Duration {
	if c.Gating.Enabled {
		return max(c.Migration.SurgeTimeout.Duration, c.Gating.NodeStartup.Duration)
	}
	return c.Migration.SurgeTimeout.Duration
}

// migrationSettings returns the settings of moves. gated reports whether new pods get the capacity
// gate. Without the gate an autoscaler adds no nodes for them.
func (c *Config) migrationSettings(gated bool) migration.Settings {
	var provisioning []migration.Reason
	if c.Gating.Enabled && gated {
		provisioning = []migration.Reason{migration.Heal, migration.Assign, migration.Drain, migration.Requested}
	}
	if c.Gating.ProvisionsForReturn() && gated {
		provisioning = append(provisioning, migration.ReturnToSpot)
	}
	return migration.Settings{
		Migration: c.Migration, Interruption: c.Interruption, NodeStartup: c.Gating.NodeStartup.Duration, ProvisionFor: provisioning,
		RequestsPerSecond: int(c.RequestsPerSecond),
	}
}
