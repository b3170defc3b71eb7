package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"

	// Logs as JSON, and the metric of the version.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/version"
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
}

// newCommand returns the command; understood becomes true when its flags are.
func newCommand(understood *bool) *cobra.Command {
	var opts options
	logging := logsapi.NewLoggingConfiguration()
	command := &cobra.Command{
		Use: "spot-controller",
		Long: `spot-controller moves pods: away from spot nodes that are about to go, onto
on-demand nodes where a floor is not met, and back to spot when it has room. It
keeps the policy that spot-aware-scheduler places pods by, and reads it from the
scheduler's configuration file.`,
		Args: cobra.NoArgs,
		PersistentPreRun: func(*cobra.Command, []string) {
			*understood = true
			verflag.PrintAndExitIfRequested()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return fmt.Errorf("%w; %w", err, errUsage)
			}
			// Mistakes are told before anything is asked of the API server.
			setup, err := opts.read()
			if err != nil {
				return err
			}
			log.SetLogger(klog.Background())
			cliflag.PrintFlags(command.Flags())
			return start(command.Context(), opts.kubeconfig, setup)
		},
	}

	var sets cliflag.NamedFlagSets
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
	logsapi.AddFlags(logging, sets.FlagSet("logs"))
	global := sets.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout()) // 0, which is no wrapping, where it is no terminal
	cliflag.SetUsageAndHelpFunc(command, sets, columns)
	return command
}

// read reads both files. The error names the mistakes in both.
func (o *options) read() (*setup, error) {
	if o.configFile == "" || o.schedulerConfigFile == "" {
		return nil, fmt.Errorf("--config and --scheduler-config are required; %w", errUsage)
	}
	s := &setup{profile: o.profile}
	err := errors.Join(
		readFile(o.configFile, func(data []byte) (err error) {
			s.Settings, err = controller.Read(data)
			return err
		}),
		readFile(o.schedulerConfigFile, func(data []byte) (err error) {
			s.policy, s.signals, err = config.ReadPolicy(data, o.profile)
			return err
		}),
	)
	if err != nil {
		return nil, err
	}
	s.DryRun = s.DryRun || o.dryRun
	return s, nil
}

// readFile has parse read a file. The error names it; of several mistakes each stands on a line of its own.
func readFile(name string, parse func([]byte) error) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	err = parse(data)
	if mistakes, ok := err.(interface{ Errors() []error }); ok {
		return fmt.Errorf("configuration file %s:\n%w", name, errors.Join(mistakes.Errors()...))
	}
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", name, err)
	}
	return nil
}
