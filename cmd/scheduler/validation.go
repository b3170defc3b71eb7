package main

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"
)

// checkConfig reads the configuration file like the scheduler and validates its settings for the
// plugins of this project. It returns every error on a separate line with its path. The scheduler
// itself would find fewer errors, and later.
func checkConfig(file string) error {
	cfg, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", file, config.Advise(err))
	}
	errs := checkLock(&cfg.LeaderElection, field.NewPath("leaderElection"))
	profiles, enabled := field.NewPath("profiles"), false
	for i := range cfg.Profiles {
		profile, path := &cfg.Profiles[i], profiles.Index(i)
		errs = slices.Concat(errs, checkPlugins(profile, path), checkWeights(profile, path), checkArgs(profile, path))
		enabled = enabled || enables(profile, replicasafety.Name) || enables(profile, spotpreference.Name)
	}
	if !enabled {
		errs = append(errs, field.Required(profiles,
			"one profile must enable ReplicaSafety and SpotPreference, as in config/scheduler-config.yaml"))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("configuration file %s:\n%w", file, errors.Join(errs.ToAggregate().Errors()...))
}

// checkLock refuses the lock of the cluster's own scheduler, which is the default. Otherwise the
// two schedulers would lead in turns, each for its own pods.
func checkLock(election *componentbaseconfig.LeaderElectionConfiguration, path *field.Path) field.ErrorList {
	if election.LeaderElect && election.ResourceNamespace == metav1.NamespaceSystem && election.ResourceName == "kube-scheduler" {
		return field.ErrorList{field.Invalid(path.Child("resourceName"), election.ResourceName,
			"this is the default and the lock of the cluster's own scheduler: expected another name, such as spot-aware-scheduler")}
	}
	return nil
}

// checkWeights refuses a weight that would prefer on-demand. The error path uses the plugin's name
// and not an index, because the list merges the plugins of the file and the defaults.
func checkWeights(profile *schedulerconfig.KubeSchedulerProfile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(point string, set schedulerconfig.PluginSet) {
		for _, plugin := range set.Enabled {
			if plugin.Name == spotpreference.Name && plugin.Weight < 0 {
				errs = append(errs, field.Invalid(path.Child("plugins", point, "enabled").Key(plugin.Name).Child("weight"), plugin.Weight,
					"expected 1 or more; with 40 the capacity type outranks all default scorers together"))
			}
		}
	}
	check("multiPoint", profile.Plugins.MultiPoint)
	check("score", profile.Plugins.Score)
	return errs
}

// checkPlugins refuses a profile that enables a plugin of this project without the extension points
// of ReplicaSafety that protect the floors. A plugin cannot check the rest of its profile itself.
func checkPlugins(profile *schedulerconfig.KubeSchedulerProfile, path *field.Path) field.ErrorList {
	plugins := profile.Plugins
	enabled := func(name string, at schedulerconfig.PluginSet) bool {
		switch {
		case has(at.Enabled, name):
			return true
		case has(at.Disabled, name), has(at.Disabled, "*"):
			return false
		}
		return has(plugins.MultiPoint.Enabled, name)
	}
	preFilter, filter := enabled(replicasafety.Name, plugins.PreFilter), enabled(replicasafety.Name, plugins.Filter)
	if !preFilter && !filter && !enabled(spotpreference.Name, plugins.PreScore) && !enabled(spotpreference.Name, plugins.Score) {
		return nil
	}
	var errs field.ErrorList
	require := func(enabled bool, point, why string) {
		if !enabled {
			errs = append(errs, field.Required(path.Child("plugins", point, "enabled"),
				"ReplicaSafety must be enabled here (or by multiPoint): "+why))
		}
	}
	require(preFilter, "preFilter", "without it, a profile that prefers spot does not protect floors")
	require(filter, "filter", "without it, a profile that prefers spot does not protect floors")
	require(enabled(replicasafety.Name, plugins.PostFilter), "postFilter",
		"without it, waiting pods are not retried when their owner changes or their fallback is due")
	return errs
}

// enables reports whether a profile enables the plugin at any extension point or by multiPoint.
func enables(profile *schedulerconfig.KubeSchedulerProfile, name string) bool {
	return slices.Contains(profile.Plugins.Names(), name) || has(profile.Plugins.MultiPoint.Enabled, name)
}

func has(plugins []schedulerconfig.Plugin, name string) bool {
	return slices.ContainsFunc(plugins, func(p schedulerconfig.Plugin) bool { return p.Name == name })
}

// checkArgs validates the arguments of the project's plugins. It refuses arguments of a plugin that
// the profile does not enable, because the scheduler would ignore them, for example after a
// misspelled name.
func checkArgs(profile *schedulerconfig.KubeSchedulerProfile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, plugin := range profile.PluginConfig {
		path := path.Child("pluginConfig").Index(i)
		if !enables(profile, plugin.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), plugin.Name, "expected a plugin that the profile enables"))
		}
		if args, ok := plugin.Args.(interface {
			Validate(*field.Path) field.ErrorList
		}); ok {
			errs = append(errs, args.Validate(path.Child("args"))...)
		}
	}
	return errs
}

// checkFeatures refuses the feature gate GenericWorkload, which would make the plugins count
// incorrectly. Snapshot.AssumePod and ForgetPod change a node without a new generation, and
// placement.Counter detects changed nodes by their generation.
func checkFeatures(gates featuregate.FeatureGate) error {
	if !gates.Enabled(features.GenericWorkload) {
		return nil
	}
	return fmt.Errorf("--feature-gates: %[1]s=true is not supported: it changes the scheduler's snapshot without new generations, so "+
		"ReplicaSafety would miscount replicas on spot; expected %[1]s=false, the default (AllAlpha=true turns it on too)",
		features.GenericWorkload)
}
