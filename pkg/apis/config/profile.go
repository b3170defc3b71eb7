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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/decoding"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// DefaultProfile is the schedulerName of the profile in the shipped configuration.
const DefaultProfile = "spot-aware-scheduler"

// replicaSafety is the plugin whose arguments are the policy.
const replicaSafety = "ReplicaSafety"

// ReadPolicy returns the policy and the interruption signals in a KubeSchedulerConfiguration (YAML
// or JSON), as ReplicaSafetyArgs.Policy does. They belong to the first profile whose
// schedulerName is profile. All programs that need the policy read it from this one file.
//
// ReadPolicy decodes as strictly as the scheduler, except for the arguments of third-party plugins.
// The error contains all errors in the policy, each with its path, value and expected format.
func ReadPolicy(data []byte, profile string) (*decision.Policy, []providers.Signal, error) {
	p, path, err := readProfile(data, profile)
	if err != nil {
		return nil, nil, err
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

func readProfile(data []byte, profile string) (*kubescheduler.KubeSchedulerProfile, *field.Path, error) {
	config, err := decodeConfiguration(data)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for i := range config.Profiles {
		p := &config.Profiles[i]
		// The scheduler's default for a missing name.
		name := ptr.Deref(p.SchedulerName, "default-scheduler")
		if name == profile {
			return p, field.NewPath("profiles").Index(i), nil
		}
		names = append(names, name)
	}
	return nil, nil, field.Invalid(field.NewPath("profiles"), strings.Join(names, ", "),
		fmt.Sprintf("expected a profile whose schedulerName is %q", profile))
}

func decodeConfiguration(data []byte) (*kubescheduler.KubeSchedulerConfiguration, error) {
	if err := decoding.OneDocument(data); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheduler.AddToScheme, AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	object, kind, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, Advise(err)
	}
	config, ok := object.(*kubescheduler.KubeSchedulerConfiguration)
	if !ok {
		return nil, field.Invalid(field.NewPath("kind"), kind.Kind, "expected KubeSchedulerConfiguration")
	}
	return config, Advise(config.DecodeNestedObjects(decoder))
}

// Advise adds to an error from decoding a KubeSchedulerConfiguration what was expected: an unknown
// field or version is often of another release. It returns other errors unchanged.
func Advise(err error) error {
	switch {
	case runtime.IsStrictDecodingError(err):
		return fmt.Errorf("%w; expected each field of docs/reference/configuration.md at most once; for a file of another release see "+
			"docs/upgrading.md", err)
	case runtime.IsNotRegisteredError(err):
		return fmt.Errorf("%w; expected apiVersion %s and kind KubeSchedulerConfiguration", err, kubescheduler.SchemeGroupVersion)
	}
	return err
}

// policyArgs returns the arguments of ReplicaSafety in a profile, and the field path that they have
// or would have.
func policyArgs(profile *kubescheduler.KubeSchedulerProfile, path *field.Path) (*ReplicaSafetyArgs, *field.Path, error) {
	plugins := ptr.Deref(profile.Plugins, kubescheduler.Plugins{})
	enabled := slices.Concat(plugins.MultiPoint.Enabled, plugins.PreFilter.Enabled, plugins.Filter.Enabled)
	if !slices.ContainsFunc(enabled, func(p kubescheduler.Plugin) bool { return p.Name == replicaSafety }) {
		return nil, nil, field.Required(path.Child("plugins", "multiPoint", "enabled"),
			replicaSafety+" must be enabled: a profile without it enforces no floor")
	}
	args := &ReplicaSafetyArgs{} // without defaults
	path = path.Child("pluginConfig")
	i := slices.IndexFunc(profile.PluginConfig, func(p kubescheduler.PluginConfig) bool { return p.Name == replicaSafety })
	if i >= 0 {
		path = path.Index(i).Child("args")
		if configured, ok := profile.PluginConfig[i].Args.Object.(*ReplicaSafetyArgs); ok { // the decoder chose the type by the plugin's name
			args = configured
		}
	}
	return args, path, nil
}
