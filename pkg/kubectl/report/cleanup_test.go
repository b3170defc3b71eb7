package report_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

const (
	restoredPod = `{"annotations":{"` + spot.ReleasedAnnotation + `":null},"labels":{"pod-template-hash":"r"},"ownerReferences":[{"apiVersion":"apps/v1",` +
		`"kind":"ReplicaSet","name":"web-r","uid":"web-r-uid","controller":true}]}`
	ownCost    = `{"annotations":{"` + spot.DeletionCostAnnotation + `":null}}`
	bothCosts  = `{"annotations":{"controller.kubernetes.io/pod-deletion-cost":null,"` + spot.DeletionCostAnnotation + `":null}}`
	noOtherOne = `{"annotations":{"` + spot.InterruptionDeadlineAnnotation + `":null,"` + spot.InterruptionStateAnnotation + `":null}}`
)

// released returns a pod of Deployment web that the controller released from ReplicaSet web-r.
func released(edit func(*v1.Pod)) *v1.Pod {
	pod := clustertest.Run("n", clustertest.NewPod("web-0", clustertest.OwnedBy("ReplicaSet", "web-r")))
	pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "r"
	owner := pod.OwnerReferences[0]
	clustertest.Release(pod)
	owner.Controller = nil
	pod.OwnerReferences = []metav1.OwnerReference{owner, clustertest.OwnedBy("Deployment", "web")}
	if edit != nil {
		edit(pod)
	}
	return pod
}

// pod returns a running pod with these annotations.
func annotatedPod(pairs ...string) *v1.Pod {
	pod := clustertest.Run("n", clustertest.NewPod("web-0", clustertest.OwnedBy("ReplicaSet", "web-r")))
	pod.Annotations = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		pod.Annotations[pairs[i]] = pairs[i+1]
	}
	return pod
}

// gatedPod returns a pod with these gates.
func gatedPod(gates ...string) *v1.Pod {
	pod := clustertest.NewPod("web-0")
	for _, gate := range gates {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, v1.PodSchedulingGate{Name: gate})
	}
	return pod
}

func budget(name string, labels map[string]string, owners ...metav1.OwnerReference) *policyv1.PodDisruptionBudget {
	b := clustertest.NewBudget("web", 1)
	b.Name, b.Labels, b.OwnerReferences = name, labels, owners
	return b
}

// markedNode returns a node with this taint and annotations.
func markedNode(taint, state, deadline string) *v1.Node {
	node := clustertest.NewNode("n", "spot", "m/a")
	node.Spec.Taints = []v1.Taint{{Key: "example.com/theirs", Effect: v1.TaintEffectNoExecute}}
	if taint != "" {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: spot.InterruptionTaint, Value: taint, Effect: v1.TaintEffectNoSchedule})
	}
	for key, value := range map[string]string{spot.InterruptionStateAnnotation: state, spot.InterruptionDeadlineAnnotation: deadline} {
		if value != "" {
			node.Annotations[key] = value
		}
	}
	return node
}

