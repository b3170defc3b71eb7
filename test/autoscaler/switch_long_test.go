//go:build long

package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The tests in this file enable and disable the autoscaler mode, or only half of it, while
// workloads run.

// shippedGateTimeout is gateTimeout in the shipped configuration.
const shippedGateTimeout = 30 * time.Second

// modeOff are the controller's settings without the mode. Like with modeOn, the controller does
// not wait for a calm period.
var modeOff = modeOn.With(live.Settings{"gating.enabled": false})

// running is a workload that runs while the mode is enabled or disabled.
type running struct {
	app      string
	replicas int
	floor    string
}

// workloads have six floor replicas in total.
var workloads = []running{{"single", 1, "1"}, {"mail", 3, "1"}, {"shop", 4, "30%"}, {"web", 4, "2"}}

const allFloors = 6

// onDemand returns the number of replicas that must run on on-demand.
func (r running) onDemand() int { return floorOf(r.floor, r.replicas) }

// TestLongSwitchedOn: the mode is enabled while workloads of the base manifests run. The
// controller replaces the replicas of each floor, one per workload at a time and without a gap.
// Consolidation does not remove the nodes of the new replicas.
func TestLongSwitchedOn(t *testing.T) {
	s := startRunning(t, setup{controller: modeOff})
	s.requireAllReplicas()
	began := s.switchOn(nil)
	s.Eventually(2*time.Minute, s.floorsVisible)
	t.Logf("all %d floor replicas required on-demand %s after the mode was switched on", allFloors, time.Since(began).Round(time.Second))
	s.Eventually(soon, s.floorsExactlyMet)
	s.Eventually(soon, s.Moved(allFloors, allFloors, "surge", "assign"))
	for _, w := range workloads {
		if got := mostPods(s.Seen, w.app); got > w.replicas+1 {
			t.Errorf("%s had %d pods at a time, want at most %d: the controller replaces one per workload at a time", w.app, got, w.replicas+1)
		}
	}
	s.RequireThroughout(20*time.Second, s.Moved(allFloors, allFloors, "surge", "assign"))

	s.remove("keeps-on-demand")
	s.consolidate(5 * time.Second)
	s.RequireThroughout(time.Minute, s.floorsExactlyMet)
	if got := s.consolidated(); got != 0 {
		t.Errorf("consolidation evicted %d pods, want none", got)
	}
	s.requireNoFindings()
}

// TestLongSwitchedOnWithoutHealing: like TestLongSwitchedOn, with gating.healRunning false. The
// controller replaces no pod. Pods are gated only when something else replaces them.
func TestLongSwitchedOnWithoutHealing(t *testing.T) {
	s := startRunning(t, setup{controller: modeOff})
	s.requireAllReplicas()
	began := s.switchOn(live.Settings{"gating.healRunning": false})
	s.RequireThroughout(time.Minute, s.unchangedSince(began))
	if err := s.floorsVisible(); err == nil {
		t.Error("the floors of running pods are visible to Karpenter, and no pod was replaced")
	}

	s.endRequirements()
	for _, w := range workloads {
		s.SetImage(w.app, "app:2")
	}
	s.Eventually(2*time.Minute, s.complete)
	s.Eventually(time.Minute, s.floorsVisible)
	s.Eventually(time.Minute, s.floorsExactlyMet)
	s.requireNoFindings()
}

func TestLongSwitchedOff(t *testing.T)                  { switchedOff(t, true) }
func TestLongSwitchedOffWithoutController(t *testing.T) { switchedOff(t, false) }

