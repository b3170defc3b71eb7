package answers_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	leases "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"

	// The scheduler decodes the plugins' arguments.
	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

// scheduler has the plugins in the scheduler's own framework, with the scheduler's own cache.
type scheduler struct {
	*testing.T
	framework framework.Framework
	cache     cache.Cache
	snapshot  *cache.Snapshot
}

func newScheduler(t *testing.T, c *scenario) *scheduler {
	t.Helper()
	s := &scheduler{T: t, cache: cache.New(t.Context(), nil, false), snapshot: cache.NewEmptySnapshot()}
	client := c.client()
	factory := informers.NewSharedInformerFactory(client, 0)
	var err error
	s.framework, err = frameworkruntime.NewFramework(t.Context(), frameworkruntime.Registry{
		queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New,
		replicasafety.Name: replicasafety.NewFactory(nil, &leases.Memory{}), spotpreference.Name: spotpreference.New,
	}, profileOf(t, c.configuration()), frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(s.snapshot), frameworkruntime.WithPodNominator(noQueue{}),
		frameworkruntime.WithPodActivator(noQueue{}), frameworkruntime.WithEventRecorder(events.NewFakeRecorder(100)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { frameworkruntime.WaitForShutdown(s.framework) })
	start(t, factory)
	logger := klog.FromContext(t.Context())
	for _, object := range c.objects {
		switch object := object.(type) {
		case *v1.Node:
			s.cache.AddNode(logger, object)
		case *v1.Pod:
			if object.Spec.NodeName != "" {
				if err := s.cache.AddPod(logger, object); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return s
}

// profileOf returns the profile of a configuration as the scheduler reads it. It contains only this
// project's plugins and the plugins that every profile requires.
func profileOf(t *testing.T, configuration string) *schedulerconfig.KubeSchedulerProfile {
	t.Helper()
	object, _, err := schedulerscheme.Codecs.UniversalDecoder().Decode([]byte(configuration), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := object.(*schedulerconfig.KubeSchedulerConfiguration).Profiles[0]
	return &schedulerconfig.KubeSchedulerProfile{
		SchedulerName: read.SchedulerName,
		Plugins: &schedulerconfig.Plugins{MultiPoint: schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{
			{Name: queuesort.Name}, {Name: defaultbinder.Name}, {Name: replicasafety.Name}, {Name: spotpreference.Name, Weight: 40}}}},
		PluginConfig: slices.DeleteFunc(read.PluginConfig, func(c schedulerconfig.PluginConfig) bool {
			return c.Name != replicasafety.Name && c.Name != spotpreference.Name
		}),
	}
}

// noQueue has no nominated pods, and no pods to activate.
type noQueue struct{}

func (noQueue) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (noQueue) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (noQueue) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
func (noQueue) NominatedPodsForNode(string) []fwk.PodInfo                     { return nil }
func (noQueue) Activate(klog.Logger, map[string]*v1.Pod)                      {}

// cycle is a scheduling cycle up to the scores.
type cycle struct {
	state    fwk.CycleState
	rejected string // reason of the rejection by PreFilter; "" if it did not reject the pod
	answers  answers
	feasible []fwk.NodeInfo
}

func (s *scheduler) try(pod *v1.Pod) *cycle {
	s.Helper()
	if err := s.cache.UpdateSnapshot(klog.FromContext(s.Context()), s.snapshot); err != nil {
		s.Fatal(err)
	}
	c := &cycle{state: framework.NewCycleState(), answers: answers{}}
	_, status, _ := s.framework.RunPreFilterPlugins(s.Context(), c.state, pod)
	switch {
	case status.IsRejected():
		c.rejected = strings.Join(status.Reasons(), "; ")
		return c
	case !status.IsSuccess():
		s.Fatalf("PreFilter: %v", status)
	}
	nodes, err := s.snapshot.NodeInfos().List()
	if err != nil {
		s.Fatal(err)
	}
	for _, node := range nodes {
		status := s.framework.RunFilterPluginsWithNominatedPods(s.Context(), c.state, pod, node)
		switch name := node.Node().Name; {
		case status.IsSuccess():
			c.answers[name], c.feasible = "", append(c.feasible, node)
		case status.IsRejected():
			c.answers[name] = strings.Join(status.Reasons(), "; ")
		default:
			s.Fatalf("Filter of %s: %v", name, status)
		}
	}
	return c
}

// waits is try for a pod that fits on no node.
func (s *scheduler) waits(pod *v1.Pod) {
	s.Helper()
	s.framework.RunPostFilterPlugins(s.Context(), s.try(pod).state, pod, framework.NewDefaultNodeToStatus())
}

// best returns the nodes with the highest score among the feasible nodes.
func (s *scheduler) best(pod *v1.Pod, c *cycle) (best []string) {
	s.Helper()
	if len(c.feasible) == 0 {
		return nil
	}
	if status := s.framework.RunPreScorePlugins(s.Context(), c.state, pod, c.feasible); !status.IsSuccess() && !status.IsSkip() {
		s.Fatalf("PreScore: %v", status)
	}
	scores, status := s.framework.RunScorePlugins(s.Context(), c.state, pod, c.feasible)
	if !status.IsSuccess() {
		s.Fatalf("Score: %v", status)
	}
	highest := slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int { return int(a.TotalScore - b.TotalScore) }).TotalScore
	for _, score := range scores {
		if score.TotalScore == highest {
			best = append(best, score.Name)
		}
	}
	return best
}

// planned returns the plugin's state in a cycle.
func (c *cycle) planned(t *testing.T) *placement.State {
	t.Helper()
	state := placement.Read(c.state)
	if state == nil {
		t.Fatal("the plugin made no plan")
	}
	return state
}