// TestCleanup: everything that a controller wrote is removed, and nothing that another client
// wrote. An object that a tenant forged affects only itself.
func TestCleanup(t *testing.T) {
	const deadline, others = "2026-03-01T12:00:00Z", "example.com/gate"
	const state = `{"class":"reclaim","taint":"spot-itn","deadline":"` + deadline + `","starts":{"x":"2026-03-01T12:00:00Z"}}`
	deployment := clustertest.NewDeployment("web", 2)
	rs, orphaned := deployment[1], deployment[0].(*appsv1.Deployment).DeepCopy()
	orphaned.Status.AvailableReplicas = 2
	noReason := func(p *v1.Pod) { p.Annotations[spot.ReleasedAnnotation] = "{" }
	// want has the changes: "delete" or a patch, and left the reasons of marks that stay.
	for name, test := range map[string]struct {
		objects    []runtime.Object
		want, left string
	}{
		"gated":                {objects: []runtime.Object{gatedPod(spot.CapacityGate)}, want: `{"annotations":{}} spec {"schedulingGates":[]}`},
		"gated by others too":  {objects: []runtime.Object{gatedPod(others, spot.CapacityGate)}, want: `{"annotations":{}} spec {"schedulingGates":[{"name":"` + others + `"}]}`},
		"gated only by others": {objects: []runtime.Object{gatedPod(others)}},
		"gated, terminating":   {objects: []runtime.Object{clustertest.Terminate(gatedPod(spot.CapacityGate))}},
		"informational annotations": {objects: []runtime.Object{annotatedPod(spot.AssignedAnnotation, "spot: x", spot.GrantedAnnotation, "fallback",
			spot.WaitingSinceAnnotation, deadline, spot.MinOnDemandAnnotation, "2")}},

		"released": {objects: []runtime.Object{released(nil), rs}, want: restoredPod},
		"released, with a cost": {objects: []runtime.Object{released(func(p *v1.Pod) {
			p.Annotations[spot.DeletionCostAnnotation], p.Annotations[v1.PodDeletionCost] = "2000", "2000"
		}), rs}, want: strings.Replace(restoredPod, `{"annotations":{`, `{"annotations":{"controller.kubernetes.io/pod-deletion-cost":null,"`+spot.DeletionCostAnnotation+`":null,`, 1)},
		"released, ReplicaSet gone":        {objects: []runtime.Object{released(nil), orphaned}, want: "delete"},
		"released, replicas missing":       {objects: []runtime.Object{released(nil), deployment[0]}, left: "it is released: its ReplicaSet is gone, and its Deployment is gone too or lacks available replicas"},
		"released, a budget refuses":       {objects: []runtime.Object{released(nil), orphaned, clustertest.NewBudget("web", 2)}, left: "it is released: its ReplicaSet is gone, and a PodDisruptionBudget allows no disruption"},
		"released, nothing owns it":        {objects: []runtime.Object{released(nil)}, left: "it is released: its ReplicaSet is gone, and its Deployment is gone too or lacks available replicas"},
		"released, without a controller":   {objects: []runtime.Object{released(func(p *v1.Pod) { p.OwnerReferences = nil })}, left: "it is released: its ReplicaSet is gone, and no Deployment controls it"},
		"released, forged":                 {objects: []runtime.Object{released(noReason), rs}, left: "it is released: annotation spot-aware-scheduler.io/released does not parse: unexpected end of JSON input"},
		"released, of another ReplicaSet":  {objects: []runtime.Object{released(func(p *v1.Pod) { p.Labels["app"] = "other" }), rs}, left: "it is released: its ReplicaSet is being deleted, or does not select it"},
		"restored, but not adopted":        {objects: []runtime.Object{released(func(p *v1.Pod) { p.OwnerReferences, p.Labels["pod-template-hash"] = nil, "r" }), rs}, left: "it is released: its ReplicaSet has not adopted it yet"},
		"the label without the annotation": {objects: []runtime.Object{released(func(p *v1.Pod) { p.OwnerReferences, p.Annotations = nil, nil })}, left: "it is released: it has the label of a release without the annotation"},

		"deletion cost":                     {objects: []runtime.Object{annotatedPod(spot.DeletionCostAnnotation, "1000", v1.PodDeletionCost, "1000")}, want: bothCosts},
		"deletion cost changed by the user": {objects: []runtime.Object{annotatedPod(spot.DeletionCostAnnotation, "1000", v1.PodDeletionCost, "-5")}, want: ownCost},
		"deletion cost of the user":         {objects: []runtime.Object{annotatedPod(v1.PodDeletionCost, "1000")}},

		"budget":                               {objects: []runtime.Object{budget("web-protected", map[string]string{spot.ProtectLabel: "true"}, clustertest.OwnedBy("Deployment", "web"))}, want: "delete"},
		"budget without the label":             {objects: []runtime.Object{budget("web-protected", nil, clustertest.OwnedBy("Deployment", "web"))}, want: "delete"},
		"budget with the label, a user's name": {objects: []runtime.Object{budget("users", map[string]string{spot.ProtectLabel: "true"})}, want: "delete"},
		"budget of a user with our name":       {objects: []runtime.Object{budget("web-protected", nil)}},
		"budget of a user":                     {objects: []runtime.Object{budget("web", map[string]string{spot.ProtectLabel: "false"}, clustertest.OwnedBy("Deployment", "web"))}},

		"node": {objects: []runtime.Object{markedNode("spot-itn", state, deadline)}, want: noOtherOne + " taints [example.com/theirs:NoExecute]"},
		"node, another deadline": {objects: []runtime.Object{markedNode("spot-itn", state, "2026-03-01T12:00:01Z")},
			want: `{"annotations":{"` + spot.InterruptionStateAnnotation + `":null}} taints [example.com/theirs:NoExecute]`},
		"node, another taint": {objects: []runtime.Object{markedNode("drained-by-me", state, deadline)}, want: noOtherOne,
			left: "another client set taint spot-aware-scheduler.io/interruption=drained-by-me:NoSchedule"},
		"node, state does not parse": {objects: []runtime.Object{markedNode("spot-itn", `{"taint":`, deadline)},
			want: `{"annotations":{"` + spot.InterruptionStateAnnotation + `":null}}`,
			left: "another client set taint spot-aware-scheduler.io/interruption=spot-itn:NoSchedule"},
		"node, marked by another client": {objects: []runtime.Object{markedNode("mine", "", deadline)},
			left: "another client set taint spot-aware-scheduler.io/interruption=mine:NoSchedule"},
		"node, its state removed, signal present": {objects: []runtime.Object{func() *v1.Node {
			node := markedNode("spot-itn", "", "")
			node.Spec.Taints[0] = v1.Taint{Key: "aws-node-termination-handler/spot-itn", Effect: v1.TaintEffectNoSchedule}
			return node
		}()}, want: `{"annotations":{}} taints [aws-node-termination-handler/spot-itn:NoSchedule]`},
		"node, interrupted, not marked": {objects: []runtime.Object{clustertest.NewNode("n", "spot", "m/a", "taint=aws-node-termination-handler/spot-itn")}},
		"node, drained, and a pod of another scheduler": {objects: []runtime.Object{
			clustertest.NewNode("n", "spot", "m/a", "cordoned"), clustertest.Run("n", clustertest.NewPod("web-0"))}},
	} {
		t.Run(name, func(t *testing.T) {
			got := newCleanup(t, "", test.objects...)
			var want, left []string
			if test.want != "" {
				want = []string{test.want}
			}
			if test.left != "" {
				left = []string{test.left}
			}
			var reasons []string
			for _, mark := range got.Left {
				reasons = append(reasons, mark.Reason)
			}
			clustertest.Equal(t, "changes", want, changesOf(t, got))
			clustertest.Equal(t, "marks that stay", left, reasons)
		})
	}
}

