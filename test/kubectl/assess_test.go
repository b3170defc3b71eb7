package kubectl

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// shop has workloads of the demo, with their replicas and floors as literals. The demo's own table
// is in test/lab/demo.
var shop = map[string]app{
	"storefront": {"Deployment", 10, 3, "30%", true},
	"checkout":   {"Deployment", 3, 1, "", true},
	"payments":   {"Deployment", 3, 2, "2", true},
	"login":      {"Deployment", 2, 1, "", true},
	"admin":      {"Deployment", 1, 1, "", true},
	"kafka":      {"StatefulSet", 5, 2, "2", true},
	"redis":      {"StatefulSet", 3, 1, "", true},
	"report":     {"Job", 6, 0, "", true},
}

// budgets has minAvailable of the workloads of shop that have a PodDisruptionBudget in the demo.
var budgets = map[string]int{"storefront": 5, "checkout": 2, "payments": 2, "kafka": 3}

// TestAssess assesses workloads of the demo that run without this scheduler. It then runs the
// script of -o patch, starts the scheduler, and checks that each floor is on on-demand.
func TestAssess(t *testing.T) {
	ctx := t.Context()
	s := live.NewScenario(t, controlPlane, client, append(live.OnDemand(4, 8), live.Spot(8, 8)...)...)
	namespace := s.Namespace
	_, err := controlPlane.StartStockScheduler(ctx)
	live.Must(t, err)
	for name, app := range shop {
		live.Must(t, app.create(t, namespace, name))
		if minAvailable, ok := budgets[name]; ok {
			_, err := client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}},
				metav1.CreateOptions{})
			live.Must(t, err)
		}
	}
	patched := func(name string) bool { return shop[name].kind != "Job" }
	ready := func(scheduler string) func() error {
		return func() error {
			pods, err := live.Pods(ctx, client, namespace, metav1.ListOptions{})
			if err != nil {
				return err
			}
			found := map[string]int{}
			for i := range pods {
				name := pods[i].Labels["app"]
				if wanted := pods[i].Spec.SchedulerName; wanted != scheduler && patched(name) {
					return fmt.Errorf("%s names the scheduler %s", pods[i].Name, wanted)
				}
				if live.IsReady(&pods[i]) {
					found[name]++
				}
			}
			for name, app := range shop {
				if found[name] != app.replicas {
					return fmt.Errorf("%s: %d of %d pods are ready", name, found[name], app.replicas)
				}
			}
			return nil
		}
	}
	live.Must(t, live.Until(ctx, time.Minute, ready(v1.DefaultSchedulerName)))
	live.Must(t, live.Until(ctx, time.Minute, func() error { // the disruption controller has counted the pods
		budgets, err := client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, budget := range budgets.Items {
			if budget.Status.DisruptionsAllowed == 0 {
				return fmt.Errorf("PodDisruptionBudget %s: %+v", budget.Name, budget.Status)
			}
		}
		return nil
	}))

	// The cluster and a dump of it give the same answer.
	type item struct {
		Name, Class string
		Floor       int
	}
	var fromCluster, fromDump struct{ Items []item }
	answer(t, &fromCluster, "assess", "-n", namespace, "--scheduler-config", shippedConfig())
	r := spot(t, controlPlane, "assess", "-n", namespace, "--scheduler-config", shippedConfig(), "--from", dump(t, controlPlane), "-o", "json")
	if r.status != 0 {
		t.Fatalf("exit status %d\n%s", r.status, r.err)
	}
	live.Must(t, json.Unmarshal([]byte(r.out), &fromDump))
	if diff := cmp.Diff(fromCluster, fromDump); diff != "" {
		t.Errorf("the cluster and the dump differ (-cluster +dump):\n%s", diff)
	}
	// A PodDisruptionBudget raises the floor.
	floor := func(name string) int { return max(shop[name].floor, budgets[name]) }
	got, want := map[string]item{}, map[string]item{}
	for _, i := range fromCluster.Items {
		got[i.Name] = i
	}
	for name, app := range shop {
		class := "WithChange"
		if minAvailable, ok := budgets[name]; ok && minAvailable <= app.floor {
			class = "Now"
		} else if app.replicas == 1 {
			class = "OnDemand"
		}
		want[name] = item{name, class, floor(name)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("suggestions (-want +got):\n%s", diff)
	}

	// The script of -o patch contains a command for each workload except the Job, which cannot be
	// patched, and the single replica if it does not run on spot. The commands that wait for a
	// change are comments.
	script := spot(t, controlPlane, "assess", "-n", namespace, "--scheduler-config", shippedConfig(), "-o", "patch").out
	patched = func(name string) bool {
		return strings.Contains(script, "kubectl patch "+strings.ToLower(shop[name].kind)+" "+name+" ")
	}
	commands := len(shop) - 1
	if !patched("admin") {
		commands--
	}
	if active, all := strings.Count("\n"+script, "\nkubectl patch"), strings.Count(script, "kubectl patch"); active >= all || all != commands {
		t.Errorf("%d of %d commands are active, want %d commands\n%s", active, all, commands, script)
	}
	s.StartScheduler(lab.SchedulerOptions{}) // the script waits for each rollout
	script = strings.ReplaceAll(script, "# kubectl patch", "kubectl patch")
	run := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	run.Env = append(os.Environ(), "KUBECONFIG="+controlPlane.Kubeconfig,
		"PATH="+filepath.Join(controlPlane.Root, ".local", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := run.CombinedOutput()
	if err != nil || strings.Count(string(output), "patched") != commands {
		t.Fatalf("%v\n%s\n%s", err, output, script)
	}
	live.Must(t, live.Until(ctx, 2*time.Minute, ready("spot-aware-scheduler")))
	live.Must(t, live.Until(ctx, time.Minute, func() error { return rolledOut(t, namespace) }))
	splits, err := s.Splits()
	live.Must(t, err)
	for name, app := range shop {
		if patched(name) && splits[name].OnDemand < floor(name) {
			t.Errorf("%s: %+v, want the floor of %d on on-demand", name, splits[name], floor(name))
		}
		if patched(name) && app.replicas > floor(name) && splits[name].Spot == 0 {
			t.Errorf("%s: %+v, want replicas on spot", name, splits[name])
		}
	}
}

// rolledOut returns an error if a pod of an old revision remains.
func rolledOut(t *testing.T, namespace string) error {
	deployments, err := client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range deployments.Items {
		if d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
			return fmt.Errorf("%s: %+v", d.Name, d.Status)
		}
	}
	return nil
}
