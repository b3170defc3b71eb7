package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
)

// options are the flags that all subcommands have.
type options struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	// configFile is a KubeSchedulerConfiguration; empty: the cluster's own.
	configFile    string
	profile       string
	allNamespaces bool
	// source is what look has read from.
	source source
}

// newCommand returns the command; understood becomes true when the command line is.
func newCommand(streams genericiooptions.IOStreams, understood *bool) *cobra.Command {
	o := &options{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true)}
	command := &cobra.Command{
		Use:   "kubectl-spot",
		Short: "Say how workloads stand on spot and on-demand nodes",
		Long: `Says how the workloads of spot-aware-scheduler stand on spot and on-demand nodes, why a
pod is where it is or waits, who would go down with which nodes, and what spot saves.
The answers come from the code that the scheduler decides by. It only reads.

The exit status is 0 for a whole answer, 1 for none, 2 for a wrong command line, and 3 for an
answer without something that could not be read, or by a policy that had to be assumed.`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		Annotations:        map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl spot"},
		PersistentPreRun:   func(*cobra.Command, []string) { *understood = true },
		PersistentPostRunE: func(*cobra.Command, []string) error { return o.source.whole() },
		CompletionOptions:  cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	o.flags.AddFlags(command.PersistentFlags())
	flags := command.PersistentFlags()
	flags.StringVar(&o.configFile, "scheduler-config", "",
		"The scheduler's configuration file, which has the policy. Without, that of the scheduler in the cluster.")
	flags.StringVar(&o.profile, "profile", config.DefaultProfile, "The schedulerName of the profile in it, and of the pods that it is about.")
	command.AddCommand(o.statusCommand(), o.nodesCommand(), o.explainCommand(), o.whatIfCommand(), o.savingsCommand())
	if err := command.RegisterFlagCompletionFunc("namespace", o.completeNamespaces); err != nil {
		panic(err) // there is such a flag
	}
	return command
}

// addAllNamespaces gives a command the flag -A.
func (o *options) addAllNamespaces(command *cobra.Command) {
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Look at all namespaces instead of one.")
}

// addSelector gives a command the flag -l. What it returns parses that: without the flag the selector selects everything.
func addSelector(command *cobra.Command) (parse func() (labels.Selector, error)) {
	text := command.Flags().StringP("selector", "l", "",
		"Labels to filter by, as kubectl get takes them: key=value, key!=value, key in (a,b), key, !key.")
	return func() (labels.Selector, error) {
		selector, err := labels.Parse(*text)
		if err != nil {
			return nil, fmt.Errorf("--selector: %w; %w", err, errUsage)
		}
		return selector, nil
	}
}

// namespace returns the namespace that is asked about, "" for all.
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

// where says which namespace is asked about, for a person.
func where(namespace string) string {
	if namespace == "" {
		return "any namespace"
	}
	return "namespace " + namespace
}

// of says of which namespace something is, for a person: nothing where it is of all.
func of(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " of " + where(namespace)
}
