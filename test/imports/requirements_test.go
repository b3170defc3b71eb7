package imports

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// TestRequirements checks that the product's go.mod directly requires exactly the modules that cmd
// and pkg import, including their tests. Requirements of tools and of live tests belong in
// hack/go.mod and test/go.mod, because users of the product's module would get them too.
func TestRequirements(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	indirect := map[string]bool{}
	for _, requirement := range parsed.Require {
		indirect[requirement.Mod.Path] = requirement.Indirect
	}
	imported := map[string]bool{} // modules
	for _, folder := range []string{"cmd", "pkg"} {
		for path, file := range importedBy(t, filepath.Join(root, folder)) {
			required := providing(path, indirect)
			imported[required] = true
			if required == "" || indirect[required] {
				t.Errorf("%s imports %s, but go.mod does not directly require its module: run go mod tidy", file, path)
			}
		}
	}
	for required, ok := range indirect {
		if !ok && !imported[required] {
			t.Errorf("go.mod directly requires %s, which neither cmd nor pkg imports", required)
		}
	}
}

// importedBy returns the packages outside cmd, docs and pkg that the Go files under a folder
// import, each with one of the files.
func importedBy(t *testing.T, folder string) map[string]string {
	t.Helper()
	imports := map[string]string{}
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			// Only packages of the standard library have no dot in their first element.
			if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") && !underAny(path, []string{module + "/cmd", module + "/docs", module + "/pkg"}) {
				imports[path] = file
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}

// providing returns the module with the longest path that is a prefix of a package's path; empty if
// there is none.
func providing(path string, modules map[string]bool) (longest string) {
	for candidate := range modules {
		if underAny(path, []string{candidate}) && len(candidate) > len(longest) {
			longest = candidate
		}
	}
	return longest
}
