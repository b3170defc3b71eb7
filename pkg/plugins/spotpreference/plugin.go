// Package spotpreference is the scheduler plugin that ranks the admitted nodes of a pod. It prefers
// the planned capacity type, then spreads pods over nodes, zones and pools, then prefers pools with
// fewer interruptions. It reads the State that ReplicaSafety created in the same cycle.
package spotpreference

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "SpotPreference"

// Plugin is SpotPreference for one profile. The profile must also enable ReplicaSafety, or no node
// is scored.
type Plugin struct {
	clock    clock.PassiveClock
	halfLife time.Duration
	poolRisk map[decision.Pool]float64
}

var (
	_ fwk.PreScorePlugin  = &Plugin{}
	_ fwk.ScorePlugin     = &Plugin{}
	_ fwk.ScoreExtensions = &Plugin{}
	_ fwk.SignPlugin      = &Plugin{}
)

// New builds the plugin from its args, a *config.SpotPreferenceArgs.
func New(_ context.Context, args runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	preference, ok := args.(*config.SpotPreferenceArgs)
	if !ok {
		return nil, fmt.Errorf("expected args of kind SpotPreferenceArgs, got %T", args)
	}
	halfLife, poolRisk, err := preference.Risk()
	if err != nil {
		return nil, err
	}
	return &Plugin{clock: clock.RealClock{}, halfLife: halfLife, poolRisk: poolRisk}, nil
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }

// scoringKey is the key of the State of this cycle if PreScore ran.
const scoringKey fwk.StateKey = "spot-aware-scheduler.io/scoring"

// PreScore computes the risk of the pools. It skips pods without a policy, and pods for which all
// nodes have the same rank.
func (p *Plugin) PreScore(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	s := placement.Read(cycle)
	if s == nil || s.RanksAlike() {
		return fwk.NewStatus(fwk.Skip)
	}
	s.Counter.UpdateRisks(p.poolRisk, p.halfLife, p.clock.Now())
	cycle.Write(scoringKey, s)
	return nil
}

// Score returns the node's rank. NormalizeScore converts it to a score.
func (p *Plugin) Score(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := cycle.Read(scoringKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("PreScore of %s did not run: %w", Name, err))
	}
	s, _ := data.(*placement.State)
	return int64(s.Rank(node.Node().Name)), nil
}

// ScoreExtensions returns the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore converts the ranks to scores.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	ranks := make([]decision.Rank, len(scores))
	for i := range scores {
		ranks[i] = decision.Rank(scores[i].Score)
	}
	decision.ScoreBands(ranks)
	for i := range scores {
		scores[i].Score = int64(ranks[i])
	}
	return nil
}

// SignPod refuses pods with a controller, because their scores depend on the nodes of their
// siblings. The signature of ReplicaSafety contains the other inputs of a score.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if workload.PolicyApplies(pod) && metav1.GetControllerOfNoCopy(pod) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the score depends on the pod's siblings")
	}
	return nil, nil
}
