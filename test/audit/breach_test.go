package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestBreaches contains a history for each kind of breach, and beside it the most similar history
// without a breach.
func TestBreaches(t *testing.T) {
	over := []BreachKind{OverBudget}
	for name, test := range map[string]struct {
		args string
		play func(h *history)
		want []BreachKind
	}{
		"singleton on spot": {
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").bind("s", "a")
			},
			want: over,
		},
		"singleton on on-demand": {
			play: func(h *history) {
				h.onDemand("d").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").bind("d", "a")
			},
		},
		"all three replicas on spot": {
			play: func(h *history) {
				h.spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b", "c")
			},
			want: over,
		},
		"two of three on spot": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b").bind("d", "c")
			},
		},
		"a terminating pod does not count": {
			play: func(h *history) {
				h.spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b").terminate("a").bind("s", "c")
			},
		},
		"pod that terminates after the binding counts": {
			play: func(h *history) {
				h.spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b", "c").terminate("a")
			},
			want: over,
		},
		"a finished pod does not count": {
			play: func(h *history) {
				h.spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s", "a", "b")
				edit(h, "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }).bind("s", "c")
			},
		},
		"pods of a deleted node do not count": {
			play: func(h *history) {
				h.spot("s", "gone").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("gone", "a").bind("s", "b")
				h.remove(get[*corev1.Node](h, "gone")).bind("s", "c")
			},
		},
		"pods of a node deleted after the binding count": {
			play: func(h *history) {
				h.spot("s", "gone").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("gone", "a").bind("s", "b", "c")
				h.remove(get[*corev1.Node](h, "gone"))
			},
			want: over,
		},
		"node deleted before the binding, observed after it": {
			play: func(h *history) {
				h.spot("s", "gone").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("gone", "a").bind("s", "b")
				late := h.store(get[*corev1.Node](h, "gone"))
				h.bind("s", "c").wait(time.Second).deliver(deleted, late)
			},
		},
		"scaled down less than 2 s before": {
			play: func(h *history) {
				h.spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a").wait(5*time.Second).
					scale("web", 2).wait(1900*time.Millisecond).bind("s", "b")
			},
		},
		"scaled down more than 2 s before": {
			play: func(h *history) {
				h.spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a").wait(5*time.Second).
					scale("web", 2).wait(2100*time.Millisecond).bind("s", "b")
			},
			want: over,
		},
		"scaled up before, observed after": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a").wait(5 * time.Second)
				web := get[*appsv1.Deployment](h, "web")
				web.Spec.Replicas = ptr.To[int32](3)
				late := h.store(web)
				h.bind("s", "b").wait(time.Second).deliver(changed, late)
			},
		},
		"scaled up after": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a", "b").scale("web", 3)
			},
			want: over,
		},
		"scaled down less than 2 s before a binding that is observed 4 s late": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a").wait(5*time.Second).scale("web", 1).wait(time.Second)
				a := get[*corev1.Pod](h, "a")
				bindTo(a, "s")
				a.Status.Conditions[0].LastTransitionTime = metav1.NewTime(h.now)
				late := h.store(a)
				h.wait(4*time.Second).deliver(changed, late)
			},
		},
		"scaled down more than 2 s before a binding that is observed 4 s late": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a").wait(5*time.Second).scale("web", 1).wait(3 * time.Second)
				a := get[*corev1.Pod](h, "a")
				bindTo(a, "s")
				a.Status.Conditions[0].LastTransitionTime = metav1.NewTime(h.now)
				late := h.store(a)
				h.wait(4*time.Second).deliver(changed, late)
			},
			want: over,
		},
		"scaled down between the binding and its late observation": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a").wait(5 * time.Second)
				a := get[*corev1.Pod](h, "a")
				bindTo(a, "s")
				late := h.store(a)
				h.scale("web", 1).wait(4*time.Second).deliver(changed, late)
			},
		},
		"policy was laxer within 2 s": {
			args: "minOnDemand: 0",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").wait(5 * time.Second)
				h.core.setPolicy(DefaultPolicy(), h.now)
				h.wait(time.Second).bind("s", "a")
			},
		},
		"policy was laxer long ago": {
			args: "minOnDemand: 0",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").wait(5 * time.Second)
				h.core.setPolicy(DefaultPolicy(), h.now)
				h.wait(3*time.Second).bind("s", "a")
			},
			want: over,
		},
		"the old revision does not satisfy the floor of the new revision": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "old").bind("d", "old")
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "new").bind("s", "new")
			},
			want: over,
		},
		"the old revision does not use the budget of the new revision": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "old").bind("s", "old")
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "new").bind("s", "new")
			},
		},
		"rollout relief after 30 s": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "old").bind("d", "old")
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "new").refuse("new").wait(30*time.Second).bind("s", "new")
			},
		},
		"rollout relief too early": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "old").bind("d", "old")
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "new").refuse("new").wait(28900*time.Millisecond).bind("s", "new")
			},
			want: over,
		},
		"rollout relief after another time": {
			args: "rolloutRelief: 5s",
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "old").bind("d", "old")
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "new").refuse("new").wait(5*time.Second).bind("s", "new")
			},
		},
		"rollout relief of an Argo Rollout after 30 s": {
			play: func(h *history) {
				h.spot("s").onDemand("d").argoRevision("web", 1, 1).pods("ReplicaSet", "web-1", "old").bind("d", "old")
				h.argoRevision("web", 2, 1).pods("ReplicaSet", "web-2", "new").refuse("new").wait(30*time.Second).bind("s", "new")
			},
		},
		"rollout relief although the old revision is on spot": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "old").bind("s", "old")
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "n1", "n2").bind("s", "n1").refuse("n2").wait(31*time.Second).bind("s", "n2")
			},
			want: over,
		},
		"relief although only its own revision uses on-demand": {
			play: func(h *history) {
				h.spot("s").onDemand("d").deployment("web", 3, minOnDemand("2")).pods("ReplicaSet", "web-1", "a", "b", "c").
					bind("d", "a").bind("s", "b").refuse("c").wait(31*time.Second).bind("s", "c")
			},
			want: over,
		},
		"fallback, found unschedulable twice": {
			args: "fallbackAfter: 5s",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").refuse("a").wait(3*time.Second).
					refuse("a").wait(2*time.Second).bind("s", "a")
			},
		},
		"fallback, the first refusal observed 3 s late": {
			args: "fallbackAfter: 5s",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				a := get[*corev1.Pod](h, "a")
				setScheduled(a, corev1.ConditionFalse, corev1.PodReasonUnschedulable)
				a.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: ptr.To(metav1.NewTime(h.now))}}
				late := h.store(a)
				h.wait(3*time.Second).deliver(changed, late)
				h.wait(2*time.Second).bind("s", "a")
			},
		},
		"fallback in time, except for the delay of a watch": {
			args: "fallbackAfter: 5s",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").refuse("a").wait(4100*time.Millisecond).bind("s", "a")
			},
		},
		"fallback of a pod that was gated and found unschedulable too recently": {
			args: "fallbackAfter: 5s",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) {
					setScheduled(p, corev1.ConditionFalse, corev1.PodReasonSchedulingGated)
					p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(h.now)
				})
				h.wait(20*time.Second).refuse("a").wait(3900*time.Millisecond).bind("s", "a")
			},
			want: over,
		},
		"ScheduleAnyway": {
			args: "whenUnsatisfiable: ScheduleAnyway",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").bind("s", "a")
			},
		},
		"exempt pods count, but are no breach": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b", "c")
				for _, name := range []string{"a", "b"} {
					edit(h, name, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{ownLabel: "spot"} })
				}
				h.bind("s", "a", "b").wait(5*time.Second).scale("web", 3).wait(5*time.Second).bind("s", "c")
			},
			want: over,
		},
		"a pod whose host is a spot node, beside on-demand": {
			play: func(h *history) {
				h.spot("s").onDemand("o").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }).bind("s", "a")
			},
		},
		"a pod that a start-up taint keeps off on-demand": {
			play: func(h *history) {
				starts := func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}
				}
				h.spot("s").node("o", map[string]string{ownLabel: "on-demand"}, starts)
				h.deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a").bind("s", "a")
			},
			want: over,
		},
		"a pod whose host is a spot node, without on-demand": {
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }).bind("s", "a")
			},
			want: over,
		},
		"a pod that admits only spot, exemptions ignored": {
			args: "exemptions: Ignore",
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{ownLabel: "spot"} }).wait(5*time.Second).bind("s", "a")
			},
			want: over,
		},
		"a pod that admits only spot because the webhook assigned it to spot": {
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) {
					p.Spec.NodeSelector, p.Annotations = map[string]string{ownLabel: "spot"}, map[string]string{prefix + "assigned": "spot: x"}
				}).wait(5*time.Second).bind("s", "a")
			},
			want: over,
		},
		"granted": {
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) {
					p.Annotations = map[string]string{prefix + "granted": "fallback " + string(p.UID)}
				}).wait(5*time.Second).bind("s", "a")
			},
		},
		"a copy of a granted pod": {
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Annotations = map[string]string{prefix + "granted": "fallback x"} }).wait(5*time.Second).bind("s", "a")
			},
			want: over,
		},
		"granted with an unknown value": {
			play: func(h *history) {
				h.spot("s").deployment("web", 1, nil).pods("ReplicaSet", "web-1", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Annotations = map[string]string{prefix + "granted": "any " + string(p.UID)} }).wait(5*time.Second).bind("s", "a")
			},
			want: over,
		},
		"overflow Never: one more than the floor on on-demand": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("d", "a").wait(5*time.Second).bind("d", "b")
			},
			want: []BreachKind{Overflow},
		},
		"overflow Never: a hard spread": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("d", "a").wait(5 * time.Second)
				edit(h, "b", func(p *corev1.Pod) {
					p.Annotations = map[string]string{prefix + "assigned": "any"} // otherwise this is no new version: constraints are immutable
					p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
				}).wait(5*time.Second).bind("d", "b")
			},
		},
		"overflow Never: both at once": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("d", "a", "b")
			},
			want: []BreachKind{Overflow},
		},
		"overflow Never: the floor": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").spot("s").deployment("web", 3, minOnDemand("2")).pods("ReplicaSet", "web-1", "a", "b", "c").bind("d", "a", "b").bind("s", "c")
			},
		},
		"overflow Never: replacement of a terminating pod": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("d", "a").terminate("a").bind("d", "b")
			},
		},
		"overflow Never: of an older revision": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "old").bind("d", "old")
				h.revisionOf("web", 2, 1).pods("ReplicaSet", "web-2", "new").bind("d", "new")
			},
		},
		"overflow Never: no floor": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 2, minOnDemand("0")).pods("ReplicaSet", "web-1", "a").bind("d", "a")
			},
			want: []BreachKind{Overflow},
		},
		"overflow Never: ordinals": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").statefulSet("db", 3, 5, nil).pods("StatefulSet", "db", "db-5", "db-6").bind("d", "db-5", "db-6")
			},
			want: []BreachKind{Overflow},
		},
		"overflow Never: a pod that admits only on-demand": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("d", "a")
				edit(h, "b", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{ownLabel: "on-demand"} }).bind("d", "b")
			},
		},
		"overflow Never: a node that counts as spot": {
			args: "overflow: Never",
			play: func(h *history) {
				h.onDemand("d").spot("s").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a", "b").bind("d", "a").bind("s", "b")
			},
		},
		"a pod of another profile": {
			play: func(h *history) {
				h.spot("s").pods("", "", "a")
				edit(h, "a", func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }).bind("s", "a")
			},
		},
		"a bare pod is a singleton": {
			play: func(h *history) { h.spot("s").pods("", "", "a").bind("s", "a") },
			want: over,
		},
		"a pod created on its node": {
			play: func(h *history) {
				p := &corev1.Pod{ObjectMeta: meta("a", "Pod", nil, nil), Spec: corev1.PodSpec{SchedulerName: SchedulerName, NodeName: "s"}}
				h.spot("s").write(p)
			},
		},
		"a DaemonSet's pod": {
			play: func(h *history) { h.spot("s").pods("DaemonSet", "agent", "a").bind("s", "a") },
		},
		"StatefulSet: an ordinal below the floor": {
			play: func(h *history) {
				h.spot("s").statefulSet("db", 5, 3, minOnDemand("2")).pods("StatefulSet", "db", "db-4").bind("s", "db-4")
			},
			want: []BreachKind{OrdinalOnSpot},
		},
		"StatefulSet: the ordinals above the floor": {
			play: func(h *history) {
				h.spot("s").statefulSet("db", 5, 3, minOnDemand("2")).pods("StatefulSet", "db", "db-5", "db-6", "db-7").bind("s", "db-5", "db-6", "db-7")
			},
		},
		"workers of a group of the floor": {
			play: func(h *history) {
				h.spot("s").group("lws", 2, 0).pods("StatefulSet", "lws-0", "lws-0-1", "lws-0-2").bind("s", "lws-0-1", "lws-0-2")
			},
			want: []BreachKind{OrdinalOnSpot, OrdinalOnSpot},
		},
		"workers of a group beyond the floor": {
			play: func(h *history) {
				h.spot("s").group("lws", 2, 1).pods("StatefulSet", "lws-1", "lws-1-1", "lws-1-2").bind("s", "lws-1-1", "lws-1-2")
			},
		},
		"copies of workloads in a vcluster": {
			play: func(h *history) {
				h.spot("s").onDemand("d").pods("Service", "vc", "web-1", "web-2", "db")
				for _, name := range []string{"web-1", "web-2", "db"} {
					edit(h, name, func(p *corev1.Pod) {
						p.Labels = map[string]string{"vcluster.loft.sh/namespace": "a", "app": strings.Split(name, "-")[0]}
					})
				}
				h.bind("d", "web-1").bind("s", "web-2", "db")
			},
			want: over,
		},
		"StatefulSet: floor raised within 2 s": {
			play: func(h *history) {
				h.spot("s").statefulSet("db", 5, 0, minOnDemand("1")).pods("StatefulSet", "db", "db-1").wait(5 * time.Second)
				edit(h, "db", func(s *appsv1.StatefulSet) { s.Annotations = minOnDemand("2") }).wait(time.Second).bind("s", "db-1")
			},
		},
		"Job: all on spot": {
			play: func(h *history) { h.spot("s").job("batch").pods("Job", "batch", "a", "b").bind("s", "a", "b") },
		},
		"Job: one lost pod fails it": {
			play: func(h *history) {
				h.spot("s").job("batch", func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](0) }).pods("Job", "batch", "a").bind("s", "a")
			},
			want: over,
		},
		"Job: pods beyond the remaining completions": {
			play: func(h *history) {
				h.spot("s").job("batch", func(j *batchv1.Job) { j.Spec.Completions, j.Status.Succeeded = ptr.To[int32](5), 4 }).
					pods("Job", "batch", "a", "b").bind("s", "a", "b")
			},
			want: over,
		},
		"ReplicationController: one too many": {
			play: func(h *history) {
				rc := &corev1.ReplicationController{ObjectMeta: meta("old", "ReplicationController", nil, nil)}
				rc.Spec.Replicas = ptr.To[int32](2)
				h.spot("s").write(rc).pods("ReplicationController", "old", "a", "b").bind("s", "a", "b")
			},
			want: over,
		},
		"another kind: desired is the live pods": {
			play: func(h *history) { h.spot("s").pods("CloneSet", "web", "a", "b", "c").bind("s", "a", "b") },
		},
		"another kind: one too many": {
			play: func(h *history) { h.spot("s").pods("CloneSet", "web", "a", "b", "c").bind("s", "a", "b", "c") },
			want: over,
		},
		"another kind: a pod that ended long ago is not desired": {
			play: func(h *history) {
				h.spot("s").pods("CloneSet", "web", "a", "b", "c").terminate("c").wait(5*time.Second).bind("s", "a", "b")
			},
			want: over,
		},
		"ReplicaSet of an unknown kind": {
			play: func(h *history) {
				m := meta("web", "ReplicaSet", owned("argoproj.io/v1alpha1", "Rollout", "web"), nil)
				h.spot("s").write(&appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](2)}}).
					pods("ReplicaSet", "web", "a").bind("s", "a")
			},
		},
		"owner unknown": {
			play: func(h *history) { h.spot("s").pods("ReplicaSet", "web-1", "a").bind("s", "a") },
			want: []BreachKind{UnknownOwner},
		},
		"owner existed within 2 s": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a").wait(5*time.Second).
					remove(get[*appsv1.ReplicaSet](h, "web-1")).wait(time.Second).bind("s", "a")
			},
		},
		"maxPerPool: third of a pool": {
			args: "maxPerPool: 2",
			play: func(h *history) {
				h.pool("s1", "m5").pool("s2", "m5").deployment("web", 9, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s1", "a", "b").bind("s2", "c")
			},
			want: []BreachKind{OverPoolCap},
		},
		"maxPerPool: third in another pool": {
			args: "maxPerPool: 2",
			play: func(h *history) {
				h.pool("s1", "m5").pool("s2", "c5").deployment("web", 9, nil).pods("ReplicaSet", "web-1", "a", "b", "c").bind("s1", "a", "b").bind("s2", "c")
			},
		},
		"maxPerPool: a preference with ScheduleAnyway": {
			args: "{maxPerPool: 10%, whenUnsatisfiable: ScheduleAnyway}",
			play: func(h *history) {
				h.pool("s", "m5").deployment("web", 9, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a", "b")
			},
		},
		"node with a signal for more than 2 s": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a").wait(5 * time.Second)
				edit(h, "d", reclaimed).wait(2100*time.Millisecond).bind("d", "a")
			},
			want: []BreachKind{SignalledNode},
		},
		"node with a signal for less than 2 s": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a").wait(5 * time.Second)
				edit(h, "d", reclaimed).wait(1900*time.Millisecond).bind("d", "a")
			},
		},
		"node born with a signal less than 2 s ago": {
			play: func(h *history) {
				h.pods("", "", "a").wait(5*time.Second).node("d", nil, reclaimed).wait(time.Second).bind("d", "a")
			},
		},
		"signal cleared within 2 s": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a").wait(5 * time.Second)
				edit(h, "d", reclaimed).wait(10 * time.Second)
				edit(h, "d", func(n *corev1.Node) { n.Spec.Taints = nil }).bind("d", "a")
			},
		},
		"spot node not ready for 40 s and more": {
			args: "minOnDemand: 0",
			play: func(h *history) {
				h.node("s", map[string]string{ownLabel: "spot"}, func(n *corev1.Node) {
					n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(h.now)}}
				})
				h.pods("", "", "a", "b").wait(40*time.Second).bind("s", "a").wait(3*time.Second).bind("s", "b")
			},
			want: []BreachKind{SignalledNode},
		},
		"node became spot within 2 s": {
			play: func(h *history) {
				h.onDemand("n").pods("", "", "a").wait(5 * time.Second)
				edit(h, "n", func(n *corev1.Node) { n.Labels[ownLabel] = "spot" }).wait(time.Second).bind("n", "a")
			},
		},
		"floor pod on a node that may still get its label": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a").wait(5 * time.Second)
				h.node("n", nil, func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(h.now) }).wait(20*time.Second).bind("n", "a")
			},
			want: []BreachKind{YoungNode},
		},
		"floor pod on a node that did not get a label in time": {
			play: func(h *history) {
				h.onDemand("d").pods("", "", "a").wait(5 * time.Second)
				h.node("n", nil, func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(h.now) }).wait(30*time.Second).bind("n", "a")
			},
		},
		"bound to another node": {
			play: func(h *history) { h.onDemand("d", "e").pods("", "", "a").bind("d", "a").bind("e", "a") },
			want: []BreachKind{Rebound},
		},
		"a released pod counts for no workload": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a")
				edit(h, "a", func(p *corev1.Pod) { p.OwnerReferences = nil }).bind("s", "b")
			},
		},
		"a released pod returned after the binding": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a").wait(5 * time.Second)
				h.release("a", "web-1", "interruption").wait(5*time.Second).bind("s", "b").wait(time.Second).restore("a", "web-1")
			},
		},
		"a released pod returned less than 2 s before": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a").wait(5 * time.Second)
				h.release("a", "web-1", "interruption").wait(5*time.Second).restore("a", "web-1").wait(1900*time.Millisecond).bind("s", "b")
			},
		},
		"a released pod returned more than 2 s before": {
			play: func(h *history) {
				h.spot("s").deployment("web", 2, nil).pods("ReplicaSet", "web-1", "a", "b").bind("s", "a").wait(5 * time.Second)
				h.release("a", "web-1", "interruption").wait(5*time.Second).restore("a", "web-1").wait(2100*time.Millisecond).bind("s", "b")
			},
			want: over,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, test.args)
			test.play(h)
			if diff := cmp.Diff(test.want, h.kinds()); diff != "" {
				t.Errorf("breaches (-want +got):\n%s", diff)
			}
		})
	}
}

