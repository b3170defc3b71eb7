package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/gang"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"
)

const shipped = "../../config/scheduler-config.yaml"

// write returns the path of a configuration file with these profiles (YAML).
func write(t *testing.T, profiles string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scheduler-config.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" +
		"leaderElection: {resourceName: own}\nprofiles:\n" + profiles
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// mistakesIn returns the type and field of each error that err joins.
func mistakesIn(err error) []string {
	var result []string
	for ; err != nil; err = errors.Unwrap(err) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range joined.Unwrap() {
				var fieldErr *field.Error
				if errors.As(one, &fieldErr) {
					result = append(result, fmt.Sprintf("%s: %s", fieldErr.Field, fieldErr.Type))
				}
			}
		}
	}
	return result
}

func TestCheckPlugins(t *testing.T) {
	const (
		noPreFilter = "profiles[0].plugins.preFilter.enabled: Required value"
		noFilter    = "profiles[0].plugins.filter.enabled: Required value"
		noPost      = "profiles[0].plugins.postFilter.enabled: Required value"
	)
	for name, test := range map[string]struct {
		plugins string
		want    []string
	}{
		"ReplicaSafety alone":        {`{multiPoint: {enabled: [{name: ReplicaSafety}]}}`, nil},
		"both":                       {`{multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference, weight: 40}]}}`, nil},
		"SpotPreference alone":       {`{multiPoint: {enabled: [{name: SpotPreference}]}}`, []string{noPreFilter, noFilter, noPost}},
		"SpotPreference as scorer":   {`{score: {enabled: [{name: SpotPreference}]}}`, []string{noPreFilter, noFilter, noPost}},
		"SpotPreference as preScore": {`{preScore: {enabled: [{name: SpotPreference}]}}`, []string{noPreFilter, noFilter, noPost}},
		"each point by itself": {`{preFilter: {enabled: [{name: ReplicaSafety}]}, filter: {enabled: [{name: ReplicaSafety}]},
    postFilter: {enabled: [{name: ReplicaSafety}]}, score: {enabled: [{name: SpotPreference}]}}`, nil},
		"postFilter missing":                           {`{preFilter: {enabled: [{name: ReplicaSafety}]}, filter: {enabled: [{name: ReplicaSafety}]}}`, []string{noPost}},
		"all postFilter plugins disabled":              {`{multiPoint: {enabled: [{name: ReplicaSafety}]}, postFilter: {disabled: [{name: "*"}]}}`, []string{noPost}},
		"only preemption disabled":                     {`{multiPoint: {enabled: [{name: ReplicaSafety}]}, postFilter: {disabled: [{name: DefaultPreemption}]}}`, nil},
		"filter only":                                  {`{filter: {enabled: [{name: ReplicaSafety}]}, score: {enabled: [{name: SpotPreference}]}}`, []string{noPreFilter, noPost}},
		"half of ReplicaSafety without SpotPreference": {`{preFilter: {enabled: [{name: ReplicaSafety}]}}`, []string{noFilter, noPost}},
		"filter disabled by name": {`{multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference}]},
    filter: {disabled: [{name: ReplicaSafety}]}}`, []string{noFilter}},
		"preFilter disabled by star": {`{multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference}]},
    preFilter: {disabled: [{name: "*"}]}}`, []string{noPreFilter}},
		"all disabled, ours enabled again": {`{multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference}]},
    filter: {disabled: [{name: "*"}], enabled: [{name: ReplicaSafety}]}}`, nil},
		"SpotPreference disabled at preScore and score": {`{multiPoint: {enabled: [{name: SpotPreference}]},
    preScore: {disabled: [{name: "*"}]}, score: {disabled: [{name: SpotPreference}]}}`, nil},
		"disabled among the default plugins, but enabled": {`{multiPoint: {disabled: [{name: ReplicaSafety}],
    enabled: [{name: ReplicaSafety}, {name: SpotPreference}]}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "- schedulerName: s\n  plugins: "+test.plugins+"\n")
			if diff := cmp.Diff(test.want, mistakesIn(checkConfig(file))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			// The framework must agree with checkPlugins.
			points := pointsOf(t, file)
			prefers := has(points.Score.Enabled, spotpreference.Name) || has(points.PreScore.Enabled, spotpreference.Name)
			preFilters, filters := has(points.PreFilter.Enabled, replicasafety.Name), has(points.Filter.Enabled, replicasafety.Name)
			postFilters := has(points.PostFilter.Enabled, replicasafety.Name)
			if want := (prefers || preFilters || filters) && !(preFilters && filters && postFilters); want != (test.want != nil) {
				t.Errorf("the framework has preFilter %t, filter %t, postFilter %t, score %t, but errors are %v", preFilters, filters, postFilters, prefers, test.want)
			}
		})
	}
}

func TestCheckConfig(t *testing.T) {
	const ours = "  plugins: {multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference}]}}\n"
	for name, test := range map[string]struct {
		profiles string
		want     []string
	}{
		"invalid arguments": {"- schedulerName: a\n" + ours + "  pluginConfig: [{name: ReplicaSafety, args: {minOnDemand: -1}}]\n",
			[]string{"profiles[0].pluginConfig[0].args.minOnDemand: Invalid value"}},
		"every profile, every error": {"- schedulerName: a\n" + ours + `
  pluginConfig:
  - {name: NodeAffinity, args: {}}
  - {name: ReplicaSafety, args: {minOnDemand: "130%", labelGrace: 5}}
- schedulerName: b
  plugins: {multiPoint: {enabled: [{name: SpotPreference}]}}
  pluginConfig: [{name: SpotPreference, args: {riskHalfLife: 0s}}]
`, []string{
			"profiles[0].pluginConfig[1].args.labelGrace: Invalid value",
			"profiles[0].pluginConfig[1].args.minOnDemand: Invalid value",
			"profiles[1].plugins.preFilter.enabled: Required value",
			"profiles[1].plugins.filter.enabled: Required value",
			"profiles[1].plugins.postFilter.enabled: Required value",
			"profiles[1].pluginConfig[0].args.riskHalfLife: Invalid value",
		}},
		"no plugin of this project":       {"- schedulerName: a\n", []string{"profiles: Required value"}},
		"one profile without the plugins": {"- schedulerName: a\n- schedulerName: b\n" + ours, nil},
		"a negative weight": {`
- schedulerName: a
  plugins:
    multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference, weight: -1}]}
    score: {enabled: [{name: NodeAffinity, weight: 1}, {name: SpotPreference, weight: -40}]}
