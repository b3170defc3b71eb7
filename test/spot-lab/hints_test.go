package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUp runs the hints.
func TestHints(t *testing.T) {
	complete := t.TempDir()
	for _, program := range []string{".local/bin/kubectl", "bin/kubectl-spot"} {
		path := filepath.Join(complete, program)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		root, kubeconfig string
		keepScheduler    bool
		karpenter        bool
		want, wantNot    string
	}{
		"our scheduler":         {complete, "/tmp/k", false, false, complete + "/manifests/overlays/example-workloads &&", "make"},
		"the default scheduler": {complete, "/tmp/k", true, false, complete + "/manifests/overlays/example-workloads-keep &&", "make"},
		"no kubectl":            {"/nowhere", "/tmp/k", false, false, "  make -C /nowhere tools build\n", "'/nowhere"},
		"Karpenter":             {complete, "/tmp/k", false, true, "node=$(kubectl get nodes -l karpenter.sh/capacity-type=spot ", "app=thumbnails"},
		"a special path":        {complete, "/tmp/it's mine", false, false, `  export KUBECONFIG='/tmp/it'\''s mine' PATH=`, "KUBECONFIG=/tmp"},
		"the environment":       {complete, "/tmp/k", false, false, "  export KUBECONFIG=/tmp/k PATH=" + complete + "/bin:" + complete + `/.local/bin:"$PATH"` + "\n", "%!"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := hints(test.root, test.kubeconfig, test.keepScheduler, test.karpenter)
			if !strings.Contains(got, test.want) || strings.Contains(got, test.wantNot) {
				t.Errorf("want %q in it, and not %q:\n%s", test.want, test.wantNot, got)
			}
		})
	}
}
