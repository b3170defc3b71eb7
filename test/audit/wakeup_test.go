package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// lost is a shorter LostWakeup: the pod, and the start in seconds after dawn.
type lost struct {
	Pod   string
	Since time.Duration
}

func (h *history) lost() []lost {
	var out []lost
	for _, l := range findingsOf[LostWakeup](h.core) {
		h.t.Log(l)
		out = append(out, lost{l.Pod, l.Since.Sub(dawn).Round(time.Second)})
	}
	return out
}

// TestLostWakeups contains changes after which a pending pod can run, and changes after which it
// cannot.
func TestLostWakeups(t *testing.T) {
	// singleton is pending from the start and needs on-demand; spot has room.
	singleton := func(h *history) *history {
		return h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").refuse("a")
	}
	a := func(since time.Duration) []lost { return []lost{{"shop/a", since}} }
	const s = time.Second
	for name, test := range map[string]struct {
		args string
		play func(h *history)
		want []lost
	}{
		"nothing fits": {play: func(h *history) { singleton(h).wait(60 * s) }},
		"on-demand node added": {
			play: func(h *history) { singleton(h).wait(5 * s).onDemand("d").wait(13 * s) },
			want: a(5 * s),
		},
		"on-demand node added 12 s ago": {play: func(h *history) { singleton(h).wait(5 * s).onDemand("d").wait(12 * s) }},
		"never tried":                   {play: func(h *history) { h.onDemand("d").pods("", "", "a").wait(13 * s) }, want: a(0)},
		"reported once":                 {play: func(h *history) { h.onDemand("d").pods("", "", "a").wait(60 * s) }, want: a(0)},
		"bound in time":                 {play: func(h *history) { h.onDemand("d").pods("", "", "a").wait(11*s).bind("d", "a").wait(13 * s) }},
		"gated": {play: func(h *history) {
			h.pods("", "", "a")
			edit(h, "a", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}} }).onDemand("d").wait(13 * s)
		}},
		"terminating":          {play: func(h *history) { h.pods("", "", "a").terminate("a").onDemand("d").wait(13 * s) }},
		"of another scheduler": {play: func(h *history) { otherScheduler(h.pods("", "", "a")).onDemand("d").wait(13 * s) }},
		"room used in between, for a moment": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a", "b", "c", "e", "f").bind("d", "b", "c", "e").wait(8*s).bind("d", "f")
				h.remove(get[*corev1.Pod](h, "f")).wait(12 * s)
			},
		},
		"room freed": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "b", "c", "e", "f").bind("d", "b", "c", "e", "f").pods("", "", "a").wait(5 * s)
				edit(h, "f", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }).wait(13 * s)
			},
			want: a(5 * s),
		},
		"a terminating pod still uses its room": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "b", "c", "e", "f").bind("d", "b", "c", "e", "f").pods("", "", "a").terminate("f").wait(13 * s)
			},
		},
		"no pod slot": {
			play: func(h *history) {
				h.node("d", nil, func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1") })
				h.pods("", "", "b").bind("d", "b").pods("", "", "a").wait(13 * s)
			},
		},
		"room nominated for a more important pod": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "b", "c", "e").bind("d", "b", "c", "e").pods("", "", "f")
				edit(h, "f", func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](9); p.Status.NominatedNodeName = "d" })
				h.pods("", "", "a").wait(13 * s)
			},
			want: []lost{{"shop/f", 0}},
		},
		"taint":           {play: func(h *history) { tainted(h.onDemand("d")).pods("", "", "a").wait(13 * s) }},
		"taint removed":   {play: func(h *history) { untainted(tainted(h.onDemand("d")).pods("", "", "a").wait(5 * s)).wait(13 * s) }, want: a(5 * s)},
		"taint tolerated": {play: func(h *history) { tolerant(tainted(h.onDemand("d")).pods("", "", "a")).wait(13 * s) }, want: a(0)},
		"cordoned": {play: func(h *history) {
			h.node("d", nil, func(n *corev1.Node) { n.Spec.Unschedulable = true }).pods("", "", "a").wait(13 * s)
		}},
		"own selector": {play: func(h *history) {
			h.onDemand("d").pods("", "", "a")
			edit(h, "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }).wait(13 * s)
		}},
		"own selector, not met for a moment": {play: func(h *history) {
			h.node("d", map[string]string{"zone": "b"}).pods("", "", "a")
			edit(h, "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }).wait(8 * s)
			edit(h, "d", func(n *corev1.Node) { n.Labels = nil })
			edit(h, "d", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "b"} }).wait(12 * s)
		}},
		"signal": {play: func(h *history) {
			h.node("d", nil, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "spot-aware-scheduler.io/interruption", Effect: corev1.TaintEffectPreferNoSchedule}}
			}).pods("", "", "a").wait(13 * s)
		}},
		"signal removed": {
			play: func(h *history) {
				h.node("d", map[string]string{"autoscaling.cast.ai/draining": "spot-prediction"}).pods("", "", "a").wait(5 * s)
				edit(h, "d", func(n *corev1.Node) { n.Labels = nil }).wait(13 * s)
			},
			want: a(5 * s),
		},
		"node relabelled": {
			play: func(h *history) {
				singleton(h).wait(5 * s)
				edit(h, "s", func(n *corev1.Node) { n.Labels[ownLabel] = "on-demand" }).wait(13 * s)
			},
			want: a(5 * s),
		},
		"owner scaled":    {play: func(h *history) { singleton(h).wait(5*s).scale("web", 2).wait(13 * s) }, want: a(5 * s)},
		"owner annotated": {play: func(h *history) { annotate(singleton(h).wait(5*s), "0").wait(13 * s) }, want: a(5 * s)},
		"owner unknown":   {play: func(h *history) { h.onDemand("d").pods("ReplicaSet", "web-1", "a").wait(60 * s) }},
		"owner appears": {
			play: func(h *history) {
				h.onDemand("d").pods("ReplicaSet", "web-1", "a").wait(5*s).deployment("web", 1, nil).wait(13 * s)
			},
			want: a(5 * s),
		},
		"budget freed by a sibling": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "b").bind("s", "b").pods("ReplicaSet", "web-1", "a").refuse("a").wait(5 * s).
					terminate("b").wait(13 * s)
			},
			want: a(5 * s),
		},
		"ordinal above the floor": {
			play: func(h *history) {
				h.spot("s").statefulSet("db", 2, 0, nil).pods("StatefulSet", "db", "db-1").wait(13 * s)
			},
			want: []lost{{"shop/db-1", 0}},
		},
		"ordinal below the floor": {
			play: func(h *history) {
				h.spot("s").statefulSet("db", 2, 0, nil).pods("StatefulSet", "db", "db-0").wait(13 * s)
			},
		},
		"pool full": {
			args: "maxPerPool: 1",
			play: func(h *history) {
				h.pool("s", "m5").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "b").bind("s", "b").pods("ReplicaSet", "web-1", "a").wait(13 * s)
			},
		},
		"another pool": {
			args: "maxPerPool: 1",
			play: func(h *history) {
				h.pool("s", "m5").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "b").bind("s", "b").
					pods("ReplicaSet", "web-1", "a").wait(5*s).pool("t", "c5").wait(13 * s)
			},
			want: a(5 * s),
		},
		"fallback":          {args: "fallbackAfter: 20s", play: func(h *history) { singleton(h).wait(33 * s) }, want: a(20 * s)},
		"fallback is fresh": {args: "fallbackAfter: 20s", play: func(h *history) { singleton(h).wait(32 * s) }},
		"ScheduleAnyway":    {args: "whenUnsatisfiable: ScheduleAnyway", play: func(h *history) { singleton(h).wait(13 * s) }, want: a(0)},
		"overflow Never, beyond the floor": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "b").bind("d", "b").pods("ReplicaSet", "web-1", "a").wait(60 * s)
			},
		},
		"overflow Never, the sibling on on-demand has left": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "b").bind("d", "b").pods("ReplicaSet", "web-1", "a").
					wait(5 * s).terminate("b").wait(13 * s)
			},
			want: a(5 * s),
		},
		"overflow Never, assigned beyond the floor": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Annotations = map[string]string{prefix + "assigned": "any: x"} }).wait(60 * s)
			},
		},
		"overflow Never, assigned beyond the floor, the budget is used up": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "b").bind("s", "b").pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Annotations = map[string]string{prefix + "assigned": "any: x"} }).wait(13 * s)
			},
			want: a(0),
		},
		"granted": {
			play: func(h *history) {
				edit(singleton(h), "a", func(p *corev1.Pod) {
					p.Annotations = map[string]string{prefix + "granted": "rollout-relief " + string(p.UID)}
				}).wait(13 * s)
			},
			want: a(0),
		},
		"exempt": {
			play: func(h *history) {
				edit(singleton(h), "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{ownLabel: "spot"} }).wait(13 * s)
			},
			want: a(0),
		},
		"rollout relief after another time": {args: "rolloutRelief: 20s", play: func(h *history) { rollout(h).wait(33 * s) }, want: a(20 * s)},
		"rollout relief":                    {play: func(h *history) { rollout(h).wait(43 * s) }, want: a(30 * s)},
		"rollout, the old revision has used on-demand for a short time": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 1, nil).pods("", "", "w", "x", "y", "z").bind("d", "w", "x", "y", "z")
				h.pods("ReplicaSet", "web-1", "old").revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "a").refuse("a").
					wait(20*s).bind("d", "old").wait(42 * s)
			},
		},
		"rollout, the old revision's pod is terminating": {
			play: func(h *history) { rollout(h).wait(20 * s).terminate("old").wait(60 * s) },
		},
		"young node without a label": {
			play: func(h *history) {
				singleton(h).node("n", nil, func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(h.now) }).wait(43 * s)
			},
		},
		"old node without a label": {
			play: func(h *history) {
				singleton(h).node("n", nil, func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(h.now) }).wait(44 * s)
			},
			want: a(31 * s),
		},
		"constraints that are not modeled": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a", "b", "c")
				edit(h, "a", func(p *corev1.Pod) {
					p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}},
					}}
				})
				edit(h, "b", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }) // repelled by a
				edit(h, "c", func(p *corev1.Pod) {
					p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
				}).wait(13 * s)
			},
		},
		"a long queue that makes progress": {play: func(h *history) { queue(h, true) }},
		"a long queue without progress": {
			play: func(h *history) { queue(h, false) },
			want: manyLost(30, 2*s),
		},
		"a long queue after a restart": {play: func(h *history) { restarted(h, 8) }},
		"a long queue after a restart, without progress": {
			play: func(h *history) { restarted(h, 1).wait(30 * s) },
			want: manyLost(29, 16*s),
		},
		"no scheduler": {play: func(h *history) {
			h.write(lease("old")).onDemand("d").pods("", "", "a").wait(60 * s)
		}},
		"scheduler runs": {
			play: func(h *history) {
				h.write(lease("old")).onDemand("d").pods("", "", "a")
				for range 7 {
					h.wait(2 * s).write(lease("old"))
				}
			},
			want: a(0),
		},
		"no scheduler for a while": {
			play: func(h *history) {
				h.write(lease("old")).onDemand("d").pods("", "", "a").wait(30 * s)
				for range 5 {
					h.write(lease("old")).wait(2 * s)
				}
			},
		},
		"a new scheduler, announced by the test": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a").wait(4 * s)
				h.core.setPolicy(DefaultPolicy(), h.now)
				h.wait(13 * s)
			},
			want: a(4 * s),
		},
		"a new scheduler took over": {
			play: func(h *history) {
				h.write(lease("old")).onDemand("d").pods("", "", "a").wait(4 * s)
				for range 7 {
					h.write(lease("new")).wait(2 * s)
				}
			},
			want: a(4 * s),
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, test.args)
			test.play(h)
			if diff := cmp.Diff(test.want, h.lost()); diff != "" {
				t.Errorf("lost wake-ups (-want +got):\n%s", diff)
			}
		})
	}
}

