//go:build upgrade

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The control plane has the programs, manifests and configuration of the previous version here.
// hack/test-upgrade.sh builds that version in the folder SPOT_PREVIOUS.

func init() { checkout = os.Getenv("SPOT_PREVIOUS") }

// version is a checkout with built programs.
type version struct{ name, root string }

// versions returns the previous version and this one.
func versions(t *testing.T) (previous, current version) {
	t.Helper()
	root, err := lab.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	if checkout == "" || checkout == root {
		t.Fatalf("SPOT_PREVIOUS is %q: expected a folder with the previous version; make test-upgrade makes it", checkout)
	}
	return version{"previous", checkout}, version{"current", root}
}

func (v version) file(path ...string) string {
	return filepath.Join(append([]string{v.root}, path...)...)
}

func startScheduler(ctx context.Context, binary, config version) (*lab.Process, error) {
	return controlPlane.StartScheduler(ctx, lab.SchedulerOptions{
		Binary: binary.file("bin", "spot-aware-scheduler"), ConfigFile: config.file("config", "scheduler-config.yaml"),
		Flags: []string{"--pod-max-in-unschedulable-pods-duration=1h"}, // as in the function start
	})
}

func startController(ctx context.Context, binary, config version) (*lab.Process, error) {
	return controlPlane.StartController(ctx, lab.ControllerOptions{
		Binary: binary.file("bin", "spot-controller"), ConfigFile: config.file("config", "controller-config.yaml"),
		SchedulerConfigFile: config.file("config", "scheduler-config.yaml"), Flags: []string{"-v=2"},
	})
}

// program is a Deployment of this project, with processes as its replicas.
type program struct {
	*scenario
	name     string
	replicas []*lab.Process
	start    func(ctx context.Context, binary, config version) (*lab.Process, error)
}

// run starts as many replicas as the manifests of a version have. The given ones run already.
func (s *scenario) run(v version, component string, start func(context.Context, version, version) (*lab.Process, error), running ...*lab.Process) *program {
	s.Helper()
	data, err := os.ReadFile(v.file("manifests", "components", component, "deployment.yaml"))
	s.must(err)
	var deployment appsv1.Deployment
	s.must(yaml.Unmarshal(data, &deployment))
	p := &program{scenario: s, name: component, replicas: running, start: start}
	for len(p.replicas) < int(*deployment.Spec.Replicas) {
		p.add(v)
	}
	s.eventually(soon, p.leads)
	return p
}

// add starts a replica.
func (p *program) add(v version) {
	p.Helper()
	started, err := p.start(p.ctx, v, v)
	p.must(err)
	p.replicas = append(p.replicas, started)
}

// leads is a check that all replicas answer, and exactly one leads.
func (p *program) leads() error {
	_, _, err := p.findLeader(p.replicas)
	return err
}

// leader returns the leader.
func (p *program) leader() (leader *lab.Process) {
	p.Helper()
	p.eventually(soon, func() (err error) {
		leader, _, err = p.findLeader(p.replicas)
		return err
	})
	return leader
}

// replace replaces the replicas by replicas of a version, like a rollout of the Deployment: a new
// replica becomes ready, and then an old one stops. The leader stops last.
func (p *program) replace(with version) {
	p.Helper()
	leader, old := p.leader(), slices.Clone(p.replicas)
	slices.SortStableFunc(old, func(a, b *lab.Process) int {
		switch leader {
		case a:
			return 1
		case b:
			return -1
		}
		return 0
	})
	var stopped time.Time
	for _, replica := range old {
		p.add(with)
		stopped = time.Now()
		p.must(replica.Stop())
		p.replicas = slices.DeleteFunc(p.replicas, func(r *lab.Process) bool { return r == replica })
	}
	ended := time.Since(stopped)
	p.eventually(time.Minute, p.leads)
	p.Logf("%s: the last old replica, which led, ended after %.1f s, and one of the %s version led %.1f s after its SIGTERM",
		p.name, ended.Seconds(), with.name, time.Since(stopped).Seconds())
}

// killLeaders kills the leaders of all programs at once, and starts them again like kubelets. It
// returns when all programs have a leader.
func (s *scenario) killLeaders(programs ...*program) {
	s.Helper()
	var leaders []*lab.Process
	for _, p := range programs {
		leaders = append(leaders, p.leader())
	}
	killed := time.Now()
	for _, leader := range leaders {
		s.must(leader.Kill())
	}
	for i, p := range programs {
		again, err := controlPlane.StartAgain(leaders[i])
		s.must(err)
		p.replicas[slices.Index(p.replicas, leaders[i])] = again
	}
	for _, p := range programs {
		s.eventually(time.Minute, p.leads)
		s.Logf("%s: all replicas ran and one led %.1f s after SIGKILL of the leader", p.name, time.Since(killed).Seconds())
	}
}

