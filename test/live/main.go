package live

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// Main runs a package's tests on a control plane that they share, and returns the exit status. use is told of it before the first test; if
// it returns an error, none is run.
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
