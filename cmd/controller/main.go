// Command spot-controller moves pods: away from spot nodes that go, to where the policy wants them, and back to spot. It says what the
// scheduler cannot: placement decides about new pods only.
package main

import (
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() { os.Exit(newCommand().Execute(signals.SetupSignalHandler(), os.Args[1:], os.Stderr)) }
