package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

func TestSelectArms(t *testing.T) {
	all, err := SelectArms(nil)
	if err != nil || len(all) != 8 || slices.ContainsFunc(all, func(a Arm) bool { return a.Extra }) {
		t.Errorf("%d arms, %v; want the 8 arms of a report", len(all), err)
	}
	if len(armStyles) != len(Arms) {
		t.Errorf("%d arms have %d points in plots", len(Arms), len(armStyles))
	}
	some, err := SelectArms([]string{"controller", "broken-floor", "on-demand"})
	if err != nil || len(some) != 3 || some[0].Name != "on-demand" {
		t.Errorf("arms %v, %v", some, err)
	}
	if _, err := SelectArms([]string{"controller", "nope"}); err == nil {
		t.Error("an unknown arm is no error")
	}
}

// TestOptIn: only the pods of the arm any-scheduler opt in and keep kube-scheduler.
func TestOptIn(t *testing.T) {
	for _, arm := range Arms {
		want := map[string]string(nil)
		if arm.Name == "any-scheduler" {
			want = map[string]string{"spot-aware-scheduler.io/opt-in": "keep-scheduler"}
		}
		if diff := cmp.Diff(want, arm.namespace().Labels); diff != "" {
			t.Errorf("%s: labels of the namespace (-want +got):\n%s", arm.Name, diff)
		}
	}
}

