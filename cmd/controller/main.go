// Command spot-controller moves pods: away from interrupted spot nodes, to nodes that the policy
// requires, and back to spot. The scheduler alone cannot do this, because it only places new pods.
package main

import (
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() { os.Exit(newCommand().Execute(signals.SetupSignalHandler(), os.Args[1:], os.Stderr)) }
