//go:build long

package autoscaler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The policy of a workload changes while its pods wait for a capacity type that Karpenter cannot
// add. The pods run on the other type before nodeStartup has passed, and until then Karpenter
// launches no node in vain.

const (
	overflowAnnotation = "spot-aware-scheduler.io/overflow"
	nodeStartup        = time.Minute
)

// TestLongOverflowChanged: there is no spot. The replicas beyond the floors wait with overflow
// Never, until the annotation of the owner, the pod template, the floor or a rule of the
// configuration changes.
func TestLongOverflowChanged(t *testing.T) {
	s := startWithLimits(t, "0", "", live.Settings{"rules": ruleOverflow("Never")})
	s.deploy("owner", 6, "200m", "64Mi", floor("2"), overflow("Never"))
	s.deploy("floor", 4, "200m", "64Mi", floor("1"), overflow("Never"))
	s.deploy("many", 30, "100m", "16Mi", floor("1"), overflow("Never"))
	s.deploy("rule", 3, "200m", "64Mi", floor("1"))
	s.deploy("template", 4, "200m", "64Mi", floor("1"), func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{overflowAnnotation: "Never"}
	})
	s.deploySet("set", 4, map[string]string{minOnDemand: "1", overflowAnnotation: "Never"})
	waits := map[string]split{
		"owner": {OnDemand: 2, Waiting: 4}, "floor": {OnDemand: 1, Waiting: 3}, "many": {OnDemand: 1, Waiting: 29},
		"rule": {OnDemand: 1, Waiting: 2}, "template": {OnDemand: 1, Waiting: 3}, "set": {OnDemand: 1, Waiting: 3},
	}
	s.Eventually(soon, s.HaveSplits(waits))
	before := len(launched(s.Seen, lab.OnDemand))
	s.RequireThroughout(nodeStartup, s.HaveSplits(waits))
	if now := len(launched(s.Seen, lab.OnDemand)); now != before {
		t.Errorf("Karpenter launched %d on-demand nodes for pods that may not use them", now-before)
	}

	began := time.Now()
	s.annotate("owner", overflowAnnotation, "Allow")
	s.setFloor("floor", "4")
	s.annotate("many", overflowAnnotation, "Allow")
	s.PatchDeployment("template", `{"spec":{"template":{"metadata":{"annotations":{"`+overflowAnnotation+`":"Allow"}}}}}`)
	s.annotateSet("set", overflowAnnotation, "Allow")
	s.requireRunning(began, map[string]split{
		"owner": {OnDemand: 6}, "floor": {OnDemand: 4}, "many": {OnDemand: 30}, "template": {OnDemand: 4}, "set": {OnDemand: 4},
	})
	s.Auditor.Require(t)
	s.Must(s.Auditor.Stop()) // it knows only the first rules
	began = time.Now()
	s.restartWith(live.Settings{"rules": ruleOverflow("Allow")})
	s.requireRunning(began, map[string]split{"rule": {OnDemand: 3}})
}

// TestLongFloorChanged: there is no on-demand. The pods of the floors wait, until a floor is lower
// or only a preference.
func TestLongFloorChanged(t *testing.T) {
	s := startWithLimits(t, "", "0", live.Settings{"fallbackAfter": "never"})
	s.deploy("none", 4, "200m", "64Mi", floor("3"))
	s.deploy("part", 8, "200m", "64Mi", floor("75%"))
	s.deploy("preferred", 4, "200m", "64Mi", floor("3"))
	s.deploy("many", 30, "100m", "16Mi", floor("29"))
	s.deploySet("set", 4, map[string]string{minOnDemand: "3"})
	waits := map[string]split{
		"none": {Spot: 1, Waiting: 3}, "part": {Spot: 2, Waiting: 6}, "preferred": {Spot: 1, Waiting: 3},
		"many": {Spot: 1, Waiting: 29}, "set": {Spot: 1, Waiting: 3},
	}
	s.Eventually(soon, s.HaveSplits(waits))
	s.RequireThroughout(nodeStartup, s.HaveSplits(waits)) // a limit exempts no pod from its floor

	began := time.Now()
	s.setFloor("none", "0")
	s.setFloor("part", "25%")
	s.annotate("preferred", "spot-aware-scheduler.io/when-unsatisfiable", "ScheduleAnyway")
	s.setFloor("many", "0")
	s.annotateSet("set", minOnDemand, "0")
	s.requireRunning(began, map[string]split{
		"none": {Spot: 4}, "part": {Spot: 6, Waiting: 2}, "preferred": {Spot: 4}, "many": {Spot: 30}, "set": {Spot: 4},
	})
	s.Auditor.Require(t)
}

// TestLongOverflowForbidden: there is neither type when the overflow is forbidden. Karpenter then
// launches no on-demand node for the pods, and spot when it may.
func TestLongOverflowForbidden(t *testing.T) {
	s := startWithLimits(t, "0", "0", nil)
	s.deploy("web", 3, "200m", "64Mi", floor("0"))
	waits := s.HaveSplits(map[string]split{"web": {Waiting: 3}})
	s.Eventually(soon, waits)
	s.annotate("web", overflowAnnotation, "Never")
	s.Eventually(nodeStartup, func() error {
		for _, pod := range s.Seen.Pods("web") {
			if pod.Left.IsZero() && !strings.HasPrefix(pod.Assigned, lab.Spot+":") {
				return fmt.Errorf("%s is assigned %q, want spot", pod.Name, pod.Assigned)
			}
		}
		return nil
	})
	s.limit("on-demand", "")
	s.RequireThroughout(soon, func() error {
		if n := len(launched(s.Seen, "")) + len(launched(s.Seen, lab.OnDemand)); n > 0 {
			return errors.New("Karpenter launched an on-demand node for pods that may not use it")
		}
		return waits()
	})
	began := time.Now()
	s.limit("spot", "")
	s.requireRunning(began, map[string]split{"web": {Spot: 3}})
	s.Auditor.Require(t)
}

