// Command spot-controller moves pods: away from interrupted spot nodes, to nodes that the policy
// requires, and back to spot. The scheduler alone cannot do this, because it only places new pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/round"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

// options are the flags of the command line.
type options struct {
	app.PolicyFlags
	configFile string
	dryRun     bool
	failsafe   bool
}

// setup is the content of the files on the command line.
type setup struct {
	round.Config
	// prices are the prices of nodes in metrics.
	prices *pricing.Prices
	// failsafe: the process only withdraws what a controller that does not run has left.
	failsafe bool
}

func newCommand() *app.Command {
	var opts options
	return &app.Command{
		Name: "spot-controller",
		Long: `spot-controller moves pods: away from spot nodes that are about to be reclaimed,
to on-demand nodes if a floor is not met, and back to spot when it has room. It
enforces the placement policy of spot-aware-scheduler, and reads the policy from
the scheduler's configuration file.`,
		AddFlags: func(sets *cliflag.NamedFlagSets) {
			opts.AddTo(sets, "controller")
			flags := sets.FlagSet("controller")
			flags.StringVar(&opts.configFile, "config", "",
				"The file with the SpotControllerConfiguration. Required; config/controller-config.yaml is an example.")
			flags.BoolVar(&opts.dryRun, "dry-run", false,
				"Only log what would be done. A dry run does not acquire the Lease, so it can run beside an active controller.")
			flags.BoolVar(&opts.failsafe, "failsafe", false,
				"Only remove gates that no controller removes within gateTimeout, and what a controller that no longer runs has left: "+
					"PodDisruptionBudgets and releases of pods. It acquires no Lease. A dry run has no effect on it.")
		},
		Read: func() (func(context.Context) error, error) {
			setup, err := opts.read()
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return start(ctx, opts.Kubeconfig, setup) }, nil
		},
	}
}

// read reads both files, and then the price list. It returns the errors of both files at once.
func (o *options) read() (*setup, error) {
	if o.configFile == "" || o.SchedulerConfigFile == "" {
		return nil, app.UsageError(errors.New("--config and --scheduler-config are required"))
	}
	s := &setup{Config: round.Config{Profile: o.Profile}}
	configErr := app.ReadFile(o.configFile, func(data []byte) (err error) {
		s.SpotControllerConfiguration, err = controller.Read(data)
		return err
	})
	var policyErr error
	s.Policy, s.Signals, policyErr = o.Read()
	err := errors.Join(configErr, policyErr)
	if err != nil {
		return nil, err
	}
	if s.Gating.Enabled {
		if s.GatingLabels, err = gating.NewLabels(s.Policy, s.Gating.Labels, s.Gating.SpotLabel); err != nil {
			return nil, fmt.Errorf("%s: %w", o.configFile, err)
		}
	}
	priceFile := s.Costs.PriceFile
	if priceFile != "" && !filepath.IsAbs(priceFile) {
		priceFile = filepath.Join(filepath.Dir(o.configFile), priceFile)
	}
	if s.prices, err = pricing.ReadFile(priceFile); err != nil {
		return nil, fmt.Errorf("%s: costs.priceFile: %w", o.configFile, err)
	}
	s.DryRun, s.failsafe = s.DryRun || o.dryRun, o.failsafe
	return s, nil
}

func main() { os.Exit(newCommand().Execute(signals.SetupSignalHandler(), os.Args[1:], os.Stderr)) }
