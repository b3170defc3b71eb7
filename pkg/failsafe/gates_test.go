package failsafe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// TestRemovalOfExpiredGates checks that a gate expires by the age of its pod and the timeout of its
// profile, or the longest timeout if a policy changed the scheduler. The leading replica removes
// it, even if the API server first refuses.
func TestRemovalOfExpiredGates(t *testing.T) {
	const profile = clustertest.Profile
	aged := func(name, scheduler string, age time.Duration) *v1.Pod {
		pod := clustertest.NewPod(name)
		pod.ResourceVersion, pod.CreationTimestamp = "1", metav1.NewTime(time.Now().Add(-age))
		pod.Spec.SchedulerName, pod.Spec.SchedulingGates = scheduler, []v1.PodSchedulingGate{{Name: spot.CapacityGate}}
		return pod
	}
	client := fake.NewClientset(aged("old", profile, time.Hour), aged("young", profile, 0), aged("patient", "slow", time.Minute),
		aged("other", "default-scheduler", time.Hour), aged("other-young", "default-scheduler", time.Minute))
	refused := 0
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		refused++
		switch refused {
		case 1:
			return true, nil, apierrors.NewServiceUnavailable("test")
		case 2:
			return true, nil, apierrors.NewForbidden(v1.Resource("pods"), "old", errors.New(`admission webhook "deny.example.com" denied the request: no`))
		}
		return false, nil, nil
	})
	leads, clock := false, clocktesting.NewFakeClock(time.Now())
	recorder := events.NewFakeRecorder(10)
	factory := informers.NewSharedInformerFactory(client, 0)
	w := NewWithdrawer(factory, client, recorder, clock, map[string]time.Duration{profile: 30 * time.Second, "slow": time.Hour}, func() bool { return leads })
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	check := func() {
		if err := w.check(ctx); err != nil {
			t.Fatal(err)
		}
	}

	gates := func(name string) int {
		pod, err := client.CoreV1().Pods("shop").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(pod.Spec.SchedulingGates)
	}
	check()
	if got := gates("old"); got != 1 || refused > 0 {
		t.Fatalf("a replica that is not the leader sent %d requests: %d gates left", refused, got)
	}
	leads = true
	check()
	if refused != 2 {
		t.Fatalf("sent %d requests, want one for each expired gate", refused)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	defer func() { cancel(); <-ended; factory.Shutdown() }()
	if err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		clock.Step(checkEvery / 100) // the other gates must not expire
		return gates("old") == 0 && gates("other") == 0, nil
	}); err != nil {
		t.Fatal("the gates of the old pods are not removed")
	}
	other, err := client.CoreV1().Pods("shop").Get(ctx, "other", metav1.GetOptions{})
	if err != nil || other.Annotations[spot.WaitingSinceAnnotation] == "" {
		t.Errorf("annotations %v, %v; want the time from which the pod waits, for its fallback", other.Annotations, err)
	}
	for i, want := range []string{"Warning ChangeRefused", "Warning CapacityGateExpired", "Warning CapacityGateExpired"} {
		if event := <-recorder.Events; !strings.HasPrefix(event, want) || i == 0 && !strings.Contains(event, "deny.example.com") {
			t.Errorf("event %q, want %s", event, want)
		}
	}
	for _, name := range []string{"young", "patient", "other-young"} {
		if got := gates(name); got != 1 {
			t.Errorf("%s has %d gates left, want 1", name, got)
		}
	}
}

// A gate does not expire while the pod has other gates. The timeout begins when they are gone, so
// that the controller has the time to decide by the final node selector.
func TestGateWaitsForOtherGates(t *testing.T) {
	const timeout = 30 * time.Second
	pod := clustertest.NewPod("task")
	pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	pod.Spec.SchedulerName, pod.Spec.SchedulingGates = clustertest.Profile, []v1.PodSchedulingGate{{Name: "quota.example/wait"}, {Name: spot.CapacityGate}}
	clock := clocktesting.NewFakeClock(time.Now())
	w := &Withdrawer{clock: clock, gateTimeouts: map[string]time.Duration{clustertest.Profile: timeout}, longestTimeout: timeout}
	expired := func() bool { return len(w.expiredGates([]*v1.Pod{pod})) > 0 }
	if expired() {
		t.Error("the gate has expired while the pod has another gate")
	}
	pod.Spec.SchedulingGates = pod.Spec.SchedulingGates[1:]
	for range timeout / checkEvery {
		if expired() {
			t.Error("the gate has expired before its timeout")
		}
		clock.Step(checkEvery)
	}
	if !expired() {
		t.Error("the gate has not expired")
	}
	pod.Spec.SchedulingGates = nil
	if expired() || len(w.heldAt) > 0 {
		t.Errorf("a pod without gates is remembered: %v", w.heldAt)
	}
}
