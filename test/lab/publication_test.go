package lab

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

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
	tests := map[string]struct {
		installed   Installation
		deployments int
		gating      bool
	}{
		"scheduler and controller": {Installation{}, 2, false},
		"autoscaler mode":          {Installation{Gating: true}, 2, true},
		"another scheduler":        {Installation{AnyScheduler: true}, 1, true},
	}
	for name, test := range tests {
		cp := &ControlPlane{Root: root, client: fake.NewClientset()}
		if err := cp.PublishConfiguration(t.Context(), test.installed); err != nil {
			t.Fatal(err)
		}
		found, err := lister.ReadConfiguration(t.Context(), cp.client)
		if err != nil || string(found.Data) != string(shipped) {
			t.Errorf("%s: %s, %v; want config/scheduler-config.yaml", name, found.From, err)
		}
		deployments, err := cp.client.AppsV1().Deployments("kube-system").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(deployments.Items) != test.deployments {
			t.Errorf("%s: %d Deployments, %v; want %d", name, len(deployments.Items), err, test.deployments)
		}
		config, err := cp.client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "spot-controller-config", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var controller struct{ Gating struct{ Enabled bool } }
		if err := yaml.Unmarshal([]byte(config.Data["controller-config.yaml"]), &controller); err != nil || controller.Gating.Enabled != test.gating {
			t.Errorf("%s: gating %t, %v; want %t", name, controller.Gating.Enabled, err, test.gating)
		}
	}
}
