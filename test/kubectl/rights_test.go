package kubectl

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// viewer is in the group to which the overlay grants its roles. stranger has no rights.
var (
	viewer   = []string{"--as=viewer", "--as-group=spot-viewers", "--as-group=system:authenticated"}
	stranger = []string{"--as=stranger", "--as-group=system:authenticated"}
	tenant   = []string{"--as=tenant", "--as-group=system:authenticated"}
)

// kubectl runs the pinned kubectl, which finds the plugin on the PATH. Cleanups may call it too.
func kubectl(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(controlPlane.Root, ".local", "bin", "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+controlPlane.Kubeconfig,
		"PATH="+filepath.Join(controlPlane.Root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	return string(out), err
}

// install applies the roles, and the Deployment and configuration of the scheduler to which they
// refer.
func install(t *testing.T) {
	t.Helper()
	root := controlPlane.Root
	for _, dir := range []string{"manifests/overlays/viewer", "manifests/base"} {
		objects, err := kubectl(t, "", "kustomize", filepath.Join(root, filepath.FromSlash(dir)))
		live.Must(t, err)
		if out, err := kubectl(t, objects, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// These pods must not run in this test.
	out, err := kubectl(t, "", "-n", "kube-system", "scale", "deployment", "--all", "--replicas=0")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// commands returns the arguments of all commands, as a user with every right runs them.
func commands(namespace string) map[string][]string {
	return map[string][]string{
		"status":        {"status", "-n", namespace},
		"status of all": {"status", "-A"},
		"nodes":         {"nodes"},
		"explain":       {"explain", "deploy/web", "-n", namespace},
		"what-if":       {"what-if", "--lose", "all-spot", "-n", namespace},
		"savings":       {"savings"},
		"assess":        {"assess", "-n", namespace},
	}
}

// TestRights runs every command with the shipped rights, without rights, and with each right
// removed in turn.
func TestRights(t *testing.T) {
	install(t)
	namespace := start(t)
	// Only its PriorityClass determines its priority, to which rules can refer.
	live.Must(t, app{kind: "StatefulSet"}.create(t, namespace, "idle"))
	// Only if a node is of a NodePool, NodePools matter.
	if out, err := kubectl(t, "", "label", "node", "--all", "karpenter.sh/nodepool=apps"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, args := range commands(namespace) {
		t.Run(name, func(t *testing.T) {
			if r := spot(t, controlPlane, append(args, viewer...)...); r.status != 0 || r.err != "" || r.out == "" {
				t.Errorf("with the shipped rights: exit status %d, %q\n%s", r.status, r.out, r.err)
			}
			r := spot(t, controlPlane, append(args, stranger...)...)
			if r.status != 1 || r.out != "" || !strings.Contains(r.err, `cannot list resource "pods"`) || !strings.Contains(r.err, "spot-viewer") {
				t.Errorf("without rights: exit status %d, %q\n%s", r.status, r.out, r.err)
			}
		})
	}
	t.Run("nothing but reading", func(t *testing.T) {
		for _, verb := range []string{"create", "update", "patch", "delete", "watch"} {
			for _, resource := range []string{"nodes", "pods", "pods/eviction", "deployments", "configmaps", "leases", "secrets"} {
				if out, err := kubectl(t, "", append([]string{"auth", "can-i", verb, resource, "-n", "kube-system"}, viewer...)...); err == nil {
					t.Errorf("may %s %s: %s", verb, resource, out)
				}
			}
		}
		if out, err := kubectl(t, "", append([]string{"auth", "can-i", "get", "secrets", "-A"}, viewer...)...); err == nil {
			t.Errorf("may get secrets: %s", out)
		}
	})
	t.Run("every right is needed", func(t *testing.T) { requireEachRightMatters(t, namespace) })
	t.Run("one namespace", func(t *testing.T) { oneNamespace(t, namespace) })
}

// partial is the exit status of an answer that lacks data that could not be read.
const partial = 3

// requireEachRightMatters removes each right of the ClusterRole. A command must then give only a
// partial answer, or complete fewer names.
func requireEachRightMatters(t *testing.T, namespace string) {
	ctx := t.Context()
	roles := client.RbacV1().ClusterRoles()
	shipped, err := roles.Get(ctx, "spot-viewer", metav1.GetOptions{})
	live.Must(t, err)
	set := func(rules []rbacv1.PolicyRule) {
		role, err := roles.Get(ctx, "spot-viewer", metav1.GetOptions{})
		live.Must(t, err)
		role.Rules = rules
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
		live.Must(t, err)
	}
	explain := append([]string{"explain", "deploy/web", "-n", namespace, "--scheduler-config", byPriority(t)}, viewer...)
	for i, rule := range shipped.Rules {
		for _, resource := range rule.Resources {
			var rules []rbacv1.PolicyRule
			for j, other := range shipped.Rules {
				var kept []string
				for _, r := range other.Resources {
					if i != j || r != resource {
						kept = append(kept, r)
					}
				}
				if other.Resources = kept; len(kept) > 0 {
					rules = append(rules, other)
				}
			}
			set(rules)
			name := strings.TrimSuffix(resource+"."+rule.APIGroups[0], ".")
			live.Must(t, live.Until(ctx, 10*time.Second, func() error {
				if out, err := kubectl(t, "", append([]string{"auth", "can-i", "list", name, "-A"}, viewer...)...); err == nil {
					return fmt.Errorf("still: %s", out)
				}
				return nil
			}))
			if resource == "clusterrolebindings" {
				continue // without it kube-system is assumed, which is right here
			}
			if resource == "namespaces" {
				if r := spot(t, controlPlane, append([]string{"__complete"}, append(viewer, "status", "-n", "")...)...); strings.Contains(r.out, namespace) {
					t.Errorf("namespaces are completed without the right to list them, so the right is not needed")
				}
				continue
			}
			args := explain
			if resource == "poddisruptionbudgets" {
				args = append([]string{"assess", "-n", namespace}, viewer...)
			}
			r := spot(t, controlPlane, args...)
			want := partial
			if resource == "pods" || resource == "replicasets" || resource == "deployments" {
				want = 1 // without these, deploy/web is unknown
			}
			if r.status != want || !strings.Contains(r.err, fmt.Sprintf("cannot list resource %q", resource)) {
				t.Errorf("exit status %d, want %d: the right to list %s may not be needed\n%s",
					r.status, want, resource, r.err)
			}
		}
	}
	set(shipped.Rules)
	live.Must(t, live.Until(ctx, 10*time.Second, func() error {
		if r := spot(t, controlPlane, explain...); r.status != 0 || r.err != "" {
			return fmt.Errorf("exit status %d: %s", r.status, r.err)
		}
		return nil
	}))
}

// byPriority returns a file with the shipped configuration and a rule that refers to the priority
// of pods.
func byPriority(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(shippedConfig())
	live.Must(t, err)
	const floor = "minOnDemand: 1\n"
	if !strings.Contains(string(text), floor) {
		t.Fatalf("the shipped configuration has no %s", floor)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	rule := "      rules: [{name: important, minPriority: 1000000, minOnDemand: 2}]\n"
	live.Must(t, os.WriteFile(file, []byte(strings.Replace(string(text), floor, floor+rule, 1)), 0o600))
	return file
}

// oneNamespace grants a user the ClusterRole in a single namespace, and then the ClusterRole for
// nodes too.
func oneNamespace(t *testing.T, namespace string) {
	if out, err := kubectl(t, "", "create", "rolebinding", "tenant", "-n", namespace, "--clusterrole=spot-viewer", "--user=tenant"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	live.Must(t, live.Until(t.Context(), 10*time.Second, func() error {
		r := spot(t, controlPlane, append([]string{"status", "-n", namespace}, tenant...)...)
		if r.status != partial {
			return fmt.Errorf("exit status %d: %s", r.status, r.err)
		}
		return nil
	}))
	r := spot(t, controlPlane, append([]string{"status", "-n", namespace}, tenant...)...)
	for _, want := range []string{`cannot list resource "nodes"`, "which pods run on spot is unknown", "the defaults are assumed: minOnDemand=1", "spot-viewer"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no warning contains %q:\n%s", want, r.err)
		}
	}
	if !strings.Contains(r.out, "deployment/web") || !strings.Contains(r.out, "unknown") {
		t.Errorf("expected deployment/web, and unknown values:\n%s", r.out)
	}
	if r := spot(t, controlPlane, append([]string{"status", "-A"}, tenant...)...); r.status != 1 || !strings.Contains(r.err, "-n NAMESPACE") {
		t.Errorf("-A: exit status %d\n%s", r.status, r.err)
	}
	if r := spot(t, controlPlane, append([]string{"nodes", "-n", namespace}, tenant...)...); r.status != 1 || !strings.Contains(r.err, "nodes cannot be read") {
		t.Errorf("nodes: exit status %d\n%s", r.status, r.err)
	}
	if out, err := kubectl(t, "", "create", "clusterrolebinding", "tenant", "--clusterrole=spot-viewer-nodes", "--user=tenant"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _, _ = kubectl(t, "", "delete", "clusterrolebinding", "tenant") })
	if out, err := kubectl(t, "", "create", "rolebinding", "tenant", "-n", "kube-system", "--role=spot-viewer", "--user=tenant"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _, _ = kubectl(t, "", "delete", "rolebinding", "tenant", "-n", "kube-system") })
	live.Must(t, live.Until(t.Context(), 10*time.Second, func() error {
		r := spot(t, controlPlane, append([]string{"what-if", "--lose", "all-spot", "-n", namespace}, tenant...)...)
		if r.status != partial || !strings.Contains(r.err, "pods of other namespaces are not seen") || !strings.Contains(r.out, "job/sum") {
			return fmt.Errorf("exit status %d: %s%s", r.status, r.out, r.err)
		}
		return nil
	}))
	r = spot(t, controlPlane, append([]string{"explain", "deploy/web", "-n", namespace}, tenant...)...)
	if r.status != partial || !strings.Contains(r.err, "pods of other namespaces are not seen") {
		t.Errorf("explain: exit status %d\n%s", r.status, r.err)
	}
}

// TestPlugin runs the plugin through kubectl, in a cluster without nodes or workloads.
func TestPlugin(t *testing.T) {
	if out, err := kubectl(t, "", "spot", "status", "-n", v1.NamespaceDefault, "--scheduler-config", shippedConfig()); err != nil ||
		out != "No workload of namespace default opts in: none has schedulerName spot-aware-scheduler, "+
			"or keeps its scheduler by the label spot-aware-scheduler.io/opt-in: keep-scheduler. "+
			"https://github.com/spot-aware-scheduler/spot-aware-scheduler/blob/main/docs/opt-in.md explains how; "+
			"use -A for all namespaces and --profile for another scheduler's pods.\n" {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := kubectl(t, "", "spot", "nodes", "--scheduler-config", shippedConfig())
	if err != nil || !strings.Contains(out, "The cluster has no nodes.") {
		t.Errorf("%v\n%s", err, out)
	}
}
