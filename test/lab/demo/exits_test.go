package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

func TestExits(t *testing.T) {
	pod := func(name, node string, edits ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{workloadLabel: "web"}, Annotations: map[string]string{},
			},
			Spec: corev1.PodSpec{NodeName: node},
		}
		for _, edit := range edits {
			edit(p)
		}
		return p
	}
	released := func(p *corev1.Pod) { p.Annotations[spot.ReleasedAnnotation] = "{}" }
	target := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
		}
	}
	evicted := target("EvictionByEvictionAPI")
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	left := func(name string, method migration.Method, second int64) exit {
		return exit{Workload: "web", Pod: name, Node: "going", Method: method, At: at(second)}
	}
	type event struct {
		second int64
		pod    *corev1.Pod
		gone   bool
	}
	tests := map[string]struct {
		events   []event
		wantOn   map[string]int // on the node "going"
		wantLeft []exit         // from it, from second 10 on
	}{
		"nothing has left": {
			events: []event{{1, pod("a", "going"), false}, {2, pod("b", "going"), false}, {3, pod("c", "other"), false}},
			wantOn: map[string]int{"web": 2},
		},
		"not bound yet": {
			events: []event{{1, pod("a", ""), false}},
		},
		"bound later": {
			events: []event{{1, pod("a", ""), false}, {2, pod("a", "going"), false}},
			wantOn: map[string]int{"web": 1},
		},
		"released and evicted": {
			events: []event{
				{1, pod("a", "going"), false}, {11, pod("a", "going", released), false}, {12, pod("a", "going", released, evicted), false},
				{13, pod("a", "going", released, evicted), true},
			},
			wantLeft: []exit{left("a", migration.Surge, 13)},
		},
		"released, not evicted yet": {
			events: []event{{11, pod("a", "going", released), false}},
			wantOn: map[string]int{"web": 1},
		},
		"evicted": {
			events:   []event{{11, pod("a", "going"), false}, {12, pod("a", "going", evicted), true}},
			wantLeft: []exit{left("a", migration.Evict, 12)},
		},
		"deleted": {
			events:   []event{{11, pod("a", "going"), true}},
			wantLeft: []exit{left("a", migration.Delete, 11)},
		},
		"released, but deleted at the deadline": {
			events:   []event{{11, pod("a", "going", released), true}},
			wantLeft: []exit{left("a", migration.Delete, 11)},
		},
		"disrupted by another controller": {
			events:   []event{{11, pod("a", "going", target("DeletionByTaintManager")), true}},
			wantLeft: []exit{left("a", migration.Delete, 11)},
		},
		"before that time, or another node": {
			events: []event{{9, pod("a", "going"), true}, {11, pod("b", "other"), true}},
		},
		"in the order of their deletion": {
			events:   []event{{1, pod("a", "going"), false}, {11, pod("b", "going"), true}, {12, pod("a", "going"), true}},
			wantLeft: []exit{left("b", migration.Delete, 11), left("a", migration.Delete, 12)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newExits()
			for _, event := range test.events {
				e.observe(at(event.second), event.pod, event.gone)
			}
			going := map[string]bool{"going": true}
			if test.wantOn == nil {
				test.wantOn = map[string]int{}
			}
			if diff := cmp.Diff(test.wantOn, e.on(going)); diff != "" {
				t.Errorf("still on the node (-want +got):\n%s", diff)
			}
			if left := e.from(going, at(10)); len(left)+len(test.wantLeft) > 0 {
				if diff := cmp.Diff(test.wantLeft, left); diff != "" {
					t.Errorf("left (-want +got):\n%s", diff)
				}
			}
		})
	}
}