// apply applies the manifests of a version, as users do.
func (s *scenario) apply(v version) {
	s.Helper()
	out, err := exec.CommandContext(s.ctx, filepath.Join(controlPlane.Root, ".local", "bin", "kubectl"), "--kubeconfig", controlPlane.Kubeconfig,
		"apply", "-k", v.file("manifests", "base")).CombinedOutput()
	if err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	s.Logf("applied the manifests of the %s version: %d objects configured or created", v.name,
		strings.Count(string(out), " configured\n")+strings.Count(string(out), " created\n"))
}

// The workloads with a role of their own in TestUpgrade.
const (
	protectedApp = "app-0" // one replica, and a budget of the controller
	rolledOutApp = "app-4" // gets a new image
	scaledApp    = "app-9" // is scaled down and up
)

// sizeOf returns the replicas and the floor of the workload app-i of TestUpgrade.
func sizeOf(i int) (replicas, floor int) {
	replicas, floor = []int{1, 2, 3, 4, 6}[i%5], 1
	if replicas == 6 {
		floor = 2
	}
	return replicas, floor
}

// deployMixed creates workloads and returns their replicas. Workloads of three replicas are moved
// by eviction, and the others surge. From then on the test fails at every moment at which a
// workload has fewer ready replicas than its budget requires, or fewer on on-demand nodes than its
// floor.
func (s *scenario) deployMixed(n int) (replicas map[string]int) {
	s.Helper()
	replicas = map[string]int{}
	for i := range n {
		app := fmt.Sprintf("app-%d", i)
		size, floor := sizeOf(i)
		replicas[app] = size
		edits := []func(*appsv1.Deployment){annotated(minOnDemand, fmt.Sprint(floor))}
		if size == 3 {
			edits = append(edits, annotated(surgeAnnotation, "false"))
		}
		if app == rolledOutApp {
			edits = append(edits, withoutUnavailable)
		}
		s.deploy(app, int32(size), edits...)
	}
	for i := range n {
		app := fmt.Sprintf("app-%d", i)
		size, floor := sizeOf(i)
		s.eventually(2*time.Minute, s.complete(app, size))
		switch {
		case app == scaledApp:
			s.seen.requireReady(app, size/2)
		case size == 1:
			s.seen.requireReady(app, 1)
		default:
			s.protect(app, size, maxUnavailable("1"))
		}
		if app != rolledOutApp { // another pod may start where an old pod of the floor ends
			s.seen.requireFloor(app, floor)
		}
	}
	return replicas
}

// withoutUnavailable is an edit that lets a rollout remove an old pod only after a new one is
// ready.
func withoutUnavailable(d *appsv1.Deployment) {
	none := intstr.FromInt32(0)
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: &none}
}

// TestUpgrade upgrades the scheduler and the controller from the previous version to this one, and
// back, while 50 workloads run. Pods leave a reclaimed node during the replacement. Then the new
// leaders are killed while pods leave another node and a rollout runs.
func TestUpgrade(t *testing.T) {
	previous, current := versions(t)
	s := start(t, slices.Concat(live.OnDemand(6, 16), live.Spot(12, 14))...)
	scheduler := s.run(previous, "scheduler", startScheduler, s.scheduler)
	controller := s.run(previous, "controller", startController)
	s.apply(previous)
	replicas := s.deployMixed(50)
	s.seen.fewestReady() // from now on
	s.upgrade(current, replicas, scheduler, controller, "spot-1", "spot-2")
	s.upgrade(previous, replicas, scheduler, controller, "spot-3", "spot-4")
	s.auditor.Require(t)
}

// upgrade replaces the programs by another version, and reclaims both nodes meanwhile.
func (s *scenario) upgrade(to version, replicas map[string]int, scheduler, controller *program, first, second string) {
	s.Helper()
	s.Logf("upgrade to the %s version", to.name)
	began := time.Now()
	s.patch(protectedApp, `{"metadata":{"annotations":{"`+protectAnnotation+`":"true"}}}`)
	s.eventually(soon, s.hasControllerBudget(protectedApp, "0"))
	budget := s.controllerBudget(protectedApp)

	s.editNode(first, tainted(reclaimed))
	s.eventually(soon, s.marked(first, true))
	s.eventually(soon, s.leaving(first, began))
	s.apply(to)
	scheduler.replace(to)
	controller.replace(to)

	s.editNode(second, tainted(reclaimed))
	s.update(rolledOutApp, "app:"+to.name)
	s.eventually(soon, s.leaving(second, began))
	s.killLeaders(scheduler, controller)

	for _, node := range []string{first, second} {
		s.eventually(2*time.Minute, s.empty(node))
	}
	s.eventually(time.Minute, s.hasImage(rolledOutApp, "registry.invalid/app:"+to.name))
	s.requireNothingLost(began, replicas)
	s.requireMarksTakenOver(budget, first, second)
}

// leaving returns a check that pods leave the node, or are about to, since a moment.
func (s *scenario) leaving(node string, since time.Time) func() error {
	return func() error {
		for _, record := range s.seen.all("") {
			if record.node == node && (record.released.After(since) || record.leaves.After(since)) {
				return nil
			}
		}
		return fmt.Errorf("no pod leaves %s", node)
	}
}

