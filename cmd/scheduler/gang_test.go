package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	gangconfig "sigs.k8s.io/scheduler-plugins/apis/config"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/gang"
)

const withGangs = "../../config/gang.yaml"

// TestGangConfig checks that config/gang.yaml equals config/scheduler-config.yaml plus
// Coscheduling.
func TestGangConfig(t *testing.T) {
	if err := checkConfig(withGangs); err != nil {
		t.Fatal(err)
	}
	want, got := decodeYAML(t, shipped), decodeYAML(t, withGangs)
	profile := want["profiles"].([]any)[0].(map[string]any)
	plugins := profile["plugins"].(map[string]any)
	multiPoint := plugins["multiPoint"].(map[string]any)
	coscheduling := map[string]any{"name": gang.Name}
	plugins["queueSort"] = map[string]any{"enabled": []any{coscheduling}, "disabled": []any{map[string]any{"name": "*"}}}
	multiPoint["enabled"] = append(multiPoint["enabled"].([]any), coscheduling)
	profile["pluginConfig"] = append(profile["pluginConfig"].([]any), map[string]any{"name": gang.Name, "args": map[string]any{
		"permitWaitingTimeSeconds": 60.0, "podGroupBackoffSeconds": 0.0, "podGroupRejectPercentage": 0.0,
	}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s with Coscheduling (-) is not %s (+):\n%s", shipped, withGangs, diff)
	}
}

// TestGangOrder checks the plugin order of config/gang.yaml: Coscheduling orders the queue, and it
// rejects gangs after ReplicaSafety and preemption have run.
func TestGangOrder(t *testing.T) {
	points := pointsOf(t, withGangs)
	names := func(set schedulerconfig.PluginSet) (names []string) {
		for _, plugin := range set.Enabled {
			names = append(names, plugin.Name)
		}
		return names
	}
	if diff := cmp.Diff([]string{gang.Name}, names(points.QueueSort)); diff != "" {
		t.Errorf("queueSort (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ReplicaSafety", "DefaultPreemption", gang.Name}, names(points.PostFilter)); diff != "" {
		t.Errorf("postFilter (-want +got):\n%s", diff)
	}
}

// TestGangArgs checks that the arguments are decoded: no code may read the scheduler's schemes
// before they are registered.
func TestGangArgs(t *testing.T) {
	cfg, err := options.LoadConfigFromFile(klog.Background(), withGangs)
	if err != nil {
		t.Fatal(err)
	}
	for _, plugin := range cfg.Profiles[0].PluginConfig {
		if plugin.Name == gang.Name {
			want := &gangconfig.CoschedulingArgs{PermitWaitingTimeSeconds: 60}
			if diff := cmp.Diff(want, plugin.Args); diff != "" {
				t.Errorf("args (-want +got):\n%s", diff)
			}
			return
		}
	}
	t.Error("no args of Coscheduling")
}

// TestSchedulesGangs checks that a profile schedules gangs if Coscheduling is enabled at Permit,
// and not if it only orders the queue.
func TestSchedulesGangs(t *testing.T) {
	coscheduling := []schedulerconfig.Plugin{{Name: gang.Name}}
	sorts := schedulerconfig.PluginSet{Enabled: coscheduling}
	for name, test := range map[string]struct {
		plugins schedulerconfig.Plugins
		want    bool
	}{
		"at all points": {schedulerconfig.Plugins{QueueSort: sorts, Permit: schedulerconfig.PluginSet{Enabled: coscheduling}}, true},
		"in the queue":  {schedulerconfig.Plugins{QueueSort: sorts}, false},
		"not at all":    {schedulerconfig.Plugins{QueueSort: schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: queuesort.Name}}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var handle fwk.Handle
			registry := frameworkruntime.Registry{
				queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New,
				gang.Name: func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return fakeCoscheduling{}, nil },
				"Handle": func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
					handle = h
					return fakePlugin{}, nil
				},
			}
			test.plugins.Bind = schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: defaultbinder.Name}}}
			test.plugins.PostBind = schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: "Handle"}}}
			_, err := frameworkruntime.NewFramework(t.Context(), registry, &schedulerconfig.KubeSchedulerProfile{SchedulerName: "s", Plugins: &test.plugins})
			if err != nil {
				t.Fatal(err)
			}
			if got := schedulesGangs(handle); got != test.want {
				t.Errorf("schedulesGangs = %t, want %t", got, test.want)
			}
		})
	}
}

// fakePlugin records the handle of its profile.
type fakePlugin struct{}

func (fakePlugin) Name() string                                              { return "Handle" }
func (fakePlugin) PostBind(context.Context, fwk.CycleState, *v1.Pod, string) {}

// fakeCoscheduling replaces Coscheduling, which requires an API server.
type fakeCoscheduling struct{ fakePlugin }

func (fakeCoscheduling) Name() string                                   { return gang.Name }
func (fakeCoscheduling) Less(fwk.QueuedPodInfo, fwk.QueuedPodInfo) bool { return false }
func (fakeCoscheduling) Permit(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.Status, time.Duration) {
	return nil, 0
}

func decodeYAML(t *testing.T, file string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := yaml.Unmarshal(data, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}
