package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestInstallation shows which ClusterRoleBindings in the cluster refuse a release. A value of a
// copy of the chart replaces the lookup, which finds nothing without a cluster.
func TestInstallation(t *testing.T) {
	folder := t.TempDir()
	live.Must(t, os.CopyFS(folder, os.DirFS(chart)))
	path := filepath.Join(folder, "templates", "installation.yaml")
	data, err := os.ReadFile(path)
	live.Must(t, err)
	const lookup = `lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "spot-controller"`
	if !strings.Contains(string(data), lookup) {
		t.Fatalf("installation.yaml does not contain %q", lookup)
	}
	live.Must(t, os.WriteFile(path, []byte(strings.Replace(string(data), lookup, ".Values.global.binding", 1)), 0o600))

	in := func(namespace string) []any {
		group := values{"kind": "Group", "name": "a"}
		return []any{group, values{"kind": "ServiceAccount", "name": "spot-controller", "namespace": namespace}}
	}
	owner := func(name, namespace string) values {
		return values{"annotations": values{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}}
	}
	for name, test := range map[string]struct {
		subjects []any
		metadata values
		want     string // the error; empty for none
	}{
		"this release":                        {in(elsewhere), owner(release, elsewhere), ""},
		"this release with other subjects":    {in("kube-system"), owner(release, elsewhere), ""},
		"kubectl in this namespace":           {in(elsewhere), values{}, ""},
		"kubectl in another namespace":        {in("other"), values{}, "installed in namespace other by kubectl, and"},
		"another release":                     {in(elsewhere), owner("first", elsewhere), "installed in namespace elsewhere by the Helm release first, and"},
		"a release of this name in another":   {in("other"), owner(release, "other"), "installed in namespace other by the Helm release spot, and"},
		"a release with subjects of this one": {in(elsewhere), owner(release, "other"), "installed in namespace other by the Helm release spot, and"},
	} {
		t.Run(name, func(t *testing.T) {
			binding := values{"metadata": test.metadata, "subjects": test.subjects}
			_, err := renderFolder(t, folder, values{"global": values{"binding": binding}})
			if test.want == "" {
				live.Must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that contains %q", err, test.want)
			}
		})
	}
}
