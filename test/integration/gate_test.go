package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The names that users read. The literal values detect an accidental change of the constants in the
// code.
const (
	capacityGate = "spot-aware-scheduler.io/capacity"
	foreignGate  = "example.com/theirs"
	expiredGates = "spot_aware_scheduler_expired_capacity_gates_total"
)

// gateTimeout is the configured timeout in these tests.
const gateTimeout = 3 * time.Second

func gated(names ...string) func(*v1.PodSpec) {
	return func(spec *v1.PodSpec) {
		for _, name := range names {
			spec.SchedulingGates = append(spec.SchedulingGates, v1.PodSchedulingGate{Name: name})
		}
	}
}

// gatesOf returns the scheduling gates of all pods with the label app, in order.
func (s *scenario) gatesOf(app string) (gates []string, err error) {
	pods, err := s.Pods(app)
	for i := range pods {
		for _, gate := range pods[i].Spec.SchedulingGates {
			gates = append(gates, gate.Name)
		}
	}
	return gates, err
}

// TestGateTimeout runs without a controller that removes the capacity gate. The scheduler removes
// the gate after gateTimeout, and the floor is met. It also removes the gate of a pod that names
// another scheduler, because a policy may have changed it after the gate was added. The timeout of
// a pod with another gate begins when the other gate is removed.
func TestGateTimeout(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 10), live.Spot(4, 10)), live.Settings{"gateTimeout": gateTimeout.String()}.EditSafety)
	began := time.Now()
	with := func(gates ...string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { gated(gates...)(&d.Spec.Template.Spec) }
	}
	s.Deploy("single", 1, with(capacityGate))
	s.Deploy("web", 4, with(capacityGate))
	s.Deploy("theirs", 1, with(foreignGate, capacityGate))
	s.barePod("foreign", func(p *v1.Pod) {
		p.Spec.SchedulerName = "other-scheduler"
		gated(capacityGate)(&p.Spec)
	})

	s.Eventually(soon, s.haveSplits(map[string]split{
		"single": {OnDemand: 1}, "web": {OnDemand: 1, Spot: 3}, "theirs": {Waiting: 1}, "foreign": {Waiting: 1},
	}))
	// The API server truncates the creation time to a second.
	if took := time.Since(began); took < gateTimeout-time.Second {
		t.Errorf("gates were removed after %s, want %s", took, gateTimeout)
	}
	if gates, err := s.gatesOf("theirs"); err != nil || !slices.Equal(gates, []string{foreignGate, capacityGate}) {
		t.Errorf("gates of a pod that another gate holds: %v, %v, want both", gates, err)
	}
	held, err := s.Pods("theirs")
	s.Must(err)
	began = time.Now()
	patch := fmt.Sprintf(`{"spec":{"schedulingGates":[{"name":%q}]}}`, capacityGate)
	_, err = client.CoreV1().Pods(s.Namespace).Patch(s.Ctx, held[0].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
	s.Eventually(soon, s.HasSplit("theirs", split{OnDemand: 1}))
	if took := time.Since(began); took < gateTimeout-2*time.Second { // the scheduler looks every 2 s
		t.Errorf("the gate was removed %s after the other one, want %s", took, gateTimeout)
	}
	s.Eventually(soon, s.hasMetric(7, expiredGates, nil))
	s.Eventually(soon, func() error {
		notes, err := s.eventsOf(s.Namespace, "CapacityGateExpired")
		if err == nil && len(notes) != 7 {
			err = fmt.Errorf("events on %d pods, want 7: %v", len(notes), notes)
		}
		for pod, note := range notes {
			if !strings.Contains(note, capacityGate) || !strings.Contains(note, gateTimeout.String()) {
				t.Errorf("event on %s: %q", pod, note)
			}
		}
		return err
	})
	if gates, err := s.gatesOf("foreign"); err != nil || len(gates) > 0 {
		t.Errorf("gates of a pod of another scheduler: %v, %v", gates, err)
	}
}

