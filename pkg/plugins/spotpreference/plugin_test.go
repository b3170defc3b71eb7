package spotpreference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var (
	now    = clustertest.Now
	reader = &node.Reader{Policy: &decision.Policy{}, Signals: providers.Signals()}
)

// nodeOf returns a node of that capacity type in the pool "m/<zone>", with pods of the named
// ReplicaSets.
func nodeOf(name, capacity, zone string, replicaSets ...string) *framework.NodeInfo {
	info := framework.NewNodeInfo()
	for i, replicaSet := range replicaSets {
		info.AddPod(podOf(fmt.Sprintf("%s-%d", name, i), replicaSet))
	}
	info.SetNode(clustertest.NewNode(name, capacity, "m/"+zone))
	return info
}

func withTaint(info *framework.NodeInfo, key string) *framework.NodeInfo {
	node := info.Node().DeepCopy()
	node.Spec.Taints = []v1.Taint{{Key: key}}
	info.SetNode(node)
	return info
}

func podOf(name, replicaSet string) *v1.Pod {
	if replicaSet == "" {
		return clustertest.NewPod(name)
	}
	return clustertest.NewPod(name, clustertest.OwnedBy("ReplicaSet", replicaSet))
}

func list(infos []*framework.NodeInfo) []fwk.NodeInfo {
	nodes := make([]fwk.NodeInfo, len(infos))
	for i, info := range infos {
		nodes[i] = info
	}
	return nodes
}

func newPlugin(t testing.TB, args config.SpotPreferenceArgs) *Plugin {
	t.Helper()
	args.SetDefaults()
	plugin, err := New(t.Context(), &args, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := plugin.(*Plugin)
	p.clock = clocktesting.NewFakePassiveClock(now)
	return p
}

// cycleOf returns the cycle state that ReplicaSafety creates for a pod of the ReplicaSet "rs",
// which has desired replicas and a floor of 1.
func cycleOf(counter *placement.Counter, desired int) fwk.CycleState {
	subject := &workload.Subject{RevisionKey: workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: clustertest.UID("rs")}, Pod: decision.Pod{Workload: decision.Workload{Desired: desired}}}
	cycle := framework.NewCycleState()
	placement.NewState(subject, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}, decision.WaitTime{}, counter).Write(cycle)
	return cycle
}

// score runs PreScore, Score and NormalizeScore.
func score(t testing.TB, p *Plugin, cycle fwk.CycleState, nodes []fwk.NodeInfo) fwk.NodeScoreList {
	t.Helper()
	if status := p.PreScore(t.Context(), cycle, nil, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores := make(fwk.NodeScoreList, len(nodes))
	for i, node := range nodes {
		rank, status := p.Score(t.Context(), cycle, nil, node)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		scores[i] = fwk.NodeScore{Name: node.Node().Name, Score: rank}
	}
	if status := p.ScoreExtensions().NormalizeScore(t.Context(), cycle, nil, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	return scores
}

// order formats scores as "best > next = equal > worst".
func order(scores fwk.NodeScoreList) string {
	scores = slices.Clone(scores)
	slices.SortFunc(scores, func(a, b fwk.NodeScore) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Name, b.Name))
	})
	text := ""
	for i, s := range scores {
		switch {
		case i > 0 && s.Score == scores[i-1].Score:
			text += " = "
		case i > 0:
			text += " > "
		}
		text += s.Name
	}
	return text
}

