package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// DefaultProfile is the schedulerName of the profile that ships.
const DefaultProfile = "spot-aware-scheduler"

// replicaSafety is the name of the plugin whose arguments are the policy.
const replicaSafety = "ReplicaSafety"

// ReadPolicy returns the policy that the scheduler keeps with a KubeSchedulerConfiguration (YAML or JSON), for the first of its profiles
// whose schedulerName is profile, and the signals of nodes, as ReplicaSafetyArgs.Policy does. So every program that knows the
// policy knows it from the one file. It decodes as strictly as the scheduler, but for the arguments of plugins that are neither ours
// nor Kubernetes' own. The error names all mistakes in the policy, each with its path, value and what was expected.
func ReadPolicy(data []byte, profile string) (*decision.Policy, []kube.Signal, error) {
	config, err := decodeConfiguration(data)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for i := range config.Profiles {
		path, p := field.NewPath("profiles").Index(i), &config.Profiles[i]
		// What the scheduler fills in where a name is missing.
		if name := ptr.Deref(p.SchedulerName, "default-scheduler"); name != profile {
			names = append(names, name)
			continue
		}
		args, path, err := policyArgs(p, path)
		if err != nil {
			return nil, nil, err
		}
		policy, signals, errs := args.convert(path)
		if len(errs) > 0 {
			return nil, nil, errs.ToAggregate()
		}
		return policy, signals, nil
	}
	return nil, nil, field.Invalid(field.NewPath("profiles"), strings.Join(names, ", "),
		fmt.Sprintf("expected one whose schedulerName is %q", profile))
}

func decodeConfiguration(data []byte) (*kubescheduler.KubeSchedulerConfiguration, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheduler.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	object, kind, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	config, ok := object.(*kubescheduler.KubeSchedulerConfiguration)
	if !ok {
		return nil, field.Invalid(field.NewPath("kind"), kind.Kind, "expected KubeSchedulerConfiguration")
	}
	return config, config.DecodeNestedObjects(decoder)
}

// policyArgs returns the arguments of ReplicaSafety in a profile, with their defaults, and where they stand or would stand.
func policyArgs(profile *kubescheduler.KubeSchedulerProfile, path *field.Path) (*ReplicaSafetyArgs, *field.Path, error) {
	plugins := ptr.Deref(profile.Plugins, kubescheduler.Plugins{})
	enabled := slices.Concat(plugins.MultiPoint.Enabled, plugins.PreFilter.Enabled, plugins.Filter.Enabled)
	if !slices.ContainsFunc(enabled, func(p kubescheduler.Plugin) bool { return p.Name == replicaSafety }) {
		return nil, nil, field.Required(path.Child("plugins", "multiPoint", "enabled"),
			replicaSafety+" must be enabled: a profile without it keeps no floors")
	}
	args := &ReplicaSafetyArgs{}
	path = path.Child("pluginConfig")
	for i := range profile.PluginConfig {
		if p := &profile.PluginConfig[i]; p.Name == replicaSafety {
			args, _ = p.Args.Object.(*ReplicaSafetyArgs) // the decoder made it of the kind that its plugin's name says
			path = path.Index(i).Child("args")
			break
		}
	}
	args.SetDefaults()
	return args, path, nil
}
