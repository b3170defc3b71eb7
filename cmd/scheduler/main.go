// Command spot-aware-scheduler is kube-scheduler with the plugins ReplicaSafety and SpotPreference,
// and with Coscheduling for gangs.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	typedevents "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/narrowsearch"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/gang"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"

	// The main package of kube-scheduler registers these too: logs as JSON, and the metrics of
	// clients, leader election and version.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	// The plugins' args, for the scheduler's own decoder.
	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

// newCommand returns kube-scheduler's command with the project's plugins, like
// app.NewSchedulerCommand of Kubernetes 1.36: it has the same flags, help, logging, signals and
// metrics. It adds guardTakeover, guardLease, withdrawAbandoned, narrowsearch.Enable, limitBindings
// and deferEvents. The original has no hook for them, because it does not expose the scheduler
// between app.Setup and app.Run.
func newCommand() *cobra.Command {
	opts := options.NewOptions()
	command := &cobra.Command{
		Use: "spot-aware-scheduler",
		Long: `spot-aware-scheduler is kube-scheduler with two plugins that run workloads on
spot nodes as far as is safe: when all spot is reclaimed at once, every workload
still has its floor of replicas on on-demand nodes. It runs beside the cluster's
kube-scheduler and places the pods that name it in spec.schedulerName.`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			// Feature gates must be set before RunE reads them.
			return opts.ComponentGlobalsRegistry.Set()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			return runScheduler(command, opts)
		},
	}
	flags := opts.Flags
	verflag.AddFlags(flags.FlagSet("global"))
	globalflag.AddGlobalFlags(flags.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout()) // 0 without a terminal, which disables wrapping
	cliflag.SetUsageAndHelpFunc(command, *flags, columns)
	if err := command.MarkFlagFilename("config", "yaml", "yml", "json"); err != nil {
		panic(err) // unreachable: the flag exists
	}
	return command
}

// runScheduler runs until a signal, the loss of the lease or an error.
func runScheduler(command *cobra.Command, opts *options.Options) error {
	// Report errors before the first call to the API server.
	file := command.Flag("config").Value.String()
	if file == "" { // it would be a second stock scheduler that competes for the stock scheduler's lock
		return errors.New("--config is required: a file with a profile that enables ReplicaSafety and SpotPreference " +
			"(start from config/scheduler-config.yaml)")
	}
	if err := checkConfig(file); err != nil {
		return err
	}
	features := opts.ComponentGlobalsRegistry.FeatureGateFor(compatibility.DefaultKubeComponent)
	if err := checkFeatures(features); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(opts.Logs, features); err != nil {
		fmt.Fprintln(os.Stderr, err) // without logging, nothing else can be reported
		os.Exit(1)
	}
	cliflag.PrintFlags(command.Flags())

	ctx := signals.SetupSignalHandler()
	memory := &leader.Memory{}
	config, sched, err := app.Setup(ctx, opts, plugins(memory)...)
	if err != nil {
		return err
	}
	if lock := &config.ComponentConfig.LeaderElection; lock.LeaderElect {
		if err := leader.CheckInstallation(ctx, config.KubeConfig, lock.ResourceName); err != nil {
			return err
		}
	}
	if err := guardTakeover(ctx, config.KubeConfig, sched); err != nil {
		return err
	}
	fresh := guardLease(ctx, config.LeaderElection, sched, memory)
	if err := withdrawAbandoned(ctx, *config, sched, fresh); err != nil {
		return err
	}
	narrowsearch.Enable(sched, config.ComponentConfig.PercentageOfNodesToScore)
	limitBindings(sched, fresh)
	client, err := typedevents.NewForConfig(config.KubeConfig) // like kube-scheduler, one for events only
	if err != nil {
		return err
	}
	if err := deferEvents(ctx, &events.EventSinkImpl{Interface: client}, sched); err != nil {
		return err
	}
	features.(featuregate.MutableFeatureGate).AddMetrics()
	opts.ComponentGlobalsRegistry.AddMetrics()
	return app.Run(ctx, config, sched)
}

// gcPercent is the default of GOGC. Compared with Go's 100, it saves an eighth of the CPU time per
// pod for a tenth more memory (docs/design/throughput.md). GOMEMLIMIT still limits the memory.
const gcPercent = 150

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(cli.Run(newCommand()))
}

// plugins returns the plugins that a profile may enable in addition to kube-scheduler's.
func plugins(memory *leader.Memory) []app.Option {
	return []app.Option{
		app.WithPlugin(replicasafety.Name, replicasafety.NewFactory(schedulesGangs, memory)),
		app.WithPlugin(spotpreference.Name, spotpreference.New),
		app.WithPlugin(gang.Name, gang.New),
	}
}

// schedulesGangs reports whether the profile enables Coscheduling at Permit, where pods of a gang
// wait for each other. A profile may have Coscheduling in queueSort only, because all profiles must
// have the same queue order.
func schedulesGangs(handle fwk.Handle) bool {
	profile, ok := handle.(framework.Framework)
	return ok && has(profile.ListPlugins().Permit.Enabled, gang.Name)
}