func TestOrder(t *testing.T) {
	const advisory = "aws-node-termination-handler/rebalance-recommendation"
	risky := config.SpotPreferenceArgs{PoolRisk: []config.PoolRisk{{InstanceType: "m", Zone: "a", Risk: new(0.5)}}}
	cases := map[string]struct {
		args    config.SpotPreferenceArgs
		desired int
		before  []*framework.NodeInfo // nodes of an earlier cycle
		ago     time.Duration
		nodes   []*framework.NodeInfo
		want    string
	}{
		"the floor first": {desired: 3, nodes: []*framework.NodeInfo{nodeOf("s", "spot", "a"), nodeOf("o", "on-demand", "a")}, want: "o > s"},
		"then spot":       {desired: 3, nodes: []*framework.NodeInfo{nodeOf("s", "spot", "a"), nodeOf("o", "on-demand", "a", "rs")}, want: "s > o"},
		"another revision's floor is not this one's": {desired: 3, nodes: []*framework.NodeInfo{nodeOf("s", "spot", "a"), nodeOf("o", "on-demand", "a", "old")},
			want: "o > s"},
		"budget used up": {desired: 2, nodes: []*framework.NodeInfo{nodeOf("s", "spot", "a", "rs"), nodeOf("o", "on-demand", "a", "rs")}, want: "o > s"},
		"advisory last, whatever its type": {desired: 3,
			nodes: []*framework.NodeInfo{withTaint(nodeOf("going", "on-demand", "a"), advisory), nodeOf("s", "spot", "a", "rs"), nodeOf("o", "on-demand", "b", "other")},
			want:  "o > s > going"},
		"spread over nodes, then zones": {desired: 9, nodes: []*framework.NodeInfo{
			nodeOf("here", "spot", "a", "rs"), nodeOf("beside", "spot", "a"), nodeOf("away-1", "spot", "b"), nodeOf("away-2", "spot", "c"), nodeOf("floor", "on-demand", "z", "rs")},
			want: "away-1 = away-2 > beside > here > floor"},
		"prior risk breaks ties": {args: risky, desired: 9, nodes: []*framework.NodeInfo{
			nodeOf("risky", "spot", "a"), nodeOf("safe", "spot", "b"), nodeOf("floor", "on-demand", "z", "rs")}, want: "safe > risky > floor"},
		"spread outweighs risk": {args: risky, desired: 9, nodes: []*framework.NodeInfo{
			nodeOf("risky", "spot", "a"), nodeOf("safe", "spot", "b", "rs"), nodeOf("floor", "on-demand", "z", "rs")}, want: "risky > safe > floor"},
		"spot risk does not affect on-demand nodes": {args: risky, desired: 1, nodes: []*framework.NodeInfo{
			nodeOf("a", "on-demand", "a"), nodeOf("b", "on-demand", "b"), nodeOf("s", "spot", "b")}, want: "a = b > s"},
		"on-demand only, with siblings": {desired: 3, nodes: []*framework.NodeInfo{nodeOf("a", "on-demand", "a", "rs"), nodeOf("b", "on-demand", "b")}, want: "b > a"},
		"recent interruption": {desired: 9,
			before: []*framework.NodeInfo{withTaint(nodeOf("lost", "spot", "a", "other"), spot.InterruptionTaint)},
			nodes:  []*framework.NodeInfo{nodeOf("hit", "spot", "a"), nodeOf("calm", "spot", "b"), nodeOf("floor", "on-demand", "z", "rs")}, want: "calm > hit > floor"},
		"recent interruption outweighs a prior risk below 0.5": {
			args:    config.SpotPreferenceArgs{PoolRisk: []config.PoolRisk{{InstanceType: "m", Zone: "b", Risk: new(0.4)}}},
			desired: 9, before: []*framework.NodeInfo{withTaint(nodeOf("lost", "spot", "a", "other"), spot.InterruptionTaint)},
			nodes: []*framework.NodeInfo{nodeOf("hit", "spot", "a"), nodeOf("known", "spot", "b"), nodeOf("floor", "on-demand", "z", "rs")}, want: "known > hit > floor"},
		"interruption decays after two half-lives": {
			args:    config.SpotPreferenceArgs{RiskHalfLife: &metav1.Duration{Duration: 10 * time.Minute}, PoolRisk: []config.PoolRisk{{InstanceType: "m", Zone: "b", Risk: new(0.4)}}},
			desired: 9, before: []*framework.NodeInfo{withTaint(nodeOf("lost", "spot", "a", "other"), spot.InterruptionTaint)}, ago: 20 * time.Minute,
			nodes: []*framework.NodeInfo{nodeOf("hit", "spot", "a"), nodeOf("known", "spot", "b"), nodeOf("floor", "on-demand", "z", "rs")}, want: "hit > known > floor"},
		"prior risk and interruption combine": {
			args:    config.SpotPreferenceArgs{PoolRisk: []config.PoolRisk{{InstanceType: "m", Zone: "a", Risk: new(0.4)}, {InstanceType: "m", Zone: "b", Risk: new(0.6)}}},
			desired: 9, before: []*framework.NodeInfo{withTaint(nodeOf("lost", "spot", "a", "other"), spot.InterruptionTaint)},
			nodes: []*framework.NodeInfo{nodeOf("both", "spot", "a"), nodeOf("known", "spot", "b"), nodeOf("floor", "on-demand", "z", "rs")}, want: "known > both > floor"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, test.args)
			counter := placement.NewCounter(reader)
			counter.Update(list(test.before), now.Add(-test.ago))
			counter.Update(list(test.nodes), now)
			scores := score(t, p, cycleOf(counter, test.desired), list(test.nodes))
			if diff := gocmp.Diff(test.want, order(scores)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			for _, s := range scores {
				if s.Score < 0 || s.Score > fwk.MaxScore {
					t.Errorf("node %s: score %d is outside 0..%d", s.Name, s.Score, fwk.MaxScore)
				}
			}
		})
	}
}

