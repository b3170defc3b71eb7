package app

import (
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// PolicyFlags are the flags that select the policy of a profile, and the cluster whose pods it
// applies to.
type PolicyFlags struct {
	SchedulerConfigFile, Profile, Kubeconfig string
}

// AddTo adds the flags to a named set.
func (f *PolicyFlags) AddTo(sets *cliflag.NamedFlagSets, set string) {
	flags := sets.FlagSet(set)
	flags.StringVar(&f.SchedulerConfigFile, "scheduler-config", "",
		"Path to the configuration file of spot-aware-scheduler, which has the policy. Required; config/scheduler-config.yaml is an example.")
	flags.StringVar(&f.Profile, "profile", config.DefaultProfile,
		"schedulerName of the profile in --scheduler-config. Its policy applies to the pods that name this profile.")
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "",
		"Path to a kubeconfig. If empty, the ServiceAccount of the pod is used.")
}

// Read reads the policy and the interruption signals of the profile.
func (f *PolicyFlags) Read() (policy *decision.Policy, signals []providers.Signal, err error) {
	err = ReadFile(f.SchedulerConfigFile, func(data []byte) (err error) {
		policy, signals, err = config.ReadPolicy(data, f.Profile)
		return err
	})
	return policy, signals, err
}