func reclaimed(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "spot-aware-scheduler.io/interruption", Value: "reclaim", Effect: corev1.TaintEffectNoSchedule}}
}

func TestPodsBoundBeforeAreNotReported(t *testing.T) {
	h := newHistory(t, "")
	h.spot("s").deployment("web", 3, nil)
	for _, name := range []string{"a", "b", "c"} {
		p := &corev1.Pod{ObjectMeta: meta(name, "Pod", owned("apps/v1", "ReplicaSet", "web-1"), nil),
			Spec: corev1.PodSpec{SchedulerName: SchedulerName, NodeName: "s"}}
		setScheduled(p, corev1.ConditionTrue, "")
		h.deliver(listed, h.store(p))
	}
	if got := h.kinds(); got != nil {
		t.Errorf("breaches of pods bound before the audit: %v", got)
	}
	h.pods("ReplicaSet", "web-1", "d").bind("s", "d")
	if diff := cmp.Diff([]BreachKind{OverBudget}, h.kinds()); diff != "" {
		t.Errorf("breaches (-want +got):\n%s", diff)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	h := newHistory(t, "")
	h.spot("s").onDemand("d").deployment("web", 3, nil).pods("ReplicaSet", "web-1", "a").bind("s", "a")
	for i := range int32(100) {
		h.scale("web", 3+i%2).wait(time.Second)
	}
	h.remove(get[*corev1.Pod](h, "a")).wait(memory + time.Second)
	if kept := len(h.core.owners["Deployment-web"].facts); kept > 13 {
		t.Errorf("the timeline has %d values of an owner, want only the values of %s", kept, memory)
	}
	if len(h.core.pods) != 0 || len(h.core.revisions) != 0 || len(h.core.bindings) != 0 {
		t.Errorf("%d pods, %d revisions and %d bindings left of deleted objects", len(h.core.pods), len(h.core.revisions), len(h.core.bindings))
	}
}