// switchedOff disables the mode with the commands of docs/autoscalers.md while pods run and other
// pods have gates. With controlled, the controller removes these gates; otherwise, the scheduler
// removes them after gateTimeout.
func switchedOff(t *testing.T, controlled bool) {
	s := startRunning(t, setup{mode: true})
	s.Must(s.floorsVisible())
	s.requireAllReplicas()
	s.Seen.RequireServing("web", 3) // during its rollout
	s.Seen.RequireFloor("web", 0)
	// When the mode is disabled, a rollout and a new workload have gated pods.
	s.Must(s.Controller.Pause())
	s.SetImage("web", "app:2")
	s.deploy("gated", 4, "200m", "64Mi", floor("2"))
	s.Eventually(soon, s.HasGated("gated", 4))
	s.Eventually(soon, func() error {
		if err := s.HasGated("web", 0)(); err == nil {
			return errors.New("no pod of the rollout is gated")
		}
		return nil
	})

	commands := s.documentedCommands("### Switch it off", 3)
	s.run(commands[0])
	began := time.Now()
	if controlled {
		s.Must(s.Controller.Resume())
	} else {
		s.Must(s.Controller.Kill())
	}
	s.Eventually(shippedGateTimeout+soon, s.commandPrints(commands[1], "0"))
	t.Logf("no pod was gated %s after the binding was deleted", time.Since(began).Round(100*time.Millisecond))
	if controlled {
		s.Must(s.Controller.Stop())
	}
	s.setup.mode, s.setup.controller = false, modeOff
	s.startController()
	s.run(commands[2])

	s.Eventually(2*time.Minute, s.complete)
	s.Eventually(time.Minute, s.floorsExactlyMet)
	s.Eventually(soon, s.isAvailableWithSplit("gated", split{OnDemand: 2, Spot: 2}))
	t.Logf("all workloads were complete %s after the binding was deleted", time.Since(began).Round(time.Second))

	// Pods that are created from now on have neither gate nor affinity and start at once.
	s.endRequirements()
	created := time.Now()
	s.deploy("after", 4, "200m", "64Mi", floor("2"))
	s.Eventually(soon, s.isAvailableWithSplit("after", split{OnDemand: 2, Spot: 2}))
	s.SetImage("shop", "app:2")
	s.Scale("mail", 5)
	s.Eventually(2*time.Minute, s.complete)
	s.Eventually(time.Minute, s.floorsMet)
	for _, app := range []string{"after", "shop", "mail"} {
		for _, pod := range s.Seen.Pods(app) {
			if pod.Created.After(created) && pod.Assigned != "" {
				t.Errorf("%s was assigned %q after the mode was switched off", pod.Name, pod.Assigned)
			}
		}
	}
	t.Logf("the longest wait of a pod that was created afterwards: %s", s.longestWait(created).Round(100*time.Millisecond))
	s.requireNoFindings()
}

// TestLongPolicyWithoutGating: the admission policy gates pods, but gating is disabled in the
// controller. The scheduler removes the gates after gateTimeout, and every floor is satisfied: in
// a new workload, in a rollout and in a move. (TestLongWithoutController has no controller at
// all.)
func TestLongPolicyWithoutGating(t *testing.T) {
	s := startRunning(t, setup{mode: true, controller: live.Settings{"gating.enabled": false}})
	for _, w := range workloads {
		for _, pod := range s.Seen.Pods(w.app) {
			if waited := pod.Bound.Sub(pod.Created); waited < shippedGateTimeout-2*time.Second {
				t.Errorf("%s was bound %s after its creation, want at least %s", pod.Name, waited.Round(time.Second), shippedGateTimeout)
			}
			if pod.Assigned != "" {
				t.Errorf("%s was assigned %q, although gating is off", pod.Name, pod.Assigned)
			}
		}
	}
	t.Logf("the longest wait of a new pod: %s", s.longestWait(time.Time{}).Round(100*time.Millisecond))

	began := time.Now()
	s.setFloor("mail", "2")
	s.Eventually(shippedGateTimeout+time.Minute, s.isAvailableWithSplit("mail", split{OnDemand: 2, Spot: 1}))
	s.Eventually(soon, s.Moved(1, 1, "surge", "heal"))
	s.SetImage("web", "app:2")
	s.SetImage("single", "app:2")
	s.Eventually(4*shippedGateTimeout+time.Minute, s.complete)
	s.Eventually(2*time.Minute, s.floorsMet)
	t.Logf("the longest wait of a pod that a move or a rollout made: %s", s.longestWait(began).Round(100*time.Millisecond))
	s.requireNoFindings()
}

