package kubectl

import (
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

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// installAnyScheduler creates the Deployments and the configuration of the overlay any-scheduler.
// The Deployments are scaled to 0.
func installAnyScheduler(t *testing.T) {
	t.Helper()
	overlay := filepath.Join(controlPlane.Root, filepath.FromSlash(live.AnyScheduler))
	manifests, err := kubectl(t, "", "kustomize", overlay)
	live.Must(t, err)
	var used []string
	for object := range strings.SplitSeq(manifests, "\n---\n") {
		if regexp.MustCompile(`(?m)^kind: (Deployment|ConfigMap)$`).MatchString(object) {
			used = append(used, regexp.MustCompile(`(?m)^  replicas: \d+$`).ReplaceAllString(object, "  replicas: 0"))
		}
	}
	remove := []string{"-n", "kube-system", "delete", "deployment", "--ignore-not-found", "spot-aware-scheduler", "spot-controller", "spot-failsafe"}
	out, err := kubectl(t, "", remove...) // of other tests
	if err == nil {
		out, err = kubectl(t, strings.Join(used, "\n---\n"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestKeptScheduler opts in a Deployment of the stock kube-scheduler with the commands of assess,
// and asks about its pods, first without a controller. The plugin finds the policy although no
// scheduler of this project is installed.
func TestKeptScheduler(t *testing.T) {
	installAnyScheduler(t)
	s := live.NewScenario(t, controlPlane, client, append(live.OnDemand(2, 6), live.Spot(2, 6)...)...)
	s.Watch()
	s.ApplyMode(live.AnyScheduler)
	var err error
	s.Scheduler, err = controlPlane.StartStockScheduler(s.Ctx)
	s.Must(err)
	s.Deploy("web", 4, live.Annotated("spot-aware-scheduler.io/min-on-demand", "2"), func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulerName = v1.DefaultSchedulerName
	})
	eventually := func(want map[string]string) {
		t.Helper()
		s.Eventually(2*live.Soon, func() error { return requireParts(s, want) })
	}
	s.Eventually(2*live.Soon, func() error {
		r := spot(t, controlPlane, "assess", "--mode", "keep-scheduler", "-n", s.Namespace)
		if r.status != 0 || !strings.Contains(r.err, "warning: your scheduler chooses the spot pools") ||
			!strings.Contains(r.out, "deployment/web   WithChange   4         2       4") {
			return fmt.Errorf("kubectl spot assess: exit status %d\n%s%s", r.status, r.out, r.err)
		}
		return nil
	})
	eventually(map[string]string{
		"explain deploy/web": `its schedulerName is "default-scheduler", not "spot-aware-scheduler", and it does not opt in`,
	})

	script := spot(t, controlPlane, "assess", "-n", s.Namespace, "--mode", "keep-scheduler", "-o", "patch").out
	run := exec.CommandContext(s.Ctx, "sh", "-e", "-c", strings.ReplaceAll(script, "# kubectl patch", "kubectl patch")) // without a PodDisruptionBudget
	run.Env = append(os.Environ(), "KUBECONFIG="+controlPlane.Kubeconfig,
		"PATH="+filepath.Join(controlPlane.Root, ".local", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, script)
	}
	eventually(map[string]string{
		"status":             "SchedulingGated: the controller has not removed spot-aware-scheduler.io/capacity yet",
		"explain deploy/web": `until the controller assigns a capacity type to it; scheduler "default-scheduler" places it`,
	})

	s.StartController(live.Settings{"gating.enabled": true})
	var pods []v1.Pod
	s.Eventually(time.Minute, func() error {
		if err := s.HasReadySplit("web", live.Split{OnDemand: 2, Spot: 2})(); err != nil {
			return err
		}
		pods, err = live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
		if slices.ContainsFunc(pods, func(pod v1.Pod) bool { return pod.Annotations["spot-aware-scheduler.io/assigned"] == "" }) {
			err = errors.New("the rollout has not ended")
		}
		return err
	})
	eventually(map[string]string{
		"status":                             "deployment/web   OK      4         2       2           2      0         2",
		"explain pod/" + pods[0].Name:        fmt.Sprintf("the recorded decision of the controller is %q", pods[0].Annotations["spot-aware-scheduler.io/assigned"]),
		"what-if --lose all-spot -A -o wide": "deployment/web   KeepsFloor",
		"assess":                             "deployment/web   OptedIn",
		"savings":                            "deployment/web   2           2      2",
	})
}

// requireParts runs commands in the namespace of s. It returns an error if an answer is incomplete,
// or lacks a part.
func requireParts(s *live.Scenario, want map[string]string) error {
	for command, part := range want {
		r := spot(s.T, controlPlane, append(strings.Fields(command), "-n", s.Namespace)...)
		if r.status != 0 || r.err != "" || !strings.Contains(r.out, part) {
			return fmt.Errorf("kubectl spot %s: exit status %d, want %q:\n%s%s", command, r.status, part, r.out, r.err)
		}
	}
	return nil
}
