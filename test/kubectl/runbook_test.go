package kubectl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	// alarm is the key of a taint that announces a reclaim in ten seconds.
	alarm  = "example.com/reclaimed"
	notice = 10 * time.Second
	// quiet is the time in which nothing may happen.
	quiet = 5 * time.Second
	// spotNodes is the number of spot nodes. More than ten signals open the breaker.
	spotNodes = 13
)

// runbook runs the commands of docs/operations.md in their order.
type runbook struct {
	*live.Scenario
	kubelet *kubelet
	// commands are the commands of the page that did not run yet.
	commands []string
}

// TestRunbook runs every command of docs/operations.md, in the order of the page, while the shipped
// controller runs in the pods of its Deployment. It checks the effect of each command.
func TestRunbook(t *testing.T) {
	r := startRunbook(t)
	r.evictsTooMuch()
	r.doesNotEvict()
	r.regionIsBurning()
	r.rollsBack()
	if len(r.commands) > 0 {
		t.Errorf("docs/operations.md has commands that this test does not know: %q", r.commands)
	}
}

// read returns the content of a file of the checkout.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(controlPlane.Root, filepath.FromSlash(file)))
	live.Must(t, err)
	return string(text)
}

// operationsCommands returns the commands in the code blocks and code spans of docs/operations.md.
func operationsCommands(t *testing.T) (commands []string) {
	t.Helper()
	inBlock := false
	for line := range strings.Lines(read(t, "docs/operations.md")) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock = !inBlock
		case inBlock:
			commands = append(commands, line)
		default:
			for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
				if strings.HasPrefix(match[1], "kubectl ") || strings.HasPrefix(match[1], "helm ") {
					commands = append(commands, match[1])
				}
			}
		}
	}
	return commands
}

// startRunbook starts a cluster in which the limit of one move per hour has allowed the heal of one
// floor, and refuses that of another.
func startRunbook(t *testing.T) *runbook {
	t.Helper()
	plane, err := lab.Start(t.Context(), lab.Options{PodStartup: 200 * time.Millisecond})
	live.Must(t, err)
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(plane.Config())
	live.Must(t, err)
	s := live.NewScenario(t, plane, client, append(live.Spot(spotNodes, 10), live.OnDemand(1, 2)...)...)
	r := &runbook{Scenario: s, commands: operationsCommands(t)}
	r.Watch()
	signals := live.Settings{"signals": []any{map[string]any{"taint": alarm, "class": "reclaim", "notice": notice.String()}}}
	r.StartScheduler(lab.SchedulerOptions{Edit: signals.EditSafety})
	for _, app := range []string{"one", "two"} {
		r.Deploy(app, 2, live.Annotated("spot-aware-scheduler.io/fallback-after", "1s"))
	}
	r.Eventually(live.Soon, r.HaveReadySplits(map[string]live.Split{"one": {OnDemand: 1, Spot: 1}, "two": {OnDemand: 1, Spot: 1}}))
	r.LoseNodes("od-1")
	r.Eventually(live.Soon, r.HaveReadySplits(map[string]live.Split{"one": {Spot: 2}, "two": {Spot: 2}}))
	r.AddNodes(live.OnDemand(4, 20)[1:]...)

	overlay := r.overlay(signals.EditSafety, live.Settings{
		"limits.movesPerHour": 1, "rebalance.makeRoom": false, "rebalance.returnToSpot": false, "deletionCosts.enabled": false,
		"rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s", "leaderElection.leaseDuration": "5s",
	}.Edit)
	_, err = plane.ControllerKubeconfig(t.Context()) // it creates the account, so it precedes the manifests
	live.Must(t, err)
	_, err = plane.StartStockScheduler(t.Context())
	live.Must(t, err)
	r.kubelet = runKubelet(s, func() (*lab.Process, error) {
		return plane.StartController(t.Context(), lab.ControllerOptions{
			ConfigFile: filepath.Join(overlay, controllerConfig), SchedulerConfigFile: filepath.Join(overlay, schedulerConfig), Flags: []string{"-v=2"},
		})
	})
	r.shell("kubectl kustomize %s | kubectl apply --server-side --force-conflicts -f -", overlay)
	r.Eventually(live.Soon, r.controllers(2))
	return r
}

// The files of the shipped configuration.
const schedulerConfig, controllerConfig = "scheduler-config.yaml", "controller-config.yaml"

