// Pause runs until it is told to end. It is what containerd runs to hold a pod's namespaces, and what the test's own pods run.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
