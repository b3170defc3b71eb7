package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
)

// TestKubeadmConfiguration runs the commands with which docs/install.md creates the configuration
// of kube-scheduler on a kubeadm cluster. It decodes the result like kube-scheduler.
func TestKubeadmConfiguration(t *testing.T) {
	page := parse("docs/install.md", read(t, "docs/install.md"))
	var commands []string
	for _, block := range page.blocks {
		for line := range strings.Lines(block.text) {
			if strings.Contains(line, " config.yaml\n") && !strings.HasPrefix(line, "install") {
				commands = append(commands, line)
			}
		}
	}
	if len(commands) != 2 {
		t.Fatalf("docs/install.md creates config.yaml with %q, expected two commands", commands)
	}
	dir := t.TempDir()
	config, err := filepath.Abs(filepath.Join(root, "config"))
	must(t, err)
	must(t, os.Symlink(config, filepath.Join(dir, "config")))
	command := exec.Command("bash", "-euc", strings.Join(commands, ""))
	command.Dir, command.Env = dir, append(os.Environ(), "ip=10.96.0.17")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", commands, err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	must(t, err)
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	must(t, err)
	got := object.(*schedulerconfig.KubeSchedulerConfiguration)
	if err := validation.ValidateKubeSchedulerConfiguration(got); err != nil {
		t.Error(err)
	}
	if got.ClientConnection.Kubeconfig != "/etc/kubernetes/scheduler.conf" || !got.LeaderElection.LeaderElect {
		t.Errorf("kubeconfig %q, leader election %t", got.ClientConnection.Kubeconfig, got.LeaderElection.LeaderElect)
	}
	want := schedulerconfig.Extender{
		URLPrefix: "https://10.96.0.17:8445", FilterVerb: "filter", PrioritizeVerb: "prioritize", PreemptVerb: "preempt", Weight: 51,
		EnableHTTPS: true, HTTPTimeout: got.Extenders[0].HTTPTimeout, NodeCacheCapable: true,
		TLSConfig: &schedulerconfig.ExtenderTLSConfig{
			CAFile: "/etc/kubernetes/spot-extender/ca.crt", CertFile: "/etc/kubernetes/spot-extender/tls.crt",
			KeyFile: "/etc/kubernetes/spot-extender/tls.key", ServerName: "spot-extender.kube-system.svc",
		},
	}
	if diff := cmp.Diff([]schedulerconfig.Extender{want}, got.Extenders); diff != "" {
		t.Errorf("extenders (-want +got):\n%s", diff)
	}
}
