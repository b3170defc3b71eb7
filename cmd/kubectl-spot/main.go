// Command kubectl-spot is the kubectl plugin: `kubectl spot` says how workloads stand on spot and on-demand nodes, why, and what would happen
// if. It only reads.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The exit statuses beside 0, which is that of a whole answer.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitPartial: it has answered, as far as could be told without something that could not be read.
	exitPartial = 3
)

func main() {
	collectLess()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends this at once
	os.Exit(run(ctx, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}

// collectLess trades memory for time, because this ends when it has answered: garbage is left alone until there is much of it. Whoever sets
// GOGC or GOMEMLIMIT decides for himself.
func collectLess() {
	const much = 800 << 20
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(800)
		debug.SetMemoryLimit(much)
	}
}

// errUsage is what a wrong command line is.
var errUsage = errors.New("try kubectl spot --help")

// errPartial is what an answer is that lacks something. What that is has been said.
var errPartial = errors.New("not all could be read")

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	understood := false // whether the command line was: errors before that are wrong usage
	command := newCommand(streams, &understood)
	command.SetArgs(args)
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	err := command.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errPartial):
		return exitPartial
	case errors.Is(err, errUsage):
		fmt.Fprintf(streams.ErrOut, "error: %v\n", err)
		return exitUsage
	case !understood:
		fmt.Fprintf(streams.ErrOut, "error: %v; %v\n", err, errUsage)
		return exitUsage
	}
	fmt.Fprintf(streams.ErrOut, "error: %v\n", err)
	return exitFailed
}
