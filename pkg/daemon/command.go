// Package daemon is what spot-controller and spot-extender have in common: how they understand a command line, reach the API server, keep
// informers' caches and serve metrics.
package daemon

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

	// Logs as JSON, and the metric of the version.
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
	// Read reads what the flags name and returns what runs the program: mistakes are told before anything is asked of the API server. One of
	// the command line itself is a Misuse.
	Read func() (start func(context.Context) error, err error)
}

// Misuse says that an error is one of the command line.
func Misuse(err error) error { return misuse{err} }

type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// Execute runs a command line and returns the exit status.
func (c *Command) Execute(ctx context.Context, args []string, stderr io.Writer) int {
	understood := false // whether the flags were: errors before that are wrong usage
	command := c.cobra(&understood)
	command.SetArgs(args)
	command.SetErr(stderr)
	command.SetContext(ctx)
	err := cli.RunNoErrOutput(command)
	switch wrong := (misuse{}); {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s: %v; try %s --help\n", c.Name, err, c.Name)
		return ExitUsage
	case !understood:
		fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
		return ExitUsage
	default:
		klog.ErrorS(err, "command failed")
		klog.Flush()
		return ExitFailed
	}
}

// cobra returns the command. It sets understood when the command line has no mistake that cobra sees.
func (c *Command) cobra(understood *bool) *cobra.Command {
	logging := logsapi.NewLoggingConfiguration()
	command := &cobra.Command{
		Use:  c.Name,
		Long: c.Long,
		Args: cobra.NoArgs,
		PersistentPreRun: func(*cobra.Command, []string) {
			*understood = true
			verflag.PrintAndExitIfRequested()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return Misuse(err)
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
	columns, _, _ := term.TerminalSize(command.OutOrStdout()) // 0, which is no wrapping, where it is no terminal
	cliflag.SetUsageAndHelpFunc(command, sets, columns)
	return command
}

// ReadFile has parse read a configuration file. The error names it; of several mistakes each stands on a line of its own.
func ReadFile(name string, parse func([]byte) error) error {
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
