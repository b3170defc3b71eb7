package audit

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// release removes a pod from its ReplicaSet like the controller, for a reason, and makes
// Deployment web its owner.
func (h *history) release(name, replicaSet, reason string) *history {
	h.annotate(name, replicaSet, reason)
	return edit(h, name, func(p *corev1.Pod) { p.OwnerReferences = owned("apps/v1", "Deployment", "web") })
}

// annotate sets the controller's label and annotation of a release.
func (h *history) annotate(name, replicaSet, reason string) *history {
	return edit(h, name, func(p *corev1.Pod) {
		p.Labels = map[string]string{"pod-template-hash": releasedHash}
		p.Annotations = map[string]string{releasedAnnotation: `{"replicaSet":"` + replicaSet + `","replicaSetUID":"ReplicaSet-` + replicaSet +
			`","hash":"1","reason":"` + reason + `","at":"2026-01-01T06:00:00Z"}`}
	})
}

// restore returns a released pod to its ReplicaSet.
func (h *history) restore(name, replicaSet string) *history {
	return edit(h, name, func(p *corev1.Pod) {
		p.Labels, p.Annotations = nil, nil
		p.OwnerReferences = owned("apps/v1", "ReplicaSet", replicaSet)
	})
}

// evict does the API server's part of an eviction.
func (h *history) evict(name string) *history {
	edit(h, name, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
		})
	})
	return h.terminate(name)
}

func (h *history) ready(names ...string) *history {
	for _, name := range names {
		edit(h, name, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		})
	}
	return h
}

func (h *history) vanish(name string) *history { return h.remove(get[*corev1.Pod](h, name)) }