func otherScheduler(h *history) *history {
	return edit(h, "a", func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })
}

func tainted(h *history) *history {
	return edit(h, "d", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	})
}

func untainted(h *history) *history {
	return edit(h, "d", func(n *corev1.Node) { n.Spec.Taints = nil })
}

func tolerant(h *history) *history {
	return edit(h, "a", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	})
}

func annotate(h *history, minimum string) *history {
	return edit(h, "web", func(d *appsv1.Deployment) { d.Annotations = minOnDemand(minimum) })
}

// rollout creates a singleton whose new revision waits for the on-demand capacity of the old
// revision.
func rollout(h *history) *history {
	h.spot("s").onDemand("d").deployment("web", 1, nil).pods("", "", "x", "y", "z").bind("d", "x", "y", "z")
	return h.pods("ReplicaSet", "web-1", "old").bind("d", "old").revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "a").refuse("a")
}

// queue makes 90 pods wait although nodes have room. With progress, one pod is bound every half
// second for 30 s. Without progress, 60 pods are bound at once and then none.
func queue(h *history, moves bool) {
	for i := range 6 {
		h.node(fmt.Sprintf("d%d", i), nil, func(n *corev1.Node) {
			n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("100")
			n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("100")
		})
	}
	for i := range 90 {
		h.pods("", "", fmt.Sprintf("p%02d", i))
	}
	if !moves {
		for i := 30; i < 90; i++ {
			h.bind(fmt.Sprintf("d%d", i%6), fmt.Sprintf("p%02d", i))
		}
		h.wait(15 * time.Second)
		return
	}
	for i := range 60 {
		h.bind(fmt.Sprintf("d%d", i/10), fmt.Sprintf("p%02d", i)).wait(time.Second / 2)
	}
}

