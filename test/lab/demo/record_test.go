package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRecorder(t *testing.T) {
	type event struct {
		second int
		pod    types.UID
		ready  bool
	}
	tests := map[string]struct {
		before, during []event
		want           outage // of a recording from second 10 to second 20
	}{
		"no change": {
			before: []event{{0, "a", true}, {0, "b", true}},
			want:   outage{Lowest: 2},
		},
		"one of two lost and replaced": {
			before: []event{{0, "a", true}, {0, "b", true}},
			during: []event{{11, "a", false}, {12, "c", true}},
			want:   outage{Lowest: 1},
		},
		"both lost, one is replaced": {
			before: []event{{0, "a", true}, {0, "b", true}},
			during: []event{{11, "a", false}, {12, "b", false}, {15, "c", true}},
			want:   outage{Duration: 3 * time.Second},
		},
		"two outages": {
			before: []event{{0, "a", true}},
			during: []event{{11, "a", false}, {12, "b", true}, {14, "b", false}, {18, "c", true}},
			want:   outage{Duration: 5 * time.Second},
		},
		"outage until the end": {
			before: []event{{0, "a", true}},
			during: []event{{13, "a", false}},
			want:   outage{Duration: 7 * time.Second, Ongoing: true},
		},
		"outage from the beginning": {
			during: []event{{14, "a", true}},
			want:   outage{Duration: 4 * time.Second},
		},
		"changes before the recording do not count": {
			before: []event{{0, "a", true}, {1, "a", false}, {5, "a", true}},
			want:   outage{Lowest: 1},
		},
		"reported twice": {
			before: []event{{0, "a", true}, {1, "a", true}},
			during: []event{{11, "a", false}, {12, "a", false}, {14, "b", true}, {15, "b", true}},
			want:   outage{Duration: 3 * time.Second},
		},
		"a replacement before the loss is observed": {
			before: []event{{0, "a", true}},
			during: []event{{11, "b", true}, {12, "a", false}},
			want:   outage{Lowest: 1},
		},
	}
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			observe := func(events []event) {
				for _, e := range events {
					r.observe(at(e.second), "web", e.pod, e.ready)
				}
			}
			observe(test.before)
			r.observe(at(9), "other", "x", true)
			r.start(at(10), []string{"web", "other"})
			observe(test.during)
			want := map[string]outage{"web": test.want, "other": {Lowest: 1}}
			if diff := cmp.Diff(want, r.end(at(20))); diff != "" {
				t.Errorf("outages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsReady(t *testing.T) {
	ready := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	now := metav1.Now()
	tests := map[string]struct {
		pod  corev1.Pod
		want bool
	}{
		"no condition yet": {corev1.Pod{}, false},
		"ready":            {corev1.Pod{Status: corev1.PodStatus{Conditions: ready}}, true},
		"terminating": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Status: corev1.PodStatus{Conditions: ready}}, false,
		},
		"not ready": {
			corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}},
			false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isReady(&test.pod); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
