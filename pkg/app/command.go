// Package app contains the common parts of spot-controller and spot-extender: command line,
// connection to the API server, informers and metrics.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"

	// Register logs as JSON and the metric of the version.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// Exit statuses.
const (
	ExitFailed = 1
	ExitUsage  = 2
)

// Command is a program that runs until its context ends.
type Command struct {
	Name, Long string
	// AddFlags adds the program's own flags, in named sets.
	AddFlags func(*cliflag.NamedFlagSets)
	// Read reads the files that the flags name and returns a function that runs the program, so
	// errors are reported before the first call to the API server. It returns a UsageError for an
	// error of the command line itself.
	Read func() (start func(context.Context) error, err error)
}

// UsageError marks err as an error of the command line.
func UsageError(err error) error { return usageError{err} }

type usageError struct{ error }

// Execute runs a command line and returns the exit status.
func (c *Command) Execute(ctx context.Context, args []string, stderr io.Writer) int {
	parsed := false // the flags were parsed; earlier errors are wrong usage
	command := c.cobra(&parsed)
	command.SetArgs(args)
	command.SetErr(stderr)
	command.SetContext(ctx)
	err := cli.RunNoErrOutput(command)
	switch wrong := (usageError{}); {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s: %v; try %s --help\n", c.Name, err, c.Name)
		return ExitUsage
	case !parsed:
		fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
		return ExitUsage
	default:
		klog.ErrorS(err, "command failed")
		klog.Flush()
		return ExitFailed
	}
}

// cobra returns the command. It sets parsed after cobra has accepted the command line.
func (c *Command) cobra(parsed *bool) *cobra.Command {
	logging := logsapi.NewLoggingConfiguration()
	command := &cobra.Command{
		Use:  c.Name,
		Long: c.Long,
		Args: cobra.NoArgs,
		PersistentPreRun: func(*cobra.Command, []string) {
			*parsed = true
			verflag.PrintAndExitIfRequested()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return UsageError(err)
			}
			start, err := c.Read()
			if err != nil {
				return err
			}
			log.SetLogger(klog.Background())
			cliflag.PrintFlags(command.Flags())
			return start(command.Context())
		},
	}
	var sets cliflag.NamedFlagSets
	c.AddFlags(&sets)
	logsapi.AddFlags(logging, sets.FlagSet("logs"))
	global := sets.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout()) // 0 without a terminal, which disables wrapping
	cliflag.SetUsageAndHelpFunc(command, sets, columns)
	return command
}

// ReadFile reads a configuration file with parse. The error names the file and lists several
// errors on separate lines.
func ReadFile(name string, parse func([]byte) error) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	err = parse(data)
	if fieldErrs, ok := err.(interface{ Errors() []error }); ok {
		return fmt.Errorf("configuration file %s:\n%w", name, errors.Join(fieldErrs.Errors()...))
	}
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", name, err)
	}
	return nil
}

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
