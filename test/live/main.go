package live

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// Main runs a package's tests on one shared control plane and returns the exit status. It calls
// use with the control plane before the first test. If use returns an error, no test runs.
func Main(m *testing.M, options lab.Options, use func(*lab.ControlPlane, kubernetes.Interface) error) (status int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cp, err := lab.Start(ctx, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the control plane:", err)
		return 1
	}
	defer func() {
		if err := cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the control plane:", err)
		}
	}()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err == nil {
		err = use(cp, client)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