`, []string{
			"profiles[0].plugins.multiPoint.enabled[SpotPreference].weight: Invalid value",
			"profiles[0].plugins.score.enabled[SpotPreference].weight: Invalid value",
		}},
		"arguments of a misspelled plugin": {"- schedulerName: a\n" + ours + "  pluginConfig: [{name: ReplicaSafty, args: {minOnDemand: 1}}]\n",
			[]string{"profiles[0].pluginConfig[0].name: Invalid value"}},
		"arguments of a plugin that is enabled at one point": {`
- schedulerName: a
  plugins: {preFilter: {enabled: [{name: ReplicaSafety}]}, filter: {enabled: [{name: ReplicaSafety}]}, postFilter: {enabled: [{name: ReplicaSafety}]}}
  pluginConfig: [{name: ReplicaSafety, args: {}}]
`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, test.profiles)
			err := checkConfig(file)
			if diff := cmp.Diff(test.want, mistakesIn(err)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if err != nil && !strings.Contains(err.Error(), file) {
				t.Errorf("error %q does not name the file", err)
			}
		})
	}
}

// The default is the lock of the cluster's own scheduler.
func TestCheckLock(t *testing.T) {
	for name, test := range map[string]struct {
		election string
		want     []string
	}{
		"default":              {"{}", []string{"leaderElection.resourceName: Invalid value"}},
		"by name":              {"{resourceName: kube-scheduler, resourceNamespace: kube-system}", []string{"leaderElection.resourceName: Invalid value"}},
		"its own":              {"{resourceName: own}", nil},
		"in another namespace": {"{resourceNamespace: own}", nil},
		"none":                 {"{leaderElect: false}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "scheduler-config.yaml")
			text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: " + test.election +
				"\nprofiles: [{plugins: {multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference}]}}}]\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, mistakesIn(checkConfig(file))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckConfigUnreadable(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	if err := checkConfig(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing file: %v", err)
	}
	folder := t.TempDir()
	if err := checkConfig(folder); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("folder: %v", err)
	}
	for name, test := range map[string]struct{ profiles, want string }{
		"no YAML":          {"- [", ""},
		"unknown field":    {"- schedulerNam: a\n", "docs/upgrading.md"},
		"unknown argument": {"- {schedulerName: a, pluginConfig: [{name: ReplicaSafety, args: {minOnDemnd: 1}}]}\n", "docs/upgrading.md"},
	} {
		file := write(t, test.profiles)
		if err := checkConfig(file); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShippedConfig(t *testing.T) {
	if err := checkConfig(shipped); err != nil {
		t.Fatal(err)
	}
	cfg := load(t, shipped)
	if got := cfg.Profiles[0].SchedulerName; got != "spot-aware-scheduler" {
		t.Errorf("name of the first profile is %q", got)
	}
	lock := cfg.LeaderElection
	if got := lock.ResourceNamespace + "/" + lock.ResourceName; !lock.LeaderElect || got != "kube-system/spot-aware-scheduler" {
		t.Errorf("leader election %t on %s", lock.LeaderElect, got)
	}
	if kubeconfig := cfg.ClientConnection.Kubeconfig; kubeconfig != "" {
		t.Errorf("the path of a kubeconfig in it: %s", kubeconfig)
	}
	points := pointsOf(t, shipped)
	// The framework stops at the first PostFilter plugin that nominates a node, so ReplicaSafety
	// must run before.
	var postFilter []string
	for _, plugin := range points.PostFilter.Enabled {
		postFilter = append(postFilter, plugin.Name)
	}
	if diff := cmp.Diff([]string{replicasafety.Name, names.DefaultPreemption}, postFilter); diff != "" {
		t.Errorf("postFilter (-want +got):\n%s", diff)
	}
	for point, at := range map[string]schedulerconfig.PluginSet{"preFilter": points.PreFilter, "filter": points.Filter} {
		if !has(at.Enabled, replicasafety.Name) {
			t.Errorf("no ReplicaSafety at %s", point)
		}
	}
	if want := (schedulerconfig.Plugin{Name: spotpreference.Name, Weight: 40}); !slices.Contains(points.Score.Enabled, want) {
		t.Errorf("no %v at score: %v", want, points.Score.Enabled)
	}
}

func load(t *testing.T, file string) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	cfg, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// pointsOf returns the plugins that the scheduler's own framework runs at each extension point for
// the first profile of the file. Stubs implement these extension points.
func pointsOf(t *testing.T, file string) *schedulerconfig.Plugins {
	t.Helper()
	profile := &load(t, file).Profiles[0]
	registry := frameworkruntime.Registry{
		queuesort.Name:     queuesort.New,
		defaultbinder.Name: defaultbinder.New,
	}
	enabled := profile.Plugins.Names()
	for _, plugin := range profile.Plugins.MultiPoint.Enabled {
		enabled = append(enabled, plugin.Name)
	}
	for _, name := range enabled {
		if _, real := registry[name]; real {
			continue
		}
		registry[name] = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			switch stub := (stub{name}); name {
			case replicasafety.Name:
				return safetyStub{postFilterStub{stub}}, nil
			case spotpreference.Name:
				return scoreStub{stub}, nil
			case names.DefaultPreemption:
				return postFilterStub{stub}, nil
			case gang.Name:
				return gangStub{postFilterStub{stub}}, nil
			default:
				return stub, nil
			}
		}
	}
	metrics.Register() // the framework requires these metrics
	framework, err := frameworkruntime.NewFramework(t.Context(), registry, profile)
	if err != nil {
		t.Fatal(err)
	}
	return framework.ListPlugins()
}

type stub struct{ name string }

func (s stub) Name() string { return s.name }

type postFilterStub struct{ stub }

func (postFilterStub) PostFilter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	return nil, nil
}

type safetyStub struct{ postFilterStub }

func (safetyStub) PreFilter(context.Context, fwk.CycleState, *v1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, nil
}
func (safetyStub) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
func (safetyStub) Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status {
	return nil
}

type gangStub struct{ postFilterStub }

func (gangStub) Less(fwk.QueuedPodInfo, fwk.QueuedPodInfo) bool { return false }

type scoreStub struct{ stub }

func (scoreStub) PreScore(context.Context, fwk.CycleState, *v1.Pod, []fwk.NodeInfo) *fwk.Status {
	return nil
}
func (scoreStub) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}
func (scoreStub) ScoreExtensions() fwk.ScoreExtensions { return nil }
