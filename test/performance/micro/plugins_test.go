package micro

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	intree "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"
)

const profile = "spot-aware-scheduler"

// plugins are the plugins of one scheduler process by name, with their default args. They have not
// been called yet.
type plugins map[string]fwk.Plugin

// newPlugins starts a process on c. Its plugins use up to parallelism goroutines. stop stops the
// process.
func newPlugins(t testing.TB, c *cluster, parallelism int) (made plugins, stop func()) {
	t.Helper()
	made = plugins{}
	ctx, cancel := context.WithCancel(c.ctx)
	factory := informers.NewSharedInformerFactory(c.client, 0)
	registry := intree.NewInTreeRegistry()
	maps.Copy(registry, frameworkruntime.Registry{replicasafety.Name: replicasafety.NewFactory(nil, &leader.Memory{}), spotpreference.Name: spotpreference.New})
	configured := &schedulerconfig.KubeSchedulerProfile{SchedulerName: profile, Plugins: &schedulerconfig.Plugins{}}
	for _, name := range []string{queuesort.Name, defaultbinder.Name, // every profile requires these
		nodeaffinity.Name, podtopologyspread.Name, replicasafety.Name, spotpreference.Name} {
		configured.Plugins.MultiPoint.Enabled = append(configured.Plugins.MultiPoint.Enabled, schedulerconfig.Plugin{Name: name})
		kind := configv1.SchemeGroupVersion.WithKind(name + "Args")
		if args, _, err := scheme.Codecs.UniversalDecoder().Decode(nil, &kind, nil); err == nil {
			configured.PluginConfig = append(configured.PluginConfig, schedulerconfig.PluginConfig{Name: name, Args: args})
		}
		build := registry[name]
		registry[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := build(ctx, args, handle)
			made[name] = plugin
			return plugin, err
		}
	}
	_, err := frameworkruntime.NewFramework(ctx, registry, configured,
		frameworkruntime.WithClientSet(c.client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(c.snapshot), frameworkruntime.WithParallelism(parallelism),
		frameworkruntime.WithPodActivator(sleeper{}), frameworkruntime.WithEventRecorder(events.NewFakeRecorder(1)))
	must(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return made, func() { cancel(); factory.Shutdown() }
}

// sleeper replaces the scheduling queue, and has no pods.
type sleeper struct{}

func (sleeper) Activate(klog.Logger, map[string]*v1.Pod) {}

// cycle runs some plugins as in the scheduling cycles of pods like pod, without the framework
// around them. As in the framework, a plugin that skips the pod at PreFilter or PreScore is not
// called at Filter or Score.
type cycle struct {
	cluster   *cluster
	pod       *v1.Pod
	preFilter []fwk.PreFilterPlugin
	filter    []fwk.FilterPlugin
	preScore  []fwk.PreScorePlugin
	score     []fwk.ScorePlugin
	narrow    bool // as this project's scheduler searches
	ran       int
}

// newCycle runs one cycle and checks an assumption of the benchmarks: the plugins admit pod to
// every node.
func newCycle(t testing.TB, c *cluster, pod *v1.Pod, narrow bool, some ...fwk.Plugin) *cycle {
	t.Helper()
	k := &cycle{cluster: c, pod: pod, narrow: narrow}
	state := framework.NewCycleState()
	for _, plugin := range some {
		skipped := false
		if p, ok := plugin.(fwk.PreFilterPlugin); ok {
			k.preFilter = append(k.preFilter, p)
			skipped = untilSynced(t, p, state, pod, c.infos).IsSkip()
		}
		if p, ok := plugin.(fwk.FilterPlugin); ok && !skipped {
			k.filter = append(k.filter, p)
			for _, node := range c.infos {
				must(t, p.Filter(c.ctx, state, pod, node).AsError())
			}
		}
	}
	for _, plugin := range some {
		skipped := false
		if p, ok := plugin.(fwk.PreScorePlugin); ok {
			k.preScore = append(k.preScore, p)
			status := p.PreScore(c.ctx, state, pod, c.window(0))
			if skipped = status.IsSkip(); !skipped {
				must(t, status.AsError())
			}
		}
		if p, ok := plugin.(fwk.ScorePlugin); ok && !skipped {
			k.score = append(k.score, p)
		}
	}
	scores := k.run()
	if len(k.score) > 0 && !slices.ContainsFunc(scores, func(s fwk.NodeScore) bool { return s.Score > 0 }) {
		t.Fatalf("no node has a score above 0")
	}
	return k
}

// untilSynced runs PreFilter until the plugin's informer handlers have processed their first lists.
func untilSynced(t testing.TB, p fwk.PreFilterPlugin, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		_, status := p.PreFilter(t.Context(), state, pod, nodes)
		if status.IsSuccess() || status.IsSkip() {
			return status
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s at PreFilter: %v", p.Name(), status.AsError())
		}
	}
}

// begin returns the state of a new cycle.
func (k *cycle) begin() fwk.CycleState {
	state := framework.NewCycleState()
	if k.narrow {
		placement.Narrow(state)
	}
	return state
}

// prepare runs PreFilter and PreScore, which the framework calls once per cycle. It returns the
// cycle's state and the nodes to search: the nodes that kube-scheduler would search, or the nodes
// that a plugin names.
func (k *cycle) prepare() (fwk.CycleState, []fwk.NodeInfo) {
	state, searched := k.begin(), k.cluster.window(k.ran)
	k.ran++
	for _, p := range k.preFilter {
		if result, _ := p.PreFilter(k.cluster.ctx, state, k.pod, k.cluster.infos); !result.AllNodes() {
			searched = make([]fwk.NodeInfo, 0, len(result.NodeNames))
			for name := range result.NodeNames {
				if info, err := k.cluster.snapshot.Get(name); err == nil {
					searched = append(searched, info)
				}
			}
		}
	}
	for _, p := range k.preScore {
		p.PreScore(k.cluster.ctx, state, k.pod, searched)
	}
	return state, searched
}

// run runs a whole cycle over the nodes to search, and returns the scores of the last plugin.
func (k *cycle) run() fwk.NodeScoreList {
	ctx := k.cluster.ctx
	state, searched := k.prepare()
	for _, node := range searched {
		for _, p := range k.filter {
			p.Filter(ctx, state, k.pod, node)
		}
	}
	scores := make(fwk.NodeScoreList, len(searched))
	for _, p := range k.score {
		for i, node := range searched {
			score, _ := p.Score(ctx, state, k.pod, node)
			scores[i] = fwk.NodeScore{Name: node.Node().Name, Score: score}
		}
		p.ScoreExtensions().NormalizeScore(ctx, state, k.pod, scores)
	}
	return scores
}

// refused returns the nodes that filter rejects for the pod of state.
func refused(t testing.TB, c *cluster, filter fwk.FilterPlugin, state fwk.CycleState, pod *v1.Pod) []fwk.NodeInfo {
	t.Helper()
	var nodes []fwk.NodeInfo
	for _, node := range c.infos {
		status := filter.Filter(c.ctx, state, pod, node)
		if isSpot(node.Node()) == status.IsSuccess() {
			t.Fatalf("a pod for on-demand only, on a node with labels %v: %v", node.Node().Labels, status)
		}
		if !status.IsSuccess() {
			nodes = append(nodes, node)
		}
	}
	return nodes
}