func newCleanup(t *testing.T, namespace string, objects ...runtime.Object) *report.Cleanup {
	t.Helper()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	clustertest.Fill(t, factory, objects...)
	return report.NewCleanup(factory, namespace, providers.Signals(), clustertest.Profile, clustertest.Now)
}

// changesOf returns the requests that a cleanup sends.
func changesOf(t *testing.T, c *report.Cleanup) (changes []string) {
	t.Helper()
	encode := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, item := range c.Items {
		text := "delete"
		switch {
		case item.Mark != nil:
			text = encode(map[string]any{"annotations": item.Mark.Annotations})
			if taints := item.Mark.Taints; taints != nil {
				text += " taints ["
				for _, taint := range taints {
					text += taint.ToString()
				}
				text += "]"
			}
		case item.Patch != nil:
			if text = encode(item.Patch); item.Patch.Spec != nil {
				text += " spec " + encode(item.Patch.Spec)
			}
		}
		if (item.Pod != nil) == (item.Mark != nil || item.UID != "") {
			t.Errorf("%s: want a pod, a mark or a UID", item.Ref)
		}
		changes = append(changes, text)
	}
	return changes
}

// TestCleanupOrder: the answer is in the order of the names, describes each change, and is limited
// to a namespace. Pods that no scheduler has placed are waiting.
func TestCleanupOrder(t *testing.T) {
	elsewhere := gatedPod(spot.CapacityGate)
	elsewhere.Namespace = "bank"
	other := clustertest.NewPod("other")
	other.Spec.SchedulerName = v1.DefaultSchedulerName
	objects := []runtime.Object{
		markedNode("spot-itn", `{"taint":"spot-itn","deadline":"d"}`, "d"), released(func(p *v1.Pod) { p.Name = "web-1" }), clustertest.NewReplicaSet("web", "r", 2),
		released(func(p *v1.Pod) {
			p.Name, p.Labels["pod-template-hash"] = "web-2", "r"
			p.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("ReplicaSet", "web-r")}
		}),
		gatedPod(spot.CapacityGate), elsewhere, budget("web-protected", map[string]string{spot.ProtectLabel: "true"}), other,
	}
	for namespace, want := range map[string][]string{
		"": {
			"Node /n: remove annotation spot-aware-scheduler.io/interruption-deadline, " +
				"remove annotation spot-aware-scheduler.io/interruption-state, remove taint spot-aware-scheduler.io/interruption",
			"Pod bank/web-0: remove gate spot-aware-scheduler.io/capacity",
			"Pod shop/web-0: remove gate spot-aware-scheduler.io/capacity",
			"Pod shop/web-1: restore it to ReplicaSet web-r",
			"Pod shop/web-2: remove annotation spot-aware-scheduler.io/released",
			"PodDisruptionBudget shop/web-protected: delete it",
		},
	} {
		c := newCleanup(t, namespace, objects...)
		var got []string
		for _, item := range c.Items {
			got = append(got, fmt.Sprintf("%s %s/%s: %s", item.Kind, item.Namespace, item.Name, item.Change))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("namespace %q (-want +got):\n%s", namespace, diff)
		}
		clustertest.Equal(t, "waiting pods", []string{"bank/web-0", "shop/web-0"}, c.Waiting)
	}
	if items := newCleanup(t, "shop", objects...).Items; len(items) != 5 || items[0].Kind == "Node" {
		t.Errorf("in a namespace: %v, want no node", items)
	}
}
