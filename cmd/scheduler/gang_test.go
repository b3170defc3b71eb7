package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	gangconfig "sigs.k8s.io/scheduler-plugins/apis/config"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/gang"
)

const withGangs = "../../config/gang.yaml"

// TestGangConfig keeps config/gang.yaml to what config/scheduler-config.yaml says, with Coscheduling added and nothing else.
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

// TestGangOrder shows what the scheduler makes of config/gang.yaml: the queue is Coscheduling's, and it rejects gangs after ReplicaSafety
// and preemption have had their turn.
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

// TestGangArgs shows that the arguments are decoded: nothing may read the scheduler's schemes before they are registered.
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
