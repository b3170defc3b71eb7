package main

import (
	"context"
	"errors"
	"fmt"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/daemon"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// options are the command line.
type options struct {
	configFile, schedulerConfigFile string
	profile                         string
	kubeconfig                      string
	dryRun                          bool
}

// setup is what the files of the command line say.
type setup struct {
	*controller.Settings
	profile string
	policy  *decision.Policy
	signals []kube.Signal
	// gatingLabels are nil unless gating is enabled.
	gatingLabels *gating.Labels
}

// newCommand returns the command.
func newCommand() *daemon.Command {
	var opts options
	return &daemon.Command{
		Name: "spot-controller",
		Long: `spot-controller moves pods: away from spot nodes that are about to go, onto
on-demand nodes where a floor is not met, and back to spot when it has room. It
keeps the policy that spot-aware-scheduler places pods by, and reads it from the
scheduler's configuration file.`,
		AddFlags: func(sets *cliflag.NamedFlagSets) {
			flags := sets.FlagSet("controller")
			flags.StringVar(&opts.configFile, "config", "",
				"The file with the SpotControllerConfiguration. Required; config/controller-config.yaml is one to start from.")
			flags.StringVar(&opts.schedulerConfigFile, "scheduler-config", "",
				"The scheduler's configuration file, which has the policy. Required.")
			flags.StringVar(&opts.profile, "profile", config.DefaultProfile,
				"The schedulerName of the profile in it whose policy is kept, for the pods that name it.")
			flags.StringVar(&opts.kubeconfig, "kubeconfig", "",
				"A kubeconfig with the cluster and the credential. Without, those of the ServiceAccount of the pod that this runs in.")
			flags.BoolVar(&opts.dryRun, "dry-run", false,
				"Say in the log what would be done, and do nothing. No lease is taken, so that it can run beside a controller that acts.")
		},
		Read: func() (func(context.Context) error, error) {
			setup, err := opts.read()
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return start(ctx, opts.kubeconfig, setup) }, nil
		},
	}
}

// read reads both files. The error names the mistakes in both.
func (o *options) read() (*setup, error) {
	if o.configFile == "" || o.schedulerConfigFile == "" {
		return nil, daemon.Misuse(errors.New("--config and --scheduler-config are required"))
	}
	s := &setup{profile: o.profile}
	err := errors.Join(
		daemon.ReadFile(o.configFile, func(data []byte) (err error) {
			s.Settings, err = controller.Read(data)
			return err
		}),
		daemon.ReadFile(o.schedulerConfigFile, func(data []byte) (err error) {
			s.policy, s.signals, err = config.ReadPolicy(data, o.profile)
			return err
		}),
	)
	if err != nil {
		return nil, err
	}
	if s.Gating {
		if s.gatingLabels, err = gating.NewLabels(s.policy, s.GatingLabels, s.GatingSpotLabel); err != nil {
			return nil, fmt.Errorf("%s: %w", o.configFile, err)
		}
	}
	s.DryRun = s.DryRun || o.dryRun
	return s, nil
}