// TestLongCapacityVanishes: Karpenter launches nodes of the assigned type, but they never arrive,
// and the NodePool may launch no others. The pods get out as soon as the policy allows.
func TestLongCapacityVanishes(t *testing.T) {
	const boot = 20 * time.Second
	s := start(t, setup{
		mode: true, controller: live.Settings{"gating.nodeStartup": nodeStartup.String()}, safety: live.Settings{"fallbackAfter": "never"},
		karpenter: lab.KarpenterOptions{NodePools: limitedPools("", ""), NodeRegistrationDelay: boot},
	})
	s.deploy("allow", 4, "200m", "64Mi", floor("0"))
	s.deploy("never", 4, "200m", "64Mi", floor("0"), overflow("Never"))
	s.vanish(lab.Spot)
	began := time.Now()
	s.requireRunning(began, map[string]split{"allow": {OnDemand: 4}, "never": {Waiting: 4}})
	began = time.Now()
	s.annotate("never", overflowAnnotation, "Allow")
	s.requireRunning(began.Add(boot+soon), map[string]split{"never": {OnDemand: 4}})

	s.limit("spot", "")
	s.deploy("floor", 4, "4", "64Mi", floor("4"))
	s.vanish(lab.OnDemand)
	began = time.Now()
	s.setFloor("floor", "0")
	// Until nodeStartup, Karpenter may be starting the node that it reported. The spot node has to
	// start then.
	s.requireRunning(began.Add(boot+soon), map[string]split{"floor": {Spot: 4}})
	s.Auditor.Require(t)
}

// limitedPools returns a spot NodePool that Karpenter tries first and an on-demand NodePool, with
// limits of their CPUs; "" is no limit.
func limitedPools(spot, onDemand string) []lab.NodePool {
	return []lab.NodePool{
		{Name: lab.Spot, CapacityTypes: []string{lab.Spot}, Weight: 10, CPULimit: spot},
		{Name: lab.OnDemand, CapacityTypes: []string{lab.OnDemand}, CPULimit: onDemand},
	}
}

func startWithLimits(t *testing.T, spot, onDemand string, safety live.Settings) *scenario {
	t.Helper()
	return start(t, setup{
		mode: true, controller: live.Settings{"gating.nodeStartup": nodeStartup.String()}, safety: safety,
		karpenter: lab.KarpenterOptions{NodePools: limitedPools(spot, onDemand)},
	})
}

// overflow returns an edit that sets the annotation.
func overflow(value string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Annotations[overflowAnnotation] = value }
}

// ruleOverflow returns rules for the app "rule".
func ruleOverflow(value string) []any {
	return []any{map[string]any{"name": "rule", "podSelector": map[string]any{"matchLabels": map[string]any{"app": "rule"}}, "overflow": value}}
}

// annotate sets an annotation of a Deployment.
func (s *scenario) annotate(name, key, value string) {
	s.Helper()
	s.PatchDeployment(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

// deploySet creates a StatefulSet whose pods start in parallel.
func (s *scenario) deploySet(name string, replicas int32, annotations map[string]string) {
	s.Helper()
	template := live.PodTemplate(name)
	template.Spec.Containers[0].Resources.Requests = nil
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template,
	}}
	_, err := kube.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, set, metav1.CreateOptions{})
	s.Must(err)
}

// annotateSet sets an annotation of a StatefulSet.
func (s *scenario) annotateSet(name, key, value string) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	_, err := kube.AppsV1().StatefulSets(s.Namespace).Patch(s.Ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	s.Must(err)
}

// restartWith restarts the scheduler and the controller with other fields of ReplicaSafetyArgs.
func (s *scenario) restartWith(safety live.Settings) {
	s.Helper()
	s.Must(s.Scheduler.Stop())
	s.Must(s.Controller.Stop())
	s.safety = safety
	var err error
	s.Scheduler, err = controlPlane.StartScheduler(s.Ctx, lab.SchedulerOptions{Edit: safety.EditSafety})
	s.Must(err)
	s.startController()
}

// vanish limits a NodePool to its present nodes as soon as Karpenter launches nodes of the capacity
// type, and removes these nodes before they arrive.
func (s *scenario) vanish(capacity string) {
	s.Helper()
	launching := func() (n int) {
		claims, err := s.nodeClaims()
		s.Must(err)
		for _, claim := range claims {
			if claim.Capacity == capacity && claim.Node == "" {
				n++
			}
		}
		return n
	}
	s.Eventually(soon, func() error {
		if launching() == 0 {
			return fmt.Errorf("Karpenter launches no %s node", capacity)
		}
		return nil
	})
	s.limit(capacity, "0")
	s.removeMatchingNodes(func(of, node string) bool { return of == capacity && node == "" })
}

// requireRunning waits at most nodeStartup since the change until the pods have these splits.
func (s *scenario) requireRunning(changed time.Time, want map[string]split) {
	s.Helper()
	for app, one := range want {
		s.Eventually(time.Until(changed.Add(nodeStartup)), s.HaveSplits(map[string]split{app: one}))
		s.Logf("%s: %+v at most %s after the change", app, one, time.Since(changed).Round(100*time.Millisecond))
	}
}