// TestObjects checks the constraints of the pods of each arm.
func TestObjects(t *testing.T) {
	p := newPlan(t, nil)
	for name, want := range map[string]struct {
		scheduler, floor string
		replicas         map[string]int
		// admitted are the capacity types that a Deployment's pods may use.
		admitted  map[string][]string
		prefers   bool
		hardSkews int
	}{
		"on-demand":     {"", "", map[string]int{"svc-x": 3}, map[string][]string{"svc-x": {lab.OnDemand}}, false, 0},
		"preferred":     {"", "", map[string]int{"svc-x": 3}, map[string][]string{"svc-x": {lab.Spot, lab.OnDemand}}, true, 0},
		"spread":        {"", "", map[string]int{"svc-x": 3}, map[string][]string{"svc-x": {lab.Spot, lab.OnDemand}}, true, 1},
		"split":         {"", "", map[string]int{"svc-x-base": 1, "svc-x-spot": 2}, map[string][]string{"svc-x-base": {lab.OnDemand}, "svc-x-spot": {lab.Spot}}, false, 0},
		"controller":    {schedulerName, "1", map[string]int{"svc-x": 3}, map[string][]string{"svc-x": {lab.Spot, lab.OnDemand}}, false, 0},
		"any-scheduler": {"", "1", map[string]int{"svc-x": 3}, map[string][]string{"svc-x": {lab.Spot, lab.OnDemand}}, false, 0},
		"broken-floor":  {schedulerName, "0", map[string]int{"svc-x": 3}, map[string][]string{"svc-x": {lab.Spot, lab.OnDemand}}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			arms, err := SelectArms([]string{name})
			must(t, err)
			deployments, budget := arms[0].objects(p, p.Services[0], Scales{Busy: 10, Calm: 300})
			if budget.Spec.MinAvailable.String() != "50%" {
				t.Errorf("minAvailable %s", budget.Spec.MinAvailable)
			}
			replicas, admitted := map[string]int{}, map[string][]string{}
			for _, d := range deployments {
				replicas[d.Name] = int(*d.Spec.Replicas)
				pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
				for _, capacity := range []string{lab.Spot, lab.OnDemand} {
					if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(p.node("n", "a", capacity)); err != nil {
						t.Error(err)
					} else if ok {
						admitted[d.Name] = append(admitted[d.Name], capacity)
					}
				}
				prefers := pod.Spec.Affinity != nil && len(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0
				if pod.Spec.SchedulerName != want.scheduler || d.Annotations[spot.MinOnDemandAnnotation] != want.floor || prefers != want.prefers ||
					len(pod.Spec.TopologySpreadConstraints) != want.hardSkews {
					t.Errorf("%s: scheduler %q, annotations %v, prefers spot %v", d.Name, pod.Spec.SchedulerName, d.Annotations, prefers)
				}
				for _, c := range pod.Spec.TopologySpreadConstraints {
					if c.MaxSkew != 1 || c.TopologyKey != lab.CapacityLabel || c.WhenUnsatisfiable != corev1.DoNotSchedule {
						t.Errorf("topology spread %+v", c)
					}
				}
				if got := *pod.Spec.TerminationGracePeriodSeconds; got != 3 {
					t.Errorf("grace period %d s, want 30 s by 10", got)
				}
			}
			if diff := cmp.Diff(want.replicas, replicas); diff != "" {
				t.Errorf("replicas (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.admitted, admitted); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatus checks which pods make the cluster busy, and which pods a new node helps.
func TestStatus(t *testing.T) {
	p := newPlan(t, func(in *Inputs, _ *Settings) { in.Services = in.Services[:1] }) // 3 replicas, floor 1
	observe := func(arm Arm, pods ...*corev1.Pod) status {
		o := newObserver(arm, p, 0, NewClock(time.Now(), 0), NewRecorder(p))
		for _, name := range []string{"spot-a-1", "spot-a-2"} {
			o.nodeEvent(time.Now(), usable(p.node(name, "a", lab.Spot)), false)
		}
		o.nodeEvent(time.Now(), usable(p.node("od", "a", lab.OnDemand)), false)
		o.notice("spot-a-2")
		for i, pod := range pods {
			pod.UID, pod.Labels = types.UID(fmt.Sprint(i)), map[string]string{serviceLabel: "svc-x"}
			o.podEvent(time.Now(), pod, false)
		}
		return o.status()
	}
	starting := newObserver(Arm{}, p, 0, NewClock(time.Now(), 0), NewRecorder(p))
	starting.nodeEvent(time.Now(), p.node("od", "a", lab.OnDemand), false)
	if s := starting.status(); s.startingNodes != 1 || !s.moving() {
		t.Errorf("a node that is not Ready: %+v", s)
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	unschedulable := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}
	pod := func(node string, conditions ...corev1.PodCondition) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: conditions}}
	}
	s := observe(Arm{}, pod("od", ready), pod("spot-a-1", ready), pod("spot-a-1", ready))
	if s.moving() || s.onNoticed+s.unschedulable != 0 || s.returnable || s.unhealed {
		t.Errorf("settled: %+v", s)
	}
	s = observe(Arm{}, pod("od", ready), pod("od", ready), pod("spot-a-2", ready))
	if s.moving() || s.onNoticed != 1 || !s.returnable {
		t.Errorf("a pod on a node with notice, one that may return: %+v", s)
	}
	if s = observe(Arm{}, pod("od", ready), pod("od", ready), pod("spot-a-1", ready)); s.returnable {
		t.Errorf("no spot node has room: %+v", s)
	}
	s = observe(Arm{}, pod("spot-a-1", ready), pod("spot-a-1", ready), pod("spot-a-1"))
	if s.starting != 1 || !s.unhealed {
		t.Errorf("all on spot, one starting: %+v", s)
	}
	waiting := pod("", unschedulable)
	s = observe(Arm{}, waiting, pod(""))
	if s.unschedulable != 1 || s.unassigned != 1 || s.missing != 1 || len(s.pending) != 1 {
		t.Errorf("waiting pods: %+v", s)
	}
	requiresSpot := pod("", unschedulable)
	requiresSpot.Spec.Affinity = require(lab.Spot)
	if s = observe(Arm{}, requiresSpot); len(s.pending) != 0 {
		t.Errorf("a pod that requires spot: %+v", s)
	}
	// With a skew of at most 1, a second replica does not fit on-demand if none is on spot.
	if s = observe(Arm{Spread: true}, pod("od", ready), waiting); len(s.pending) != 0 {
		t.Errorf("a pod that the skew forbids: %+v", s)
	}
	if s = observe(Arm{Spread: true}, pod("spot-a-1", ready), waiting); len(s.pending) != 1 {
		t.Errorf("a pod that the skew permits: %+v", s)
	}
}

// usable returns the node with the condition Ready.
func usable(node *corev1.Node) *corev1.Node {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}
