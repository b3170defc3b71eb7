package round

import (
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Config contains the settings of the controller and the policy of the scheduler. Each planner gets
// its own settings from it.
type Config struct {
	*controller.Settings
	// Profile is the schedulerName of the pods to which Policy applies.
	Profile string
	Policy  *decision.Policy
	// Signals is the table of signals.
	Signals []providers.Signal
	// Memory passes state on to later leaders; nil for none.
	Memory *leader.Memory
}

// replacementTimeout returns how long a replacement may take.
func (c *Config) replacementTimeout() time.Duration {
	if c.Gating {
		return max(c.SurgeTimeout, c.NodeStartup)
	}
	return c.SurgeTimeout
}

// interruptionSettings returns the settings of package interruption. selects is as in
// interruption.Settings.
func (c *Config) interruptionSettings(selects func(namespace string) bool) interruption.Settings {
	return interruption.Settings{
		Signals: c.Signals, NotReadyAfter: c.NotReadyAfter,
		Reclaim: c.Interruption, DefaultNotice: c.DefaultNotice,
		Advice: c.Advisory, AdviceLimit: c.AdvisoryLimit, AdvicePause: c.AdvisoryPause,
		Assist: c.DrainAssist, Cordons: c.DrainCordons,
		Selects: selects,
	}
}

// migrationSettings returns the settings of moves. gated reports whether new pods get the capacity
// gate. Without the gate an autoscaler adds no nodes for them.
func (c *Config) migrationSettings(gated bool) migration.Settings {
	var buying []migration.Reason
	if c.Gating && gated {
		buying = []migration.Reason{migration.Heal, migration.Assign, migration.Drain, migration.Requested}
	}
	if c.buysForReturn() && gated {
		buying = append(buying, migration.ReturnToSpot)
	}
	return migration.Settings{
		SurgeTimeout: c.SurgeTimeout, NodeStartup: c.NodeStartup, Buying: buying, DeleteAtDeadline: c.DeleteAtDeadline,
		EvictableOwners: c.EvictableOwners, RequestsPerSecond: c.RequestsPerSecond,
	}
}

// rebalanceSettings returns the settings of package rebalance. selects is as in rebalance.Settings.
func (c *Config) rebalanceSettings(selects func(namespace string) bool, policy *gating.AdmissionPolicy) rebalance.Settings {
	return rebalance.Settings{
		Heal: c.Heal, MakeRoom: c.MakeRoom, ReturnToSpot: c.ReturnToSpot, MoveLocalStorage: c.MoveLocalStorage,
		MaxMoves: c.MaxMoves, PauseAfterInterruption: c.PauseAfterInterruption, CalmPeriod: c.CalmPeriod,
		Gating: c.Gating, BuyForReturn: c.buysForReturn(), HealRunning: c.Gating && c.Heal && c.HealRunning,
		GatesReplacement: policy.GatesReplacement, Selects: selects, Memory: c.Memory,
	}
}

// buysForReturn reports whether an autoscaler adds spot nodes for replicas that return to spot.
// Without a label by which a pod requires spot, it could add on-demand nodes.
func (c *Config) buysForReturn() bool {
	return c.Gating && c.BuyForReturn && c.GatingSpotLabel != ""
}