// Losses of a cycle must not change the configured prior risk, because they decay.
func TestInterruptionsLeaveTheKnownRiskAlone(t *testing.T) {
	p := newPlugin(t, config.SpotPreferenceArgs{PoolRisk: []config.PoolRisk{{InstanceType: "m", Zone: "a", Risk: new(0.25)}}})
	nodes := list([]*framework.NodeInfo{withTaint(nodeOf("lost", "spot", "a", "other"), spot.InterruptionTaint)})
	counter := placement.NewCounter(reader)
	counter.Update(nodes, now)
	score(t, p, cycleOf(counter, 3), nodes)
	if diff := gocmp.Diff(map[decision.Pool]float64{{InstanceType: "m", Zone: "a"}: 0.25}, p.poolRisk); diff != "" {
		t.Errorf("prior risk (-want +got):\n%s", diff)
	}
}

// PreScore skips pods without a policy, and pods for which all nodes have the same rank. Score
// without PreScore is an error, not a score.
func TestWithoutAPolicy(t *testing.T) {
	p := newPlugin(t, config.SpotPreferenceArgs{})
	cycle := framework.NewCycleState()
	if status := p.PreScore(t.Context(), cycle, nil, nil); !status.IsSkip() {
		t.Errorf("PreScore: %v, want Skip", status)
	}
	alike := placement.NewCounter(reader)
	alike.Update(list([]*framework.NodeInfo{nodeOf("a", "on-demand", "a"), nodeOf("b", "on-demand", "b", "another")}), now)
	if status := p.PreScore(t.Context(), cycleOf(alike, 3), nil, nil); !status.IsSkip() {
		t.Errorf("PreScore with equal ranks: %v, want Skip", status)
	}
	if _, status := p.Score(t.Context(), cycle, nil, nodeOf("n", "spot", "a")); status.Code() != fwk.Error {
		t.Errorf("Score: %v, want an error", status)
	}
	notAsked := cycleOf(placement.NewCounter(reader), 3)
	if _, status := p.Score(t.Context(), notAsked, nil, nodeOf("n", "spot", "a")); status.Code() != fwk.Error {
		t.Errorf("Score without PreScore: %v, want an error", status)
	}
}

func TestSignPod(t *testing.T) {
	daemon := podOf("p", "ds")
	daemon.OwnerReferences[0].Kind = "DaemonSet"
	cases := map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"no controller": {podOf("p", ""), true},
		"no policy":     {daemon, true},
		"ReplicaSet":    {podOf("p", "rs"), false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			fragments, status := newPlugin(t, config.SpotPreferenceArgs{}).SignPod(t.Context(), test.pod)
			if status.IsSuccess() != test.want || len(fragments) > 0 {
				t.Errorf("SignPod = %v, %v; want signed %t without fragments", fragments, status, test.want)
			}
			if !test.want && !status.IsRejected() {
				t.Errorf("SignPod: %v, want a refusal", status)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	bad := &config.SpotPreferenceArgs{RiskHalfLife: &metav1.Duration{}}
	bad.SetDefaults()
	for name, test := range map[string]struct {
		args runtime.Object
		want string
	}{
		"nothing":              {nil, "SpotPreferenceArgs"},
		"another plugin's":     {&config.ReplicaSafetyArgs{}, "SpotPreferenceArgs"},
		"an invalid half-life": {bad, "riskHalfLife"},
	} {
		if _, err := New(t.Context(), test.args, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that names %s", name, err, test.want)
		}
	}
}
