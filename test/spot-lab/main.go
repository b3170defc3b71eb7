// Command spot-lab runs a local control plane without containers, with fake nodes and this
// project's scheduler, for experiments. It also runs the demo.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
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
		Long: `Starts etcd, kube-apiserver, kube-controller-manager, fake nodes, spot-aware-scheduler (with
config/scheduler-config.yaml and the shipped RBAC) and the default scheduler. The Deployments of this project in
kube-system are scaled to 0: kubectl spot reads the policy there. Prints one line, KUBECONFIG=...,
when all of it is ready, and runs until Ctrl-C, or until one of its processes ends.

With --karpenter, Karpenter buys simulated nodes for pods that find no room, and removes nodes that are not needed
for 30 s. Its NodePool is called default. No other nodes are created unless --nodes is set.

With --mode=keep-scheduler, the default scheduler places all pods. Instead of spot-aware-scheduler, spot-controller runs
as in manifests/overlays/any-scheduler.`,
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
	command.Flags().StringVar(&o.dir, "dir", "", "directory for logs, kubeconfigs and data (default: a temporary directory)")
	return command
}

// The values of the flag --mode, as of kubectl spot assess.
const own, keepScheduler = "own", "keep-scheduler"

// upOptions are the flags of the command up.
type upOptions struct {
	root, nodesFile, dir     string
	karpenter, keepScheduler bool
}

func up(ctx context.Context, o upOptions, stdout, stderr io.Writer) (err error) {
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
	plane, err := lab.Start(ctx, lab.Options{Root: o.root, Dir: o.dir, Progress: progress})
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := plane.Stop(); err == nil {
			err = stopErr
		}
	}()
	if o.keepScheduler {
		progress("starting spot-controller and the default scheduler")
		err = plane.StartAnyScheduler(ctx)
	} else {
		progress("starting spot-aware-scheduler and the default scheduler")
		_, err = plane.StartScheduler(ctx, lab.SchedulerOptions{})
	}
	if err != nil {
		return err
	}
	if _, err := plane.StartStockScheduler(ctx); err != nil {
		return err
	}
	if err := plane.PublishConfiguration(ctx, o.keepScheduler); err != nil {
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
	fmt.Fprintf(stdout, "KUBECONFIG=%s\n", plane.Kubeconfig)
	return plane.Wait(ctx)
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
