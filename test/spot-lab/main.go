// Command spot-lab runs a local control plane without containers, with fake nodes and this
// project's scheduler, for experiments. It also runs the demo.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab/demo"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends this process and its children at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var root string
	understood := false // the command line is valid; earlier errors are usage errors
	command := &cobra.Command{
		Use:               "spot-lab",
		Short:             "A local Kubernetes control plane with fake spot nodes",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRun:  func(*cobra.Command, []string) { understood = true },
	}
	command.PersistentFlags().StringVar(&root, "root", "",
		"the checkout with bin, .local/bin, config and manifests (default: found from the path of this program or the working directory)")
	command.AddCommand(upCommand(&root), demoCommand(&root), replayCommand(&root))
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)

	err := command.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case understood && ctx.Err() != nil:
		// The interrupt caused the error, so the error is not printed.
		fmt.Fprintln(stderr, "spot-lab: interrupted; all processes have ended")
		return exitFailed
	case understood:
		fmt.Fprintln(stderr, "spot-lab:", err)
		return exitFailed
	default:
		fmt.Fprintf(stderr, "spot-lab: %v\nTry spot-lab --help.\n", err)
		return exitUsage
	}
}

func upCommand(root *string) *cobra.Command {
	var o upOptions
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a control plane and print KUBECONFIG=... when it is ready; Ctrl-C stops it",
		Long: `Starts etcd, kube-apiserver, kube-controller-manager, fake nodes, spot-aware-scheduler, spot-controller and the
default scheduler, with the shipped configuration and RBAC. The Deployments of this project in kube-system are scaled
to 0: kubectl spot reads the policy there. When all of it is ready, prints one line, KUBECONFIG=..., and on standard
error the first commands for another shell. Runs until Ctrl-C, or until one of its processes ends.

With --karpenter, Karpenter buys simulated nodes for pods that find no room, and removes nodes that are not needed
for 30 s. The autoscaler mode is on, as with manifests/overlays/autoscaler, so that Karpenter sees the floors. Its
NodePool is called default. No other nodes are created unless --nodes is set.

With --mode=keep-scheduler, the default scheduler places all pods. spot-aware-scheduler does not run, and
spot-controller runs as in manifests/overlays/any-scheduler.

With --controller=false, no controller runs and no pod gets a scheduling gate, so both modes above are without effect
on pods.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.root = *root
			return up(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	command.Flags().Func("mode", "the `mode`: own, or keep-scheduler: pods that opt in keep the default scheduler (default own)",
		func(mode string) error {
			if o.keepScheduler = mode == keepScheduler; !o.keepScheduler && mode != own {
				return fmt.Errorf("expected %s or %s", own, keepScheduler)
			}
			return nil
		})
	command.Flags().StringVar(&o.nodesFile, "nodes", "",
		"YAML list of node groups {namePrefix, count, capacity, instanceType, zone, labels, taints, cpu, memory, pods} "+
			"(default: the demo's nodes)")
	command.Flags().BoolVar(&o.karpenter, "karpenter", false, "start Karpenter with its provider of simulated nodes")
	command.Flags().BoolVar(&o.controller, "controller", true, "start spot-controller")
	command.Flags().StringVar(&o.dir, "dir", "", "directory for logs, kubeconfigs and data (default: a temporary directory)")
	return command
}

// The values of the flag --mode, as of kubectl spot assess.
const own, keepScheduler = "own", "keep-scheduler"

// upOptions are the flags of the command up.
type upOptions struct {
	root, nodesFile, dir                 string
	karpenter, keepScheduler, controller bool
}

// podStartup is long enough to watch the moves of pods.
const podStartup = 5 * time.Second

// gates reports whether new pods get the scheduling gate of the autoscaler mode.
func (o upOptions) gates() bool { return o.controller && (o.karpenter || o.keepScheduler) }

func up(ctx context.Context, o upOptions, stdout, stderr io.Writer) (err error) {
	if version := lab.KubernetesVersion(); o.gates() && slices.Contains([]string{"1.34", "1.35"}, version) {
		return fmt.Errorf("SPOT_KUBERNETES=%s: this mode requires 1.36 or later, unless --controller=false is set", version)
	}
	var nodes []lab.NodeSpec
	if !o.karpenter {
		nodes = lab.DefaultNodes()
	}
	if o.nodesFile != "" {
		if nodes, err = lab.ReadNodes(o.nodesFile); err != nil {
			return err
		}
	}
	progress := func(step string) { fmt.Fprintln(stderr, step) }
	plane, err := lab.Start(ctx, lab.Options{Root: o.root, Dir: o.dir, PodStartup: podStartup, Progress: progress})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := plane.Stop(); err == nil {
			err = stopErr
		}
	}()
	if err := startProject(ctx, plane, o, progress); err != nil {
		return err
	}
	if o.karpenter {
		progress("starting Karpenter")
		pool := lab.NodePool{ConsolidateAfter: 30 * time.Second}
		if _, err := plane.StartKarpenter(ctx, lab.KarpenterOptions{NodePools: []lab.NodePool{pool}}); err != nil {
			return err
		}
	}
	progress(fmt.Sprintf("creating %d nodes", len(nodes)))
	if err := plane.CreateNodes(ctx, nodes...); err != nil {
		return err
	}
	progress("ready; Ctrl-C stops it")
	fmt.Fprint(stderr, hints(plane.Root, plane.Kubeconfig, o.keepScheduler, o.karpenter))
	fmt.Fprintf(stdout, "KUBECONFIG=%s\n", plane.Kubeconfig)
	return plane.Wait(ctx)
}

// startProject starts the schedulers and the controller of the options, and publishes their
// configuration.
func startProject(ctx context.Context, plane *lab.ControlPlane, o upOptions, progress func(step string)) error {
	if _, err := plane.StartStockScheduler(ctx); err != nil {
		return err
	}
	if !o.keepScheduler {
		progress("starting spot-aware-scheduler")
		if _, err := plane.StartScheduler(ctx, lab.SchedulerOptions{}); err != nil {
			return err
		}
	}
	if o.controller {
		progress("starting spot-controller")
		if err := startController(ctx, plane, o); err != nil {
			return err
		}
	}
	return plane.PublishConfiguration(ctx, lab.Installation{AnyScheduler: o.keepScheduler, Gating: o.gates()})
}

// startController starts the controller in the mode of the options.
func startController(ctx context.Context, plane *lab.ControlPlane, o upOptions) error {
	switch {
	case o.keepScheduler:
		return plane.StartAnyScheduler(ctx)
	case o.karpenter:
		return plane.StartAutoscalerMode(ctx)
	}
	_, err := plane.StartController(ctx, lab.ControllerOptions{})
	return err
}

func demoCommand(root *string) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the savings, and the availability of workloads when spot nodes are reclaimed",
		Long: `Places the same workloads with the default scheduler and with spot-aware-scheduler, and takes away all spot nodes
each time; then gives the largest spot pool two minutes' notice while spot-controller runs, and brings the pool back.
Prints what it measured. The exit status is 1 when a promise was not kept.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), demo.Options{Root: *root, Out: cmd.OutOrStdout(), Color: isTerminal(cmd.OutOrStdout())})
		},
	}
}

// isTerminal reports whether out is a terminal and NO_COLOR is not set (no-color.org).
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
