// Package spotpreference is the scheduler plugin that ranks the nodes a pod may go to: the capacity type it should have first, then spread
// over nodes, zones and pools, then the pool that was interrupted least. It reads what ReplicaSafety found out in the same cycle.
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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "SpotPreference"

// Plugin is SpotPreference for one profile. The profile must also have ReplicaSafety; without it nothing is scored.
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

const scoringKey fwk.StateKey = "spot-aware-scheduler.io/scoring"

// scoring is what Score needs in this cycle.
type scoring struct {
	state *placement.State
}

// Clone returns s itself: it is not changed after PreScore.
func (s *scoring) Clone() fwk.StateData { return s }

// PreScore works out the risk of the pools. It skips pods that ReplicaSafety has no opinion on, and those for which all nodes are as good.
func (p *Plugin) PreScore(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	s := placement.Read(cycle)
	if s == nil || s.RanksAlike() {
		return fwk.NewStatus(fwk.Skip)
	}
	s.Counter.UpdateRisks(p.poolRisk, p.halfLife, p.clock.Now())
	cycle.Write(scoringKey, &scoring{s})
	return nil
}

// Score returns the node's rank. NormalizeScore makes a score of it.
func (p *Plugin) Score(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := cycle.Read(scoringKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("%s was not asked at PreScore: %w", Name, err))
	}
	s, _ := data.(*scoring)
	return int64(s.state.Rank(node.Node().Name)), nil
}

// ScoreExtensions returns the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore maps the ranks to scores.
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

// SignPod refuses pods with a controller: their scores depend on where their siblings are. What else a score depends on is in
// ReplicaSafety's signature.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if kube.HasOpinion(pod) && metav1.GetControllerOfNoCopy(pod) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the score depends on the pod's siblings")
	}
	return nil, nil
}
