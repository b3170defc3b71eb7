package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
)

// options has the flags that all subcommands share.
type options struct {
	genericiooptions.IOStreams
	flags  *genericclioptions.ConfigFlags
	client kubernetes.Interface // set by connect
	// configFile is a KubeSchedulerConfiguration; if empty, the cluster's own is used.
	configFile    string
	profile       string
	allNamespaces bool
	// beforeInstall reports whether a cluster without the scheduler is expected. The defaults are
	// then its future policy, not an assumption.
	beforeInstall bool
	// gating is the section of the controller's configuration, by which pods keep their scheduler.
	// interruption is the section by which the breaker opens.
	gating       controller.Gating
	interruption controller.Interruption
	// switchWarning is the last warning about switches. changedSwitches reports whether the command
	// has changed them, and does not warn.
	switchWarning   string
	changedSwitches bool
	// source describes the data that readView has read.
	source source
}

// newCommand returns the command. It sets parsed after the command line was parsed.
func newCommand(streams genericiooptions.IOStreams, parsed *bool) *cobra.Command {
	o := &options{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), source: source{ReadErrors: []string{}}}
	o.gating = lister.AssumedGating()
	command := &cobra.Command{
		Use:   "kubectl-spot",
		Short: "Show how workloads use spot and on-demand nodes",
		Long: `Shows how the workloads of spot-aware-scheduler use spot and on-demand nodes, why a
pod runs on its node or waits, which replicas would be lost with which nodes, what spot
saves, and which workloads could run on spot. The answers come from the decision code of the
scheduler. Only cleanup --yes, pause, resume and breaker change objects.

The exit status is 0 for a complete answer, 1 for no answer, 2 for an invalid command line,
3 for an answer that lacks unreadable objects or assumes a policy, and 4 for what-if
--fail-on.`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		Annotations:        map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl spot"},
		PersistentPreRun:   func(*cobra.Command, []string) { *parsed = true },
		PersistentPostRunE: func(*cobra.Command, []string) error { return o.source.complete() },
		CompletionOptions:  cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	command.SetUsageTemplate(usageTemplate(command.UsageTemplate()))
	o.flags.AddFlags(command.PersistentFlags())
	flags := command.PersistentFlags()
	flags.StringVar(&o.configFile, "scheduler-config", "",
		"Path to the scheduler's configuration file, which has the policy. If empty, the configuration in the cluster is used.")
	flags.StringVar(&o.profile, "profile", config.DefaultProfile,
		"schedulerName of the profile in the configuration, and of the pods to show.")
	command.AddCommand(o.statusCommand(), o.nodesCommand(), o.explainCommand(), o.whatIfCommand(), o.savingsCommand(), o.assessCommand(),
		o.cleanupCommand(), o.pauseCommand(), o.resumeCommand(), o.breakerCommand(), versionCommand(o.IOStreams), optionsCommand())
	utilruntime.Must(command.RegisterFlagCompletionFunc("namespace", o.completeNamespaces)) // the flag exists
	return command
}

// usageTemplate replaces the global flags, which would hide the flags of a command, by a reference.
func usageTemplate(template string) string {
	before, rest, _ := strings.Cut(template, "{{if .HasAvailableInheritedFlags}}")
	_, after, _ := strings.Cut(rest, "{{end}}")
	return before + "{{if .HasAvailableInheritedFlags}}\n\nUse \"kubectl spot options\" for the flags of all commands.{{end}}" + after
}

func optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags of all commands",
		Args:  cobra.NoArgs,
		Run: func(command *cobra.Command, _ []string) {
			fmt.Fprintf(command.OutOrStdout(), "The following flags can be passed to any command:\n\n%s", command.InheritedFlags().FlagUsages())
		},
	}
}

func versionCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin",
		Args:  cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			fmt.Fprintln(streams.Out, version.Get().GitVersion)
		},
	}
}

// newListPrinting is like newPrinting, for a command with a list of items. It also adds the flags
// -A and --sort-by.
func (o *options) newListPrinting(command *cobra.Command, others ...string) *printing {
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Use all namespaces instead of one.")
	p := newPrinting(command, others...)
	command.Flags().StringVar(&p.sortBy, "sort-by", "", "Sort by a field of the items of -o json, such as .desired.")
	return p
}

// addSelector adds the flag -l to a command. parse returns its selector; without the flag, it
// selects everything.
func addSelector(command *cobra.Command) (parse func() (labels.Selector, error)) {
	text := command.Flags().StringP("selector", "l", "",
		"Label selector, as in kubectl get: key=value, key!=value, key in (a,b), key, !key.")
	return func() (labels.Selector, error) {
		selector, err := labels.Parse(*text)
		if err != nil {
			return nil, fmt.Errorf("--selector: %w; %w", err, errUsage)
		}
		return selector, nil
	}
}

// namespace returns the requested namespace, or "" for all.
func (o *options) namespace() (string, error) {
	if o.allNamespaces {
		return "", nil
	}
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}

// givenNamespace returns the namespace of -n, or "" without it or with -A: the namespace of the
// context has no effect.
func (o *options) givenNamespace() string {
	if o.allNamespaces {
		return ""
	}
	return *o.flags.Namespace
}

// ofNamespace returns the suffix of a message with the namespace, or "" for all namespaces.
func ofNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " of namespace " + namespace
}
