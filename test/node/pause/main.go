// Pause runs until it receives a signal to terminate. containerd runs it as the pod's sandbox, and
// the test's own pods run it too.
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