// overlay returns the folder of an overlay of the base with the edited configurations.
func (r *runbook) overlay(editScheduler, editController func(config map[string]any)) (dir string) {
	r.Helper()
	dir = r.TempDir()
	base, err := filepath.Rel(dir, filepath.Join(r.Plane.Root, "manifests", "base"))
	r.Must(err)
	kustomization := "resources: [" + base + "]\nconfigMapGenerator:\n" +
		"- {name: spot-aware-scheduler-config, namespace: kube-system, behavior: merge, files: [" + schedulerConfig + "]}\n" +
		"- {name: spot-controller-config, namespace: kube-system, behavior: merge, files: [" + controllerConfig + "]}\n"
	r.Must(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600))
	for file, edit := range map[string]func(map[string]any){schedulerConfig: editScheduler, controllerConfig: editController} {
		var config map[string]any
		r.Must(yaml.Unmarshal([]byte(read(r.T, "config/"+file)), &config))
		edit(config)
		text, err := yaml.Marshal(config)
		r.Must(err)
		r.Must(os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	return dir
}

// shell runs a command, in which `kubectl spot` is the built plugin.
func (r *runbook) shell(format string, args ...any) string {
	r.Helper()
	script := fmt.Sprintf(format, args...)
	shell := exec.CommandContext(r.Ctx, "bash", "-euo", "pipefail", "-c", script)
	tools := filepath.Join(r.Plane.Root, "bin") + ":" + filepath.Join(r.Plane.Root, ".local", "bin")
	shell.Env = append(os.Environ(), "KUBECONFIG="+r.Plane.Kubeconfig, "PATH="+tools+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	r.Logf("$ %s\n%s", script, out)
	if err != nil {
		r.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// next removes the next command of the page, which must be this one.
func (r *runbook) next(want string) string {
	r.Helper()
	if len(r.commands) == 0 || r.commands[0] != want {
		r.Fatalf("the next commands of docs/operations.md are %q, want %s", r.commands[:min(3, len(r.commands))], want)
	}
	r.commands = r.commands[1:]
	return want
}

// run runs the next command of the page, with words replaced like by strings.NewReplacer. The
// output must contain the text out.
func (r *runbook) run(command, out string, replace ...string) string {
	r.Helper()
	got := r.shell("%s", strings.NewReplacer(replace...).Replace(r.next(command)))
	if !strings.Contains(got, out) {
		r.Errorf("%s prints no %q:\n%s", command, out, got)
	}
	return got
}

// controllers returns a check that so many pods of the controller, and no others, exist and run the
// program.
func (r *runbook) controllers(want int) func() error {
	return func() error {
		pods, err := r.Client.CoreV1().Pods(metav1.NamespaceSystem).List(r.Ctx, controllers)
		if err != nil {
			return err
		}
		if running := r.kubelet.running(); len(pods.Items) != want || len(running) != want {
			return fmt.Errorf("%d pods and %d processes of the controller, want %d", len(pods.Items), len(running), want)
		}
		return nil
	}
}

// metric returns a check of the sum of a metric over all controllers. Only the leader sets it.
func (r *runbook) metric(want int, name string, labels map[string]string) func() error {
	return func() error {
		sum := 0
		for _, p := range r.kubelet.running() {
			value, err := r.MetricValue(p, name, labels)
			if err != nil {
				return err
			}
			sum += value
		}
		if sum != want {
			return fmt.Errorf("%s%v is %d, want %d", name, labels, sum, want)
		}
		return nil
	}
}

// on returns the pods of an app by the names of their nodes.
func (r *runbook) on(app string) map[string][]string {
	r.Helper()
	pods, err := r.Pods(app)
	r.Must(err)
	names := map[string][]string{}
	for i := range pods {
		names[pods[i].Spec.NodeName] = append(names[pods[i].Spec.NodeName], pods[i].Name)
	}
	return names
}

// leaves returns a check that no pod of the app is on the node. It reads the history, as stays
// does, so a later call of stays knows every departure that this check has waited for.
func (r *runbook) leaves(app, node string) func() error {
	return func() error {
		for _, pod := range r.Seen.Pods(app) {
			if pod.Node == node && pod.Left.IsZero() {
				return fmt.Errorf("%s is on %s", pod.Name, node)
			}
		}
		return nil
	}
}

// stays returns a check that no pod of the app was released or removed since this call.
func (r *runbook) stays(app string) func() error {
	before := len(r.Seen.ReleasedOrRemoved(app))
	return func() error {
		if touched := r.Seen.ReleasedOrRemoved(app); len(touched) > before {
			return fmt.Errorf("released or removed: %q", touched[before:])
		}
		return nil
	}
}

// deploySpot creates a Deployment without a floor, whose pods are evicted without a surge. It
// returns when they run on spot, with the name of a node that has one, and none of the Deployments
// whose floors are broken: a reclaim would meet these.
func (r *runbook) deploySpot(app string) (node string) {
	r.Helper()
	r.Deploy(app, spotNodes, live.Annotated("spot-aware-scheduler.io/min-on-demand", "0"), live.Annotated("spot-aware-scheduler.io/surge", "false"))
	r.Eventually(live.Soon, r.HasReadySplit(app, live.Split{Spot: spotNodes}))
	one, two := r.on("one"), r.on("two")
	for name := range r.on(app) {
		if len(one[name])+len(two[name]) == 0 {
			node = max(node, name)
		}
	}
	return node
}

// forbidEvictions creates a PodDisruptionBudget that allows no disruption of the app.
func (r *runbook) forbidEvictions(app string) {
	r.Helper()
	budgets := r.Client.PolicyV1().PodDisruptionBudgets(r.Namespace)
	_, err := budgets.Create(r.Ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}, metav1.CreateOptions{})
	r.Must(err)
}

// announce sets the taint of the alarm on nodes.
func (r *runbook) announce(nodes ...string) {
	r.Helper()
	r.shell("kubectl taint node %s %s=true:PreferNoSchedule", strings.Join(nodes, " "), alarm)
}

// allSpot returns the names of all spot nodes.
func (r *runbook) allSpot() []string {
	r.Helper()
	nodes, err := r.Client.CoreV1().Nodes().List(r.Ctx, metav1.ListOptions{LabelSelector: lab.CapacityLabel + "=" + lab.Spot})
	r.Must(err)
	var names []string
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return names
}

// unmarked returns a check that the node has no taint.
func (r *runbook) unmarked(node string) func() error {
	return func() error {
		if taints := r.Node(node).Spec.Taints; len(taints) > 0 {
			return fmt.Errorf("%s has the taints %v", node, taints)
		}
		return nil
	}
}

// evictsTooMuch follows "It evicts too much" during a reclaim.
func (r *runbook) evictsTooMuch() {
	r.Helper()
	node := r.deploySpot("web")
	healed := r.metric(1, "spot_aware_scheduler_removals_total", map[string]string{"cause": "heal"})
	r.Eventually(live.Soon, healed)
	r.Eventually(live.Soon, r.metric(1, "spot_aware_scheduler_moves_limited", map[string]string{"cause": "heal"}))
	r.run(`kubectl spot pause --for 1h --message "INC-42"`, "Paused: everything until ")
	time.Sleep(time.Second) // the pause is in effect within a second
	stays := r.stays("")
	r.announce(node)
	r.RequireThroughout(quiet, stays)

	r.next("sum by (cause) (increase(spot_aware_scheduler_removals_total[1h]))") // without Prometheus, the metric itself:
	r.Must(healed())
	r.run("kubectl -n kube-system get configmap spot-controller-ledger -o yaml", `"cause":"heal"`)
	r.run("kubectl spot resume", "Resumed.")
	r.Eventually(live.Soon, r.leaves("web", node))
	r.shell("kubectl taint node %s %s-", node, alarm)
	r.Eventually(live.Soon, r.unmarked(node))
}

// doesNotEvict follows "It does not evict" during another pause, and while a limit refuses a heal.
func (r *runbook) doesNotEvict() {
	r.Helper()
	r.shell("kubectl spot pause")
	r.run("kubectl spot status -A", "the controller is paused: everything without an end")
	r.run("kubectl spot resume", "Resumed.")
	if out := r.shell("kubectl spot status -A"); strings.Contains(out, "paused") {
		r.Error("status still shows the pause")
	}
	out := r.run("kubectl get events -A --field-selector reason=LimitReached", "limits.movesPerHour is 1: the next move (heal) may start at 2")
	if !strings.Contains(out, "deployment/one") && !strings.Contains(out, "deployment/two") {
		r.Errorf("no event of a Deployment:\n%s", out)
	}
	r.run("kubectl -n kube-system scale deployment spot-controller --replicas=0", "scaled")
	r.Eventually(2*live.Soon, r.controllers(0))
	r.run("kubectl -n kube-system delete configmap spot-controller-ledger", "deleted")
	healed := r.HaveReadySplits(map[string]live.Split{"one": {OnDemand: 1, Spot: 1}, "two": {OnDemand: 1, Spot: 1}})
	if healed() == nil {
		r.Error("both floors are met before the ledger is reset")
	}
	r.run("kubectl -n kube-system scale deployment spot-controller --replicas=2", "scaled")
	r.Eventually(2*live.Soon, healed)
	r.Eventually(live.Soon, r.controllers(2))
}

// regionIsBurning follows "The region is burning" with an alarm that is true, and with one that is
// false.
func (r *runbook) regionIsBurning() {
	r.Helper()
	open := func(want int) func() error { return r.metric(want, "spot_aware_scheduler_breaker_open", nil) }
	all := r.allSpot()
	alarms := func(app string) (stays func() error) {
		r.Helper()
		r.deploySpot(app)
		r.forbidEvictions(app)
		stays = r.stays(app)
		r.announce(all...)
		r.Eventually(live.Soon, open(1))
		r.RequireThroughout(notice+quiet, stays)
		return stays
	}
	stays := alarms("true")
	if out := r.run("kubectl spot nodes -o wide", "the breaker for reclaim signals is open"); !strings.Contains(out, "taint "+alarm) {
		r.Errorf("no key of the signal:\n%s", out)
	}
	r.run("kubectl -n kube-system get events --field-selector involvedObject.name=spot-controller", "BreakerOpened")
	r.run("kubectl spot breaker close --for 1h", "Breaker: Closed until ")
	r.Eventually(live.Soon, open(0))
	r.RequireThroughout(quiet, stays) // the nodes have outlived their deadlines, so budgets hold
	r.Must(r.Client.PolicyV1().PodDisruptionBudgets(r.Namespace).Delete(r.Ctx, "true", metav1.DeleteOptions{}))
	r.Eventually(3*live.Soon, r.HasReadySplit("true", live.Split{OnDemand: spotNodes}))
	for _, node := range all {
		r.shell("kubectl taint node %s %s-", node, alarm)
		r.Eventually(live.Soon, r.unmarked(node))
	}
	r.shell("kubectl spot breaker auto")

	stays = alarms("false")
	r.run("kubectl spot breaker open", "Breaker: Open without an end")
	const key = "example.com/signal"
	r.shell("kubectl label node %s %s=true", all[0], key)
	r.shell("kubectl annotate node %s %s=true", all[0], key)
	r.run("kubectl taint nodes --all KEY-", "untainted", "KEY-", alarm+"- || true") // on-demand nodes do not have it
	r.run("kubectl label nodes --all KEY-", "unlabeled", "KEY", key)
	r.run("kubectl annotate nodes --all KEY-", "annotated", "KEY", key)
	r.run("kubectl get nodes -o name | xargs -I NODE kubectl patch NODE --subresource=status "+
		`-p '{"status":{"conditions":[{"type":"KEY","status":"False"}]}}'`, "patched", "KEY", "Signal")
	for _, name := range all {
		r.Eventually(live.Soon, r.unmarked(name))
	}
	r.Must(open(1)())
	r.run("kubectl spot breaker auto", "The controller decides")
	r.Eventually(live.Soon, open(0))
	r.Must(stays())
}

// rollsBack follows "Roll back now" and "A removal a month ago" after an update of the controller.
func (r *runbook) rollsBack() {
	r.Helper()
	const image = "kubectl -n kube-system get deployment spot-controller -o jsonpath='{..image}'"
	before := r.shell(image)
	r.shell("kubectl -n kube-system set image deployment/spot-controller '*=localhost/spot-controller:bad'")
	r.shell("kubectl -n kube-system rollout status deployment/spot-controller")
	r.run("kubectl spot pause", "Paused: everything without an end")
	r.run("kubectl -n kube-system rollout undo deployment/spot-controller", "rolled back")
	r.shell("kubectl -n kube-system rollout status deployment/spot-controller")
	r.Eventually(2*live.Soon, r.controllers(2))
	if after := r.shell(image); after != before {
		r.Errorf("the image is %s, want %s", after, before)
	}
	r.next("helm rollback spot-aware-scheduler --namespace kube-system") // TestRelease of test/chart runs helm rollback
	if !strings.Contains(read(r.T, "test/chart/live_test.go"), `c.helm("rollback", release, `) {
		r.Error("TestRelease does not run helm rollback any more")
	}

	node := r.deploySpot("last")
	name := r.on("last")[node][0]
	r.announce(node)
	r.RequireThroughout(quiet, r.stays("last"))
	r.run("kubectl spot resume", "Resumed.")
	r.Eventually(live.Soon, r.leaves("last", node))

	const logs = "kubectl -n kube-system logs -l app.kubernetes.io/name=spot-controller --prefix --tail=-1 "
	lines := r.run(logs+"| grep NAME", "Evicted pod", "NAME", name)
	r.run(logs+"--previous --ignore-errors | grep NAME", "Evicted pod", "NAME", name)
	uid := regexp.MustCompile(`Evicted pod".* podUID="(\S+)" .* cause="reclaim"`).FindStringSubmatch(lines)
	if uid == nil {
		r.Fatalf("the log line has no UID and cause:\n%s", lines)
	}
	r.run("kubectl get events -A --field-selector involvedObject.uid=UID", "EvictedToMove", "UID", uid[1])
}