// TestLongGatingWithoutPolicy: gating is enabled in the controller, but no pods are gated. Pods
// run as without the mode, in a new workload, in a rollout and in a scale-up.
func TestLongGatingWithoutPolicy(t *testing.T) {
	s := startRunning(t, setup{controller: modeOn})
	s.SetImage("web", "app:2")
	s.SetImage("single", "app:2")
	s.Scale("mail", 5)
	s.Eventually(time.Minute, s.complete)
	s.Eventually(time.Minute, s.floorsMet)
	t.Logf("the longest wait of a pod: %s", s.longestWait(time.Time{}).Round(100*time.Millisecond))
	s.stopControllerWithoutRights()
	s.requireNoFindings()
}

// TestLongNoMovesWithoutPolicy: like TestLongGatingWithoutPolicy, but replicas run on the
// wrong capacity type while the nodes of the right type are full. Their replacements would not be
// gated, so Karpenter would launch no nodes for them. The controller moves no pods. It does not
// delete a pod that waits for on-demand either, because the new pod would wait, too.
func TestLongNoMovesWithoutPolicy(t *testing.T) {
	s := start(t, setup{controller: modeOn.With(live.Settings{"gating.nodeStartup": "10s"}), karpenter: lab.KarpenterOptions{
		InstanceTypes: []string{"c-4x-amd64-linux"}, NodePools: []lab.NodePool{{CapacityTypes: []string{lab.OnDemand}}},
	}})
	s.deploy("beyond-floor", 3, "1200m", "64Mi") // a node has 3900m
	s.Eventually(soon, s.isAvailableWithSplit("beyond-floor", split{OnDemand: 3}))
	s.pools[0].CapacityTypes = nil
	s.Must(controlPlane.ApplyNodePool(s.Ctx, s.pools[0]))
	s.deploy("below-floor", 1, "3500m", "64Mi", floor("0"))
	s.Eventually(soon, s.isAvailableWithSplit("below-floor", split{Spot: 1}))
	s.deploy("waits", 1, "350m", "64Mi") // only spot has room for it, which Karpenter considers sufficient
	s.Eventually(soon, s.claimed(map[string]int{lab.OnDemand: 1, lab.Spot: 1}))
	s.Eventually(soon, s.HasSplit("waits", split{Waiting: 1}))

	began := time.Now()
	s.setFloor("below-floor", "1")
	s.RequireThroughout(time.Minute, s.unchangedSince(began))
	s.Must(s.HasSplit("waits", split{Waiting: 1})())
	s.stopControllerWithoutRights()
	s.Auditor.Require(t)
}

// TestLongOverlayDeletedBeforeGating: the overlay is deleted at once, including the rights that it
// grants, while gating stays enabled in the controller. A pod that requires unavailable on-demand
// capacity still falls back to spot.
func TestLongOverlayDeletedBeforeGating(t *testing.T) {
	const fallback, startup = 20 * time.Second, 10 * time.Second
	s := start(t, setup{
		mode: true, safety: live.Settings{"fallbackAfter": fallback.String()}, controller: live.Settings{"gating.nodeStartup": startup.String()},
		karpenter: lab.KarpenterOptions{NodePools: []lab.NodePool{{CapacityTypes: []string{lab.Spot}}}},
	})
	s.deploy("single", 1, "200m", "64Mi")
	s.Eventually(soon, func() error {
		pods, err := live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{})
		if err == nil && (len(pods) != 1 || !excludesSpot(&pods[0])) {
			err = errors.New("the pod does not require on-demand yet")
		}
		return err
	})
	began := time.Now()
	s.setup.mode = false
	s.Must(live.KubectlMode(s.Ctx, controlPlane, live.AutoscalerMode, "delete"))
	// The new pod waits once more, because it had no gate.
	s.Eventually(2*fallback+startup+soon, s.isAvailableWithSplit("single", split{Spot: 1}))
	t.Logf("the new pod ran on spot %s after the overlay was deleted", time.Since(began).Round(time.Second))
	s.stopControllerWithoutRights()
}

