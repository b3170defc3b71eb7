// Command spot-extender gives a stock kube-scheduler this project's placement decisions, over the scheduler-extender protocol: for clusters
// that can configure their scheduler and cannot run a second one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent lets the heap grow to so many percent more than what is in use before it is collected: that is little, and a collection takes
// time from answers. GOGC wins over it, and GOMEMLIMIT keeps it within bounds.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(run(signals.SetupSignalHandler(), os.Args[1:], os.Stderr))
}

// errUsage is what a wrong command line is; it has been said what is wrong.
var errUsage = errors.New("try spot-extender --help")

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	understood := false // whether the flags were: errors before that are wrong usage
	command := newCommand(&understood)
	command.SetArgs(args)
	command.SetErr(stderr)
	command.SetContext(ctx)
	err := cli.RunNoErrOutput(command)
	switch {
	case err == nil:
		return 0
	case !understood || errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "spot-extender: %v\n", err)
		return exitUsage
	default:
		klog.ErrorS(err, "command failed")
		klog.Flush()
		return exitFailed
	}
}
