package rbac

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestControllerChanges compares the shipped rights of the controller to change objects with the
// list below. A new write right must be added here too. All other rights are read-only, and none
// covers Secrets, other ConfigMaps than the ledger and the switches, or a wildcard.
func TestControllerChanges(t *testing.T) {
	file, err := os.Open(filepath.Join(controlPlane.Root, "manifests", "components", "controller", "rbac.yaml"))
	live.Must(t, err)
	defer file.Close()
	var changes []string
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for roles := 0; ; {
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			if roles != 2 {
				t.Fatalf("%d roles, want a ClusterRole and a Role", roles)
			}
			break
		} else {
			live.Must(t, err)
		}
		if len(role.Rules) > 0 {
			roles++
		}
		for _, rule := range role.Rules {
			for _, g := range split(rule, role.Namespace) {
				switch {
				case g.verb == "*" || g.resource == "*" || g.group == "*" || g.resource == "secrets",
					g.resource == "configmaps" && g.object != "spot-controller-ledger" && g.object != "spot-controller-switches" && g.verb != "create":
					t.Errorf("%s: the controller does not need this right", g)
				case !slices.Contains([]string{"get", "list", "watch"}, g.verb):
					changes = append(changes, g.String()+" "+g.namespace)
				}
			}
		}
	}
	slices.Sort(changes)
	want := []string{
		"create configmaps kube-system", // the ledger
		"create events.events.k8s.io ",
		"create leases.coordination.k8s.io kube-system",
		"create poddisruptionbudgets.policy ", // only with its label: TestOnlyOwnBudgetsMayBeChanged
		"create pods/eviction ",
		"create subjectaccessreviews.authorization.k8s.io ", // stores nothing
		"create tokenreviews.authentication.k8s.io ",        // stores nothing
		"delete poddisruptionbudgets.policy ",
		"delete pods ",
		"patch events.events.k8s.io ",
		"patch jobs.batch ", // only the count of disruptions: TestControllerMayOnlyCountDisruptionsOfJobs
		"patch nodes ",
		"patch poddisruptionbudgets.policy ",
		"patch pods ",
		"patch pods/status ",
		"update configmaps spot-controller-ledger kube-system",
		"update leases.coordination.k8s.io spot-controller kube-system",
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("rights to change something (-want +got):\n%s", diff)
	}
}