// startRunning starts a scenario with an on-demand node and a spot node with free room, and with
// workloads on the right capacity types.
func startRunning(t *testing.T, with setup) *scenario {
	t.Helper()
	with.karpenter.InstanceTypes = []string{"c-4x-amd64-linux"}
	s := start(t, with)
	s.deploy("keeps-on-demand", 1, "100m", "64Mi", floor("0"), live.OnlyOn(lab.KarpenterCapacityLabel, lab.OnDemand))
	s.deploy("keeps-spot", 1, "100m", "64Mi", floor("0"), live.OnlyOn(lab.KarpenterCapacityLabel, lab.Spot))
	s.Eventually(shippedGateTimeout+soon, s.complete)
	for _, w := range workloads {
		s.deploy(w.app, w.replicas, "200m", "64Mi", floor(w.floor))
	}
	s.budget("web", 0)
	s.Eventually(shippedGateTimeout+time.Minute, s.floorsExactlyMet)
	return s
}

// floorsExactlyMet is a check that all workloads are available and that on-demand runs exactly
// their floors.
func (s *scenario) floorsExactlyMet() error {
	for _, w := range workloads {
		if err := s.isAvailableWithSplit(w.app, split{OnDemand: w.onDemand(), Spot: w.replicas - w.onDemand()})(); err != nil {
			return err
		}
	}
	return nil
}

// requireAllReplicas makes the test fail when a workload has fewer serving pods than replicas, or
// fewer on on-demand than its floor.
func (s *scenario) requireAllReplicas() {
	for _, w := range workloads {
		s.Seen.RequireServing(w.app, w.replicas)
		s.Seen.RequireFloor(w.app, w.onDemand())
	}
}

// endRequirements ends the requirements of requireAllReplicas: a rollout may have fewer replicas
// for a time.
func (s *scenario) endRequirements() {
	for _, w := range workloads {
		s.Seen.RequireServing(w.app, 0)
		s.Seen.RequireFloor(w.app, 0)
	}
}

// switchOn enables the mode by the instructions in docs/autoscalers.md, with additional settings
// of the controller. It returns the time of the change.
func (s *scenario) switchOn(controller live.Settings) time.Time {
	s.Helper()
	began := time.Now()
	s.setup.mode, s.setup.controller = true, controller
	s.ApplyMode(live.AutoscalerMode)
	s.Must(s.Controller.Stop())
	s.startController()
	return began
}

// floorsVisible is a check that for each workload, as many pods as its floor exclude spot by
// their own affinity.
func (s *scenario) floorsVisible() error {
	pods, err := live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{})
	if err != nil {
		return err
	}
	visible := map[string]int{}
	for i := range pods {
		if excludesSpot(&pods[i]) {
			visible[pods[i].Labels["app"]]++
		}
	}
	for _, w := range workloads {
		if visible[w.app] != w.onDemand() {
			return fmt.Errorf("%d pods of %s require on-demand, want %d", visible[w.app], w.app, w.onDemand())
		}
	}
	return nil
}

// excludesSpot reports whether the pod's required node affinity allows no spot node of Karpenter.
func excludesSpot(pod *v1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return false
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required != nil && !slices.ContainsFunc(required.NodeSelectorTerms, func(term v1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(e v1.NodeSelectorRequirement) bool {
			return e.Key == lab.KarpenterCapacityLabel && e.Operator == v1.NodeSelectorOpNotIn && slices.Contains(e.Values, lab.Spot)
		})
	})
}

