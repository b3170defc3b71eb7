package imports

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only package execution writes to pods in the controller.
func TestPodWrites(t *testing.T) {
	found := 0
	for _, folder := range []string{"cmd/controller", "pkg/controller"} {
		root := filepath.Join("..", "..", folder)
		err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(text), "CoreV1().Pods(") && !strings.Contains(string(text), "workload.PatchPod(") {
				return err
			}
			if filepath.Dir(file) != filepath.Join("..", "..", "pkg", "controller", "execution") {
				t.Errorf("%s sends requests for pods: they belong in pkg/controller/execution", file)
			}
			found++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no file sends requests for pods: the test searches for the wrong text")
	}
}
