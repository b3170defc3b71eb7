package main

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"
)

// checkConfig reads the scheduler's configuration file as the scheduler does and returns what is wrong with what it says of our
// plugins: every mistake, each on a line with its path. The scheduler itself would notice later, and not all.
func checkConfig(file string) error {
	cfg, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", file, err)
	}
	var mistakes []error
	for i := range cfg.Profiles {
		path := field.NewPath("profiles").Index(i)
		for _, mistake := range slices.Concat(checkPlugins(&cfg.Profiles[i], path), checkArgs(&cfg.Profiles[i], path)) {
			mistakes = append(mistakes, mistake)
		}
	}
	if len(mistakes) > 0 {
		return fmt.Errorf("configuration file %s:\n%w", file, errors.Join(mistakes...))
	}
	return nil
}

// checkPlugins refuses a profile that has one of our plugins, but not all of ReplicaSafety that keeps the floors. A plugin cannot see
// for itself what else its profile has.
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
			errs = append(errs, field.Required(path.Child("plugins", point, "enabled"), "ReplicaSafety must be enabled here (or by multiPoint): "+why))
		}
	}
	require(preFilter, "preFilter", "a profile that prefers spot without it keeps no floors")
	require(filter, "filter", "a profile that prefers spot without it keeps no floors")
	require(enabled(replicasafety.Name, plugins.PostFilter), "postFilter",
		"without it, pods that wait are not tried again when their owner changes or their fallback is due")
	return errs
}

func has(plugins []schedulerconfig.Plugin, name string) bool {
	return slices.ContainsFunc(plugins, func(p schedulerconfig.Plugin) bool { return p.Name == name })
}

// checkArgs validates the arguments of our plugins, and refuses those of a plugin that the profile does not have: they would be
// ignored, and a misspelled name with them.
func checkArgs(profile *schedulerconfig.KubeSchedulerProfile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, plugin := range profile.PluginConfig {
		path := path.Child("pluginConfig").Index(i)
		if !slices.Contains(profile.Plugins.Names(), plugin.Name) && !has(profile.Plugins.MultiPoint.Enabled, plugin.Name) {
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
