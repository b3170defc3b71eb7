// Command spot-extender gives a stock kube-scheduler this project's placement decisions, over the scheduler-extender protocol: for clusters
// that can configure their scheduler and cannot run a second one.
package main

import (
	"os"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

// gcPercent lets the heap grow to so many percent more than what is in use before it is collected: that is little, and a collection takes
// time from answers. GOGC wins over it, and GOMEMLIMIT keeps it within bounds.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(newCommand().Execute(signals.SetupSignalHandler(), os.Args[1:], os.Stderr))
}