// restarted lets a new scheduler try 30 pods that an earlier one found unschedulable: it binds one
// of the last n every 4 s.
func restarted(h *history, n int) *history {
	for i := range 30 {
		h.pods("", "", fmt.Sprintf("p%02d", i)).refuse(fmt.Sprintf("p%02d", i))
	}
	h.node("d", nil, func(n *corev1.Node) {
		n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("100")
		n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("100")
	})
	h.core.setPolicy(DefaultPolicy(), h.now)
	for i := range n {
		h.wait(4*time.Second).bind("d", fmt.Sprintf("p%02d", 29-i))
	}
	return h
}

// manyLost returns the lost wake-ups of the first n pods.
func manyLost(n int, since time.Duration) []lost {
	var out []lost
	for i := range n {
		out = append(out, lost{fmt.Sprintf("shop/p%02d", i), since})
	}
	return out
}

func lease(holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SchedulerName, UID: types.UID("lease")},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder)},
	}
}

// A slow auditor does not report lost wake-ups: it waits until it has observed the scheduler's
// changes.
func TestLostWakeupsWaitForTheAuditor(t *testing.T) {
	h := newHistory(t, "").onDemand("d").pods("", "", "a")
	newer := get[*corev1.Pod](h, "a").DeepCopy()
	newer.ResourceVersion += "0"
	h.core.newest = func(string, string) (*corev1.Pod, bool) { return newer, true }
	if diff := cmp.Diff([]lost(nil), h.wait(30*time.Second).lost()); diff != "" {
		t.Errorf("lost wake-ups while behind (-want +got):\n%s", diff)
	}
	h.core.newest = func(string, string) (*corev1.Pod, bool) { return get[*corev1.Pod](h, "a"), true }
	if diff := cmp.Diff([]lost{{"shop/a", 0}}, h.wait(time.Second).lost()); diff != "" {
		t.Errorf("lost wake-ups when it has caught up (-want +got):\n%s", diff)
	}
}

func TestLostWakeupsWaitForTheAuditorsWatch(t *testing.T) {
	h := newHistory(t, "").onDemand("d").pods("", "", "a")
	newer := get[*corev1.Pod](h, "a").DeepCopy()
	newer.ResourceVersion += "0"
	for name, answer := range map[string]*corev1.Pod{"changed": newer, "deleted, or no answer": nil} {
		h.core.fetch = func(string, string) *corev1.Pod { return answer }
		if diff := cmp.Diff([]lost(nil), h.wait(30*time.Second).lost()); diff != "" {
			t.Errorf("%s: lost wake-ups with a stale watch (-want +got):\n%s", name, diff)
		}
	}
	h.core.fetch = func(string, string) *corev1.Pod { return get[*corev1.Pod](h, "a") }
	if diff := cmp.Diff([]lost{{"shop/a", 0}}, h.wait(time.Second).lost()); diff != "" {
		t.Errorf("lost wake-ups when the API server agrees (-want +got):\n%s", diff)
	}
}