func TestMovesOneAtATime(t *testing.T) {
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	// web has two replicas on spot, a and b, and c on on-demand.
	for name, test := range map[string]struct {
		play func(h *history)
		want []string // the pods of each pair
	}{
		"evicted one after the other": {
			play: func(h *history) {
				h.evict("a").vanish("a").pods("ReplicaSet", "web-1", "d").bind("od", "d").ready("d").evict("b")
			},
		},
		"evicted while the first pod terminates": {
			play: func(h *history) { h.evict("a").evict("b") },
			want: []string{"shop/a (evicted)", "shop/b (evicted)"},
		},
		"evicted before the first has a replacement": {
			play: func(h *history) { h.evict("a").vanish("a").evict("b") },
			want: []string{"shop/a (evicted)", "shop/b (evicted)"},
		},
		"evicted before the replacement is ready": {
			play: func(h *history) { h.evict("a").vanish("a").pods("ReplicaSet", "web-1", "d").bind("od", "d").evict("b") },
			want: []string{"shop/a (evicted)", "shop/b (evicted)"},
		},
		"two pods terminate at once": {
			play: func(h *history) {
				h.evict("a").vanish("a").pods("ReplicaSet", "web-1", "d").bind("od", "d").ready("d")
				edit(h, "b", func(p *corev1.Pod) {
					p.DeletionTimestamp = meta("b", "Pod", nil, nil).DeletionTimestamp
					p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
						Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
					})
				})
			},
		},
		"released one after the other": {
			play: func(h *history) {
				h.release("a", "web-1", "heal").pods("ReplicaSet", "web-1", "d").bind("od", "d").ready("d").
					evict("a").vanish("a").release("b", "web-1", "heal")
			},
		},
		"released while the first pod exists": {
			play: func(h *history) {
				h.release("a", "web-1", "heal").pods("ReplicaSet", "web-1", "d").bind("od", "d").ready("d").release("b", "web-1", "return-to-spot")
			},
			want: []string{"shop/a (released to heal)", "shop/b (released to return-to-spot)"},
		},
		"evicted while another is released": {
			play: func(h *history) { h.release("a", "web-1", "make-room").evict("b") },
			want: []string{"shop/a (released to make-room)", "shop/b (evicted)"},
		},
		"a restored pod ends its move": {
			play: func(h *history) { h.release("a", "web-1", "heal").restore("a", "web-1").release("b", "web-1", "heal") },
		},
		"a pod of another workload": {
			play: func(h *history) {
				h.deployment("api", 1, nil).pods("ReplicaSet", "api-1", "x").bind("od", "x").ready("x").evict("a").evict("x")
			},
		},
		"both revisions of a Deployment are one workload": {
			play: func(h *history) {
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "x").bind("od", "x").ready("x").evict("a").evict("x")
			},
			want: []string{"shop/a (evicted)", "shop/x (evicted)"},
		},
		"off a node with an interruption signal": {
			play: func(h *history) { edit(h, "s", taint("aws-node-termination-handler/spot-itn")).evict("a").evict("b") },
		},
		"off a node that the controller has marked": {
			play: func(h *history) { edit(h, "s", taint(ownTaint)).evict("a").evict("b") },
		},
		"off a node with a late signal": {
			play: func(h *history) { edit(h.evict("a").evict("b"), "s", taint("karpenter.sh/disrupted")) },
		},
		"heal during an interruption": {
			play: func(h *history) { h.release("a", "web-1", "interruption").release("b", "web-1", "heal") },
		},
		"scaled down in between": {
			play: func(h *history) { h.evict("a").vanish("a").scale("web", 2).evict("b") },
		},
		"terminated without an eviction": {
			play: func(h *history) { h.terminate("a").terminate("b") },
		},
		"pods of a Job": {
			play: func(h *history) {
				h.job("job").pods("Job", "job", "x", "y").bind("od", "x", "y").ready("x", "y").evict("x").vanish("x").evict("y")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, "")
			h.spot("s").onDemand("od").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").
				bind("s", "a", "b").bind("od", "c").ready("a", "b", "c").wait(window)
			test.play(h)
			h.wait(settle + tickEvery)
			var got []string
			for _, d := range findingsOf[DoubleMove](h.core) {
				t.Log(d)
				got = append(got, d.First, d.Second)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("moves at once (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForgottenReleases(t *testing.T) {
	for name, test := range map[string]struct {
		// reason is the reason of the release; "" is interruption.
		reason string
		play   func(h *history)
		// wait is the time between the release and the check.
		wait time.Duration
		want []string
		// left are the released pods that exist at the end.
		left []string
	}{
		"waits for its replacement":            {wait: forgetAfter, left: []string{"shop/a"}},
		"stays too long":                       {wait: forgetAfter + time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
		"waits for a drain":                    {reason: "drain", wait: forgetDrainedAfter, left: []string{"shop/a"}},
		"stays on a drained node":              {reason: "drain", wait: forgetDrainedAfter + time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
		"waits for a new node":                 {play: func(h *history) { h.core.gated = true }, wait: forgetGatedAfter, left: []string{"shop/a"}},
		"stays too long for a new node":        {play: func(h *history) { h.core.gated = true }, wait: forgetGatedAfter + time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
		"is evicted":                           {play: func(h *history) { h.vanish("a") }, wait: 2 * forgetAfter},
		"is restored":                          {play: func(h *history) { h.restore("a", "web-1") }, wait: 2 * forgetAfter},
		"restored, with its annotation":        {play: func(h *history) { h.restore("a", "web-1").annotate("a", "web-1", "heal") }, wait: forgetAfter + time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
		"its annotation does not parse":        {play: func(h *history) { edit(h, "a", func(p *corev1.Pod) { p.Annotations[releasedAnnotation] = "{" }) }, wait: orphanLimit + 2*time.Second, left: []string{"shop/a"}},
		"does not parse, and is forgotten":     {play: func(h *history) { edit(h, "a", func(p *corev1.Pod) { p.Annotations[releasedAnnotation] = "{" }) }, wait: forgetAfter + time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
		"its workload was deleted":             {play: func(h *history) { h.drop("web") }, wait: orphanLimit + 2*time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
		"its workload was deleted now":         {play: func(h *history) { h.drop("web") }, wait: orphanLimit - time.Second, left: []string{"shop/a"}},
		"its workload is scaled to zero":       {play: func(h *history) { h.scale("web", 0) }, wait: orphanLimit + 2*time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
		"its workload was scaled to zero once": {play: func(h *history) { h.scale("web", 0).wait(orphanLimit/2).scale("web", 1) }, wait: orphanLimit, left: []string{"shop/a"}},
		"without its annotation":               {play: func(h *history) { edit(h, "a", func(p *corev1.Pod) { p.Annotations = nil }) }, wait: forgetAfter + time.Second, want: []string{"shop/a"}, left: []string{"shop/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.reason == "" {
				test.reason = "interruption"
			}
			h := newHistory(t, "")
			h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").bind("s", "a").release("a", "web-1", test.reason)
			if test.play != nil {
				test.play(h)
			}
			h.wait(test.wait)
			var got []string
			for _, f := range findingsOf[Forgotten](h.core) {
				t.Log(f)
				got = append(got, f.Pod)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("forgotten (-want +got):\n%s", diff)
			}
			if left := h.core.releasedPods(); !slices.Equal(left, test.left) {
				t.Errorf("released pods %q, want %q", left, test.left)
			}
		})
	}
}

// drop deletes a Deployment and its ReplicaSet.
func (h *history) drop(deployment string) *history {
	return h.remove(get[*appsv1.Deployment](h, deployment)).remove(get[*appsv1.ReplicaSet](h, deployment+"-1"))
}
