package lab

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
)

// kubectl spot finds the policy and the configuration of the controller.
func TestPublishConfiguration(t *testing.T) {
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	cp := &ControlPlane{Root: root, client: fake.NewClientset()}
	if err := cp.PublishConfiguration(t.Context()); err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile(filepath.Join(root, "config", "scheduler-config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := lister.ReadConfiguration(t.Context(), cp.client)
	if err != nil || string(found.Data) != string(shipped) {
		t.Errorf("%s, %v; want config/scheduler-config.yaml", found.From, err)
	}
}