// mostPods returns the largest number of pods of an app that existed at the same time.
func mostPods(h *live.History, app string) (most int) {
	pods := h.Pods(app)
	for _, record := range pods {
		n := 0
		for _, pod := range pods {
			if !pod.Created.After(record.Created) && (pod.Left.IsZero() || pod.Left.After(record.Created)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// unchangedSince returns a check that no pod was created or deleted since a time.
func (s *scenario) unchangedSince(then time.Time) func() error {
	return func() error {
		for _, pod := range s.Seen.Pods("") {
			if pod.Created.After(then) || pod.Left.After(then) {
				return fmt.Errorf("%s was created or deleted: %+v", pod.Name, pod)
			}
		}
		return nil
	}
}

// longestWait returns the longest time that a pod waited for a node, of the pods created since a
// time.
func (s *scenario) longestWait(since time.Time) (longest time.Duration) {
	for _, pod := range s.Seen.Pods("") {
		if pod.Created.After(since) && !pod.Bound.IsZero() {
			longest = max(longest, pod.Bound.Sub(pod.Created))
		}
	}
	return longest
}

// documentedCommands returns the kubectl commands under a heading of docs/autoscalers.md.
func (s *scenario) documentedCommands(heading string, want int) (commands []string) {
	s.Helper()
	page, err := os.ReadFile(filepath.Join(controlPlane.Root, "docs", "autoscalers.md"))
	s.Must(err)
	_, section, found := strings.Cut(string(page), "\n"+heading+"\n")
	if !found {
		s.Fatalf("docs/autoscalers.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n### ")
	for _, match := range regexp.MustCompile("`(kubectl [^`]+)`").FindAllStringSubmatch(section, -1) {
		commands = append(commands, match[1])
	}
	if len(commands) != want {
		s.Fatalf("docs/autoscalers.md has %d commands under %q, want %d: %q", len(commands), heading, want, commands)
	}
	return commands
}

// run runs a command with shell. The test fails if the command fails.
func (s *scenario) run(command string) {
	s.Helper()
	_, err := s.shell(command)
	s.Must(err)
}

// commandPrints returns a check that a command prints this text. The command may fail: grep -c
// fails if its count is 0.
func (s *scenario) commandPrints(command, want string) func() error {
	return func() error {
		got, err := s.shell(command)
		if got != want {
			return fmt.Errorf("%s prints %q (%v), want %q", command, got, err, want)
		}
		return nil
	}
}

// shell runs a command at the root of the checkout, with kubectl in PATH, and returns its output.
func (s *scenario) shell(command string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Ctx, time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", command)
	shell.Dir = controlPlane.Root
	shell.Env = append(os.Environ(),
		"KUBECONFIG="+controlPlane.Kubeconfig, "PATH="+filepath.Join(controlPlane.Root, ".local", "bin")+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// stopControllerWithoutRights stops a controller that gates without the manifests of the mode. The
// only right that it may have lacked is the right to read the manifests' admission policy.
func (s *scenario) stopControllerWithoutRights() {
	s.Helper()
	s.Must(s.Controller.Stop())
	denials, err := s.Controller.Denials()
	s.Must(err)
	for _, line := range denials {
		if !strings.Contains(line, "mutatingadmissionpolicybindings") {
			s.Errorf("the controller was denied: %s", line)
		}
	}
	s.Examined(s.Controller)
	s.Controller = nil
}

// requireNoFindings fails the test if the auditor has findings or if released pods are left.
func (s *scenario) requireNoFindings() {
	s.Helper()
	s.Eventually(soon, s.complete)
	s.Must(s.floorsMet())
	s.Must(s.noNodeOvercommitted())
	s.requireNoGeneratedLabels()
	if released := s.Auditor.Released(); len(released) > 0 {
		s.Errorf("pods are left that were released: %v", released)
	}
	s.Auditor.Require(s.T)
}