// TestOnlyLeaderRemovesGates runs two schedulers. The standby patches no pod. The next leader
// continues when the first one has stopped.
func TestOnlyLeaderRemovesGates(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 10), live.Spot(2, 10)), live.Settings{"gateTimeout": gateTimeout.String()}.EditSafety)
	pair := s.startStandby()
	leading := s.leader(pair)
	create := func(n int, prefix string) {
		for i := range n {
			s.pod(prefix, fmt.Sprintf("%s-%d", prefix, i), func(p *v1.Pod) { gated(capacityGate)(&p.Spec) })
		}
	}
	removed := func(p *lab.Process, want int) func() error {
		return func() error {
			got, err := live.Metric(s.Ctx, p, expiredGates, nil)
			if err == nil && int(got) != want {
				err = fmt.Errorf("removed %v gates, want %d", got, want)
			}
			return err
		}
	}
	create(5, "first")
	s.Eventually(soon, s.HasSplit("first", split{OnDemand: 5}))
	s.Must(removed(pair[leading], 5)())
	s.Must(removed(pair[1-leading], 0)())
	s.onlyPatchedBy(pair[leading], "first")

	create(5, "second")
	s.Must(pair[leading].Stop())
	s.Eventually(longestTakeover+onRequests, s.HasSplit("second", split{OnDemand: 5}))
	s.Eventually(soon, removed(pair[1-leading], 5))
}

// onlyPatchedBy fails the test unless this scheduler, and no other, logged that it removed the
// gates of all pods with the label app.
func (s *scenario) onlyPatchedBy(p *lab.Process, app string) {
	s.Helper()
	pods, err := client.CoreV1().Pods(s.Namespace).List(s.Ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	s.Must(err)
	for _, other := range controlPlane.Schedulers() {
		log := live.Tail(other.Log, 100_000)
		for i := range pods.Items {
			line := fmt.Sprintf(`"Removed expired capacity gate" pod="%s/%s"`, s.Namespace, pods.Items[i].Name)
			if got := strings.Contains(log, line); got != (other == p) {
				s.Errorf("%s removed the gate of %s: %t", other.Name, pods.Items[i].Name, got)
			}
		}
	}
}

// TestAssignedAndGranted covers assigned and granted pods. Replicas that were assigned beyond the
// floor do not use on-demand while the budget has room for them, and the floor is still met. A
// grant lets a pod run on spot that would otherwise wait.
func TestAssignedAndGranted(t *testing.T) {
	s := start(t, live.OnDemand(1, 10), live.Settings{"overflow": "Never", "minOnDemand": 2}.EditSafety)
	s.Deploy("web", 4, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"spot-aware-scheduler.io/assigned": "any: beyond the floor"}
	})
	s.Eventually(soon, s.pendingReason("web", 4, "overflow Never: the pod was assigned beyond the floor of 2"))
	s.AddNodes(live.Spot(1, 10)...)
	s.Eventually(soon, s.HasSplit("web", split{OnDemand: 2, Spot: 2}))

	s.EditNode("od-1", func(n *v1.Node) { n.Spec.Unschedulable = true })
	s.Deploy("waits", 1)
	s.Deploy("granted", 1)
	s.Eventually(soon, s.HasSplit("granted", split{Waiting: 1}))
	pods, err := s.Pods("granted")
	s.Must(err)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"spot-aware-scheduler.io/granted":"fallback %s"}}}`, pods[0].UID)
	_, err = client.CoreV1().Pods(s.Namespace).Patch(s.Ctx, pods[0].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
	s.Eventually(soon, s.HasSplit("granted", split{Spot: 1}))
	s.Must(s.HasSplit("waits", split{Waiting: 1})())
	s.Eventually(soon, s.hasMetric(1, "spot_aware_scheduler_placements_total", map[string]string{"reason": "fallback"}))
}