// hasImage returns a check that all pods of the app have the image.
func (s *scenario) hasImage(app, image string) func() error {
	return func() error {
		pods, err := live.Pods(s.ctx, client, s.namespace, metav1.ListOptions{LabelSelector: "app=" + app})
		for _, pod := range pods {
			if got := pod.Spec.Containers[0].Image; got != image {
				err = errors.Join(err, fmt.Errorf("pod %s has the image %s, want %s", pod.Name, got, image))
			}
		}
		return err
	}
}

// controllerBudget returns the identity of the controller's budget of the app.
func (s *scenario) controllerBudget(app string) types.UID {
	s.Helper()
	budget, err := client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(s.ctx, app+"-protected", metav1.GetOptions{})
	s.must(err)
	return budget.UID
}

// requireNothingLost waits until all workloads are complete. It fails the test if a pod left other
// than by a move, a rollout or a scale-down.
func (s *scenario) requireNothingLost(began time.Time, replicas map[string]int) {
	s.Helper()
	all := 0
	for app, n := range replicas {
		all += n
		s.eventually(time.Minute, s.complete(app, n))
	}
	s.eventually(soon, s.noPodReleased)
	s.eventually(soon, func() error {
		if deficits := s.auditor.Deficits(); len(deficits) > 0 {
			return fmt.Errorf("below their floors: %v", deficits)
		}
		return nil
	})
	methods := map[string]int{}
	for _, record := range s.seen.removed("") {
		if record.leaves.Before(began) || record.app == rolledOutApp {
			continue
		}
		methods[record.method()]++
		if record.method() == "deleted" {
			s.Errorf("pod %s on %s was deleted, want it moved", record.name, record.node)
		}
	}
	s.Logf("all %d workloads have their %d pods; at every moment at least %d were ready; %v in %.0f s",
		len(replicas), all, s.seen.fewestReady(), methods, time.Since(began).Seconds())
}

// requireMarksTakenOver fails the test unless the programs treat what the replaced ones wrote as
// their own: the budget of protectedApp, the marks of both nodes, and the deletion costs of
// scaledApp.
func (s *scenario) requireMarksTakenOver(budget types.UID, nodes ...string) {
	s.Helper()
	if now := s.controllerBudget(protectedApp); now != budget {
		s.Errorf("the controller's budget of %s is %s, want %s of the replaced controller", protectedApp, now, budget)
	}
	s.patch(protectedApp, `{"metadata":{"annotations":{"`+protectAnnotation+`":"false"}}}`)
	s.eventually(soon, s.hasNoControllerBudget(protectedApp))
	for _, node := range nodes {
		s.editNode(node, untainted(reclaimed))
		s.eventually(soon, s.marked(node, false))
		if state, ok := s.node(node).Annotations[stateAnnotation]; ok {
			s.Errorf("%s still has the annotation %s: %s", node, stateAnnotation, state)
		}
	}
	s.eventually(soon, func() error {
		if costs := s.podsWithDeletionCost(scaledApp); len(costs) != 2 {
			return fmt.Errorf("%d pods of %s have a deletion cost, want the 2 of its floor", len(costs), scaledApp)
		}
		return nil
	})
	for _, n := range []int{3, 6} {
		s.scale(scaledApp, n)
		s.eventually(soon, s.complete(scaledApp, n))
	}
}

// TestConfigurationOfOtherVersion: this version accepts the configuration of the previous one, and
// warns about a deprecated version. The previous version refuses a configuration that it does not
// know, before it leads.
func TestConfigurationOfOtherVersion(t *testing.T) {
	previous, current := versions(t)
	s := start(t, live.OnDemand(1, 5)...)
	_, err := startScheduler(s.ctx, current, previous)
	s.must(err)
	s.controller, err = startController(s.ctx, current, previous)
	s.must(err)
	log, err := os.ReadFile(s.controller.Log)
	s.must(err)
	if !strings.Contains(string(log), "deprecated version") {
		t.Errorf("the controller's log does not report the deprecated version of its configuration:\n%s", live.Tail(s.controller.Log, 20))
	}
	var exit *lab.ExitError
	if _, err := startController(s.ctx, previous, current); !errors.As(err, &exit) || !strings.Contains(exit.Tail, "apiVersion") {
		t.Errorf("the previous controller with the configuration of this version: %v, want an error about its apiVersion", err)
	}
}

// requireFloor makes the test fail at every moment with fewer ready pods of the app on on-demand
// nodes. At least as many must be ready there now.
func (h *history) requireFloor(app string, floor int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.readyOnDemand(app); now < floor {
		h.t.Fatalf("%s: %d pods are ready on on-demand nodes, want at least %d from the start", app, now, floor)
	}
	h.floors[app] = floor
}

// fewestReady returns the smallest number of ready pods of all apps together since the last call.
func (h *history) fewestReady() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	fewest := h.fewest
	h.fewest = h.allReady()
	return fewest
}
