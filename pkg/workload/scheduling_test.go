package workload

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

func TestWaitingSince(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		reason     string // of a condition from an hour ago
		generation int64
		annotation string
		want       time.Duration // before now
		wantNone   bool
	}{
		"never tried":                     {wantNone: true, generation: 1},
		"has gates":                       {reason: v1.PodReasonSchedulingGated, generation: 1, wantNone: true},
		"had no gates":                    {reason: v1.PodReasonUnschedulable, generation: 1, want: time.Hour - time.Second},
		"had no gates, annotated":         {reason: v1.PodReasonUnschedulable, generation: 1, annotation: "2026-01-01T11:50:00Z", want: time.Hour - time.Second},
		"had gates":                       {reason: v1.PodReasonUnschedulable, generation: 2, annotation: "2026-01-01T11:50:00Z", want: 10*time.Minute - time.Second},
		"had gates, nothing recorded":     {reason: v1.PodReasonUnschedulable, generation: 2, wantNone: true},
		"had gates, unreadable":           {reason: v1.PodReasonUnschedulable, generation: 2, annotation: "long ago", wantNone: true},
		"claims to wait before it exists": {reason: v1.PodReasonUnschedulable, generation: 2, annotation: "1026-01-01T11:50:00Z", want: time.Hour - time.Second},
		"claims the future":               {reason: v1.PodReasonUnschedulable, generation: 2, annotation: "9999-01-01T11:50:00Z"},
		"no generations":                  {reason: v1.PodReasonUnschedulable, annotation: "2026-01-01T11:50:00Z", want: 10*time.Minute - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: test.generation, Annotations: map[string]string{spot.WaitingSinceAnnotation: test.annotation}}}
			if test.reason != "" {
				pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}, {Type: v1.PodScheduled, Status: v1.ConditionFalse,
					Reason: test.reason, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
			}
			since, waits := WaitingSince(pod, now)
			if waits == test.wantNone || waits && now.Sub(since) != test.want {
				t.Errorf("waits %t for %s, want %t for %s", waits, now.Sub(since), !test.wantNone, test.want)
			}
		})
	}
}
