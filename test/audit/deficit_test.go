package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestDeficits(t *testing.T) {
	for name, test := range map[string]struct {
		play func(h *history)
		want []Deficit
	}{
		"floor is met": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b").bind("d", "c")
			},
		},
		"floor pod is pending": {
			play: func(h *history) {
				h.spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b")
			},
			want: []Deficit{{Workload: "Deployment shop/web", Floor: 1, Live: 3, Waiting: 1}},
		},
		"on-demand replica removed by a scale-down": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b").bind("d", "c").
					scale("web", 2).terminate("c")
			},
			want: []Deficit{{Workload: "Deployment shop/web", Floor: 1, Live: 2}},
		},
		"on-demand node deleted": {
			play: func(h *history) {
				h.onDemand("d").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").bind("d", "a").remove(get[*corev1.Node](h, "d"))
			},
			want: []Deficit{{Workload: "Deployment shop/web", Floor: 1, Live: 1}},
		},
		"an old revision's pod satisfies the workload's floor": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a").bind("d", "a").
					revisionOf("web", 2, 2).pods("ReplicaSet", "web-2", "b").bind("s", "b")
			},
		},
		"two revisions, each within its budget": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a").bind("s", "a").
					revisionOf("web", 2, 2).pods("ReplicaSet", "web-2", "b").bind("s", "b")
			},
			want: []Deficit{{Workload: "Deployment shop/web", Floor: 1, Live: 2}},
		},
		"fewer pods than the floor": {
			play: func(h *history) {
				h.spot("s").deployment("web", 9, minOnDemand("5")).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a")
			},
			want: []Deficit{{Workload: "Deployment shop/web", Floor: 2, Live: 2, Waiting: 1}},
		},
		"StatefulSet: only the first ordinals count": {
			play: func(h *history) {
				h.spot("s").onDemand("d").statefulSet("db", 3, 0, nil).pods("StatefulSet", "db", "db-0", "db-1", "db-2").bind("s", "db-0").bind("d", "db-1", "db-2")
			},
			want: []Deficit{{Workload: "StatefulSet shop/db", Floor: 1, Live: 3}},
		},
		"pods that require spot": {
			play: func(h *history) {
				h.spot("s").pods("", "", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{ownLabel: "spot"} }).bind("s", "a")
			},
		},
		"bare pod": {
			play: func(h *history) { h.spot("s").pods("", "", "a").bind("s", "a") },
			want: []Deficit{{Workload: "Pod shop/a", Floor: 1, Live: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, "")
			test.play(h)
			if diff := cmp.Diff(test.want, h.core.deficits(h.now)); diff != "" {
				t.Errorf("deficits (-want +got):\n%s", diff)
			}
		})
	}
}
