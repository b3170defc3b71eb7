package lab

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
)

// kubectl spot finds the policy and the configuration of the controller.
func TestPublishConfiguration(t *testing.T) {
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile(filepath.Join(root, "config", "scheduler-config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, anyScheduler := range []bool{false, true} {
		cp := &ControlPlane{Root: root, client: fake.NewClientset()}
		if err := cp.PublishConfiguration(t.Context(), anyScheduler); err != nil {
			t.Fatal(err)
		}
		found, err := lister.ReadConfiguration(t.Context(), cp.client)
		if err != nil || string(found.Data) != string(shipped) {
			t.Errorf("another scheduler %t: %s, %v; want config/scheduler-config.yaml", anyScheduler, found.From, err)
		}
		deployments, err := cp.client.AppsV1().Deployments("kube-system").List(t.Context(), metav1.ListOptions{})
		if want := map[bool]int{false: 2, true: 1}[anyScheduler]; err != nil || len(deployments.Items) != want {
			t.Errorf("another scheduler %t: %d Deployments, %v; want %d", anyScheduler, len(deployments.Items), err, want)
		}
	}
}
