// Package imports enforces the project's package map: which packages may import which.
package imports

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/spot-aware-scheduler/spot-aware-scheduler"

// rules list the imports, by prefix, that the packages under a folder must not have. Tests are
// exempt.
var rules = []struct {
	under     []string
	forbidden []string
	why       string
}{
	{[]string{"pkg/decision"}, []string{"k8s.io", "sigs.k8s.io", "github.com", "golang.org"}, "the core is pure: standard library only"},
	{[]string{"pkg/kube"}, []string{module + "/pkg/plugins", module + "/pkg/apis", module + "/pkg/lab", "k8s.io/kubernetes"}, "only decision is below kube"},
	{[]string{"pkg/plugins/replicasafety"}, []string{module + "/pkg/plugins/spotpreference", module + "/pkg/plugins/gang"}, "plugins do not import each other"},
	{[]string{"pkg/plugins/spotpreference"}, []string{module + "/pkg/plugins/replicasafety", module + "/pkg/plugins/gang"}, "plugins do not import each other"},
	{[]string{"pkg/plugins/gang"}, []string{module + "/pkg/plugins", module + "/pkg/decision"}, "gang extends Coscheduling and is independent of spot"},
	{[]string{"pkg/lab", "cmd/spot-lab", "pkg/plugins"}, []string{"k8s.io/kubernetes"}, "a cold build of Kubernetes takes minutes: only cmd/scheduler and pkg/apis/config/scheme need it"},
	{[]string{"cmd/controller", "pkg/apis/controller", "pkg/apis/scalar", "pkg/lease", "pkg/daemon", "pkg/cluster", "pkg/gating", "pkg/interruption", "pkg/migration", "pkg/protection", "pkg/rebalance"},
		[]string{"k8s.io/kubernetes", module + "/pkg/plugins", module + "/pkg/lab"}, "the controller depends on the policy, not on the scheduler"},
	{[]string{"cmd/scheduler", "pkg/plugins", "pkg/gating", "pkg/withdrawal"},
		[]string{module + "/pkg/cluster", module + "/pkg/migration", module + "/pkg/protection"}, "the scheduler does not depend on the controller"},
	{[]string{"cmd/kubectl-spot", "pkg/survey", "pkg/report", "pkg/instances"},
		[]string{"k8s.io/kubernetes", module + "/pkg/plugins", module + "/pkg/lab", "sigs.k8s.io/controller-runtime"}, "kubectl spot uses only the core, which keeps it small"},
	{[]string{"pkg/survey", "pkg/report"}, []string{"k8s.io/cli-runtime", "github.com/spf13/cobra"}, "answers are values: cmd/kubectl-spot prints them"},
	{[]string{"cmd/extender", "pkg/extender", "pkg/takeover"}, []string{"k8s.io/kubernetes", module + "/pkg/plugins", module + "/pkg/lab"},
		"the extender depends on the policy, not on a scheduler"},
	{[]string{"pkg/plugins/placement", "pkg/plugins/replicasafety", "pkg/plugins/spotpreference"}, []string{"sigs.k8s.io/scheduler-plugins"}, "it requires k8s.io/kubernetes: only gang uses it"},
	{[]string{"pkg", "cmd"}, []string{module + "/test"}, "the product does not depend on its tests"},
	{[]string{"test/audit"}, []string{module + "/pkg/decision", module + "/pkg/kube", module + "/pkg/plugins", module + "/pkg/apis"}, "the auditor is a second opinion"},
}

func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
				return filepath.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		files++
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		folder := path.Dir(filepath.ToSlash(relative))
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			for _, rule := range rules {
				if underAny(folder, rule.under) && underAny(imported, rule.forbidden) {
					t.Errorf("%s imports %s: %s", relative, imported, rule.why)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Fatal("no Go file found: the root folder is wrong")
	}
}

// underAny reports whether a folder or import path is one of prefixes or below one.
func underAny(folder string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if folder == prefix || strings.HasPrefix(folder, prefix+"/") {
			return true
		}
	}
	return false
}
