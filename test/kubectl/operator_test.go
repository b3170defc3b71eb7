package kubectl

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// oncall is in the group to which the overlay operator grants its Role.
var oncall = []string{"--as=oncall", "--as-group=spot-operators", "--as-group=system:authenticated"}

// TestOperator runs the commands that switch the controller with the shipped rights of operators.
// These rights allow nothing else.
func TestOperator(t *testing.T) {
	install(t)
	overlay := filepath.Join(controlPlane.Root, "manifests", "overlays", "operator")
	if out, err := kubectl(t, "", "apply", "-k", overlay); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		_, _ = kubectl(t, "", "delete", "-k", overlay)
		_, _ = kubectl(t, "", "-n", "kube-system", "delete", "configmap", "--ignore-not-found", "spot-controller-switches", "other")
	})
	switches := func() string {
		out, _ := kubectl(t, "", "-n", "kube-system", "get", "configmap", "spot-controller-switches", "-o", "jsonpath={.data}")
		return out
	}
	live.Must(t, live.Until(t.Context(), live.Soon, func() error { // the API server reads the new Role some time later
		if out, err := kubectl(t, "", append([]string{"auth", "can-i", "create", "configmaps", "-n", "kube-system"}, oncall...)...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
	// An operator who may not read pods gets a warning instead of the effect of a pause.
	const unread = "the effect on pods is unknown"
	for _, test := range []struct{ command, out, err, switches string }{
		{"pause --for 1h --message INC-42", "Paused: everything until ", unread, "by: oncall"},
		{"pause --only heal", "Paused: heal without an end", unread, "- heal"},
		{"breaker close --for 1h", "Breaker: Closed until ", "", "state: Closed"},
		{"resume", "Resumed.", unread, "state: Closed"},
		{"breaker open", "Breaker: Open without an end", "", "state: Open"},
		{"breaker auto", "The controller decides", "", "{}"},
	} {
		r := spot(t, controlPlane, append(strings.Fields(test.command), oncall...)...)
		if r.status != 0 || !strings.Contains(r.out, test.out) || !strings.Contains(r.err, test.err) || test.err == "" && r.err != "" || strings.Count(r.err, "warning: ") > 1 {
			t.Errorf("%s: exit status %d, %q\n%s", test.command, r.status, r.out, r.err)
		}
		if got := switches(); !strings.Contains(got, test.switches) && (test.switches != "{}" || got != "") {
			t.Errorf("%s: the switches are %s, want %q in them", test.command, got, test.switches)
		}
	}
	if r := spot(t, controlPlane, append([]string{"pause"}, stranger...)...); r.status != 1 || !strings.Contains(r.err, "The Role spot-operator has this right") {
		t.Errorf("pause without rights: exit status %d, %q\n%s", r.status, r.out, r.err)
	}

	t.Run("nothing else", func(t *testing.T) {
		install := []string{"-n", "kube-system", "create", "configmap", "other", "--from-literal=a=b"}
		if out, err := kubectl(t, "", install...); err != nil {
			t.Fatal(out)
		}
		for _, line := range []string{
			"get secrets -A", "-n kube-system get configmaps", "-n kube-system get configmap other", "-n kube-system delete configmap other",
			"-n kube-system label configmap other a=b", "-n kube-system delete pods --all", "-n kube-system scale deployment spot-controller --replicas=0",
			"-n kube-system delete lease spot-controller", "-n default create configmap other", "get nodes",
		} {
			if out, err := kubectl(t, "", append(strings.Fields(line), oncall...)...); err == nil || !strings.Contains(out, "orbidden") {
				t.Errorf("kubectl %s: %v, want a denial\n%s", line, err, out)
			}
		}
		want := []string{
			"configmaps [] [] [create]",
			"configmaps [] [spot-controller-switches] [get update patch delete]",
		}
		if diff := cmp.Diff(want, rightsBeyond(t, "kube-system", oncall, stranger)); diff != "" {
			t.Errorf("rights of operators (-want +got):\n%s", diff)
		}
		if got := rightsBeyond(t, "default", oncall, stranger); len(got) > 0 {
			t.Errorf("rights of operators in another namespace: %q", got)
		}
	})
}

// rightsBeyond returns the rights in a namespace that only the first of two users has.
func rightsBeyond(t *testing.T, namespace string, user, other []string) []string {
	t.Helper()
	rights := func(user []string) (rows []string) {
		out, err := kubectl(t, "", append([]string{"auth", "can-i", "--list", "--no-headers", "-n", namespace}, user...)...)
		live.Must(t, err)
		for line := range strings.Lines(out) {
			rows = append(rows, strings.Join(strings.Fields(line), " "))
		}
		slices.Sort(rows)
		return rows
	}
	others := rights(other)
	return slices.DeleteFunc(rights(user), func(row string) bool { return slices.Contains(others, row) })
}
