package failsafe

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// A pod waits from when it was found unschedulable, and nothing else records that if it had gates.
func TestRecordWaits(t *testing.T) {
	const profile = clustertest.Profile
	waiting := func(name, scheduler string, generation int64, reason string) *v1.Pod {
		pod := clustertest.NewPod(name)
		pod.ResourceVersion, pod.Generation, pod.Spec.SchedulerName = "1", generation, scheduler
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, LastTransitionTime: pod.CreationTimestamp}}
		return pod
	}
	recorded := waiting("recorded", profile, 2, v1.PodReasonUnschedulable)
	recorded.Annotations = map[string]string{spot.WaitingSinceAnnotation: "2026-01-02T03:04:05Z"}
	gated := waiting("gated", profile, 1, v1.PodReasonSchedulingGated)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "quota.example/wait"}}
	client := fake.NewClientset(waiting("had-gates", profile, 2, v1.PodReasonUnschedulable), recorded, gated,
		waiting("never-gated", profile, 1, v1.PodReasonUnschedulable), waiting("foreign", "other", 2, v1.PodReasonUnschedulable))
	factory := informers.NewSharedInformerFactory(client, 0)
	w := NewWithdrawer(factory, client, events.NewFakeRecorder(10), clocktesting.NewFakeClock(now), map[string]time.Duration{profile: time.Hour}, func() bool { return true })
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if err := w.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Time{
		"had-gates": now.Truncate(time.Second), "recorded": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "gated": {}, "never-gated": {}, "foreign": {},
	} {
		pod, err := client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := time.Parse(time.RFC3339, pod.Annotations[spot.WaitingSinceAnnotation]); !got.Equal(want) {
			t.Errorf("%s waits since %s, want %s", name, got, want)
		}
	}
}
