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

// order lists the packages of the product under pkg. A package may import only packages on lines
// before its own. So packages on one line do not import each other, and there is no cycle.
var order = [][]string{
	// Names, values and tables.
	{"apis/spot", "apis/decoding", "informer", "recovery", "refusal"},
	{"decision"},
	{"pricing", "providers"},
	{"transform"},
	// Objects of the API, as values for decisions.
	{"node"},
	{"workload"},
	// The settings and the common parts of programs.
	{"apis/config", "apis/controller", "leader", "nodepools", "profilemetrics"},
	{"app"},
	{"apis/config/scheme"},
	// The controller.
	{"snapshot"},
	{"simulation"},
	{"controller/safety"},
	{"controller/costs", "controller/loop", "controller/migration"},
	{"controller/execution"},
	{"controller/disruptions", "controller/gating", "controller/interruption", "controller/rebalance"},
	{"controller/protection"},
	{"controller/round"},
	// The scheduler and the extender.
	{"failsafe", "placement"},
	{"extender", "plugins/gang", "plugins/replicasafety", "plugins/spotpreference"},
	{"narrowsearch"},
	// kubectl spot.
	{"kubectl/lister"},
	{"kubectl/report"},
	// Fixtures of tests.
	{"decision/decisiontest", "node/nodetest", "kubectl/lister/listertest", "extender/extendertest", "clustertest"},
}

// fixtures are imported only by tests.
var fixtures = []string{
	module + "/test", module + "/pkg/decision/decisiontest", module + "/pkg/node/nodetest", module + "/pkg/kubectl/lister/listertest", module + "/pkg/extender/extendertest",
	module + "/pkg/clustertest",
}

// rules list the imports, by prefix, that the packages under a folder must not have. Tests are
// exempt.
var rules = []struct {
	under     []string
	forbidden []string
	why       string
}{
	{[]string{"pkg/decision"}, []string{"k8s.io", "sigs.k8s.io", "golang.org"}, "the core is pure: standard library and names only"},
	{[]string{"test/lab", "test/spot-lab", "pkg/placement", "pkg/plugins"}, []string{"k8s.io/kubernetes"}, "a cold build of Kubernetes takes minutes: only cmd/scheduler, pkg/narrowsearch and pkg/apis/config/scheme need it"},
	{[]string{"cmd/controller", "pkg/apis/controller", "pkg/apis/decoding", "pkg/leader", "pkg/app", "pkg/snapshot", "pkg/simulation", "pkg/controller"},
		[]string{"k8s.io/kubernetes", module + "/pkg/plugins"}, "the controller depends on the policy, not on the scheduler"},
	{[]string{"cmd/scheduler", "pkg/placement", "pkg/plugins", "pkg/failsafe", "cmd/extender", "pkg/extender"},
		[]string{module + "/pkg/snapshot", module + "/pkg/simulation", module + "/pkg/controller"}, "the scheduler does not depend on the controller"},
	{[]string{"cmd/kubectl-spot", "pkg/kubectl", "pkg/pricing"},
		[]string{"k8s.io/kubernetes", module + "/pkg/plugins", "sigs.k8s.io/controller-runtime"}, "kubectl spot uses only the core, which keeps it small"},
	{[]string{"pkg/kubectl"}, []string{"k8s.io/cli-runtime", "github.com/spf13/cobra"}, "answers are values: cmd/kubectl-spot prints them"},
	{[]string{"cmd/extender", "pkg/extender", "pkg/leader"}, []string{"k8s.io/kubernetes", module + "/pkg/plugins"},
		"the extender depends on the policy, not on a scheduler"},
	{[]string{"pkg/placement", "pkg/plugins/replicasafety", "pkg/plugins/spotpreference"}, []string{"sigs.k8s.io/scheduler-plugins"}, "it requires k8s.io/kubernetes: only gang uses it"},
	{[]string{"pkg/plugins/gang"}, []string{module + "/pkg/decision"}, "gang extends Coscheduling and is independent of spot"},
	{[]string{"pkg", "cmd"}, fixtures, "the product does not depend on its tests"},
	{[]string{"test/audit"}, []string{module + "/pkg/decision", module + "/pkg/node", module + "/pkg/workload", module + "/pkg/snapshot", module + "/pkg/plugins", module + "/pkg/apis"}, "the auditor is a second opinion"},
}

func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	positions := map[string]int{} // line in order, from 1
	for line, packages := range order {
		for _, p := range packages {
			positions[p] = line + 1
		}
	}
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
			if from, ok := strings.CutPrefix(folder, "pkg/"); ok && strings.HasPrefix(imported, module+"/pkg/") {
				to := strings.TrimPrefix(imported, module+"/pkg/")
				if line := positions[from]; line == 0 {
					t.Errorf("pkg/%s is not in the order of packages", from)
				} else if positions[to] >= line {
					t.Errorf("%s imports pkg/%s, which is not below pkg/%s", relative, to, from)
				}
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
	for p := range positions {
		if files, err := filepath.Glob(filepath.Join(root, "pkg", p, "*.go")); err != nil || len(files) == 0 {
			t.Errorf("order lists pkg/%s, which has no files", p)
		}
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
