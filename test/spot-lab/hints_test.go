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
		want, wantNot    string
	}{
		"our scheduler":         {complete, "/tmp/k", false, complete + "/manifests/overlays/example-workloads &&", "make"},
		"the default scheduler": {complete, "/tmp/k", true, complete + "/manifests/overlays/example-workloads-keep &&", "make"},
		"no kubectl":            {"/nowhere", "/tmp/k", false, "  make -C /nowhere tools build\n", "'/nowhere"},
		"a special path":        {complete, "/tmp/it's mine", false, `  export KUBECONFIG='/tmp/it'\''s mine' PATH=`, "KUBECONFIG=/tmp"},
		"the environment":       {complete, "/tmp/k", false, "  export KUBECONFIG=/tmp/k PATH=" + complete + "/bin:" + complete + `/.local/bin:"$PATH"` + "\n", "%!"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := hints(test.root, test.kubeconfig, test.keepScheduler)
			if !strings.Contains(got, test.want) || strings.Contains(got, test.wantNot) {
				t.Errorf("want %q in it, and not %q:\n%s", test.want, test.wantNot, got)
			}
		})
	}
}
