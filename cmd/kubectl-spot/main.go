// Command kubectl-spot is a kubectl plugin: `kubectl spot` shows how workloads use spot and
// on-demand nodes, why, and the effect of hypothetical losses. Only `kubectl spot cleanup --yes`,
// pause, resume and breaker change objects.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
)

// The exit statuses other than 0, which means a complete answer.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitPartial means that the answer lacks objects that could not be read.
	exitPartial = 3
	// exitUnsafe means that a workload has the effect of --fail-on.
	exitUnsafe = 4
)

func main() {
	tuneGarbageCollection()
	klog.LogToStderr(false) // libraries log the errors that this command prints
	klog.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process immediately
	os.Exit(run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}

// tuneGarbageCollection trades memory for time: the process is short-lived, so garbage is collected
// only when there is much of it. GOGC or GOMEMLIMIT overrides this.
func tuneGarbageCollection() {
	const memoryLimit = 800 << 20
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(800)
		debug.SetMemoryLimit(memoryLimit)
	}
}

// errUsage is wrapped by errors of an invalid command line. run replaces its text by the help of
// the command.
var errUsage = errors.New("try --help")

// errUnsafe is returned after an answer with the effect of --fail-on.
var errUnsafe = errors.New("a workload would have the effect of --fail-on, or a worse one")

// errPartial is returned for an incomplete answer. The gaps have already been printed.
var errPartial = errors.New("not everything could be read")

func run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	parsed := false // errors before parsing has succeeded are usage errors
	command := newCommand(streams, &parsed)
	command.SetArgs(args)
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	executed, err := command.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errPartial):
		return exitPartial
	case !parsed && !errors.Is(err, errUsage):
		err = fmt.Errorf("%w; %w", err, errUsage)
	}
	text := strings.ReplaceAll(err.Error(), errUsage.Error(), "try "+executed.CommandPath()+" --help")
	text = strings.NewReplacer("\n\nDid you mean this?\n\t", "; did you mean: ", "\n;", ";", "\n\t", ", ").Replace(text)
	fmt.Fprintf(streams.ErrOut, "error: %s\n", text)
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errUnsafe):
		return exitUnsafe
	}
	return exitFailed
}
