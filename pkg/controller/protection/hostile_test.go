package protection

import (
	"fmt"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// PodDisruptionBudgets with thousands of terms cost nothing in a round. Without a limit each round
// parses them all, which takes seconds and allocates each term.
func TestSelectorsOfManyTerms(t *testing.T) {
	node := &snapshot.Node{Node: clustertest.NewNode("n", "spot", "m/a")}
	s := &snapshot.Snapshot{Now: start, Nodes: []*snapshot.Node{node}, Budgets: map[string][]*policyv1.PodDisruptionBudget{}}
	for i := range 100 {
		pod := clustertest.NewReplica(fmt.Sprintf("web%03d", i), node)
		pod.Workload.InScope, pod.Workload.Settings.Protect = true, i == 0
		node.Pods, s.Pods, s.Workloads = append(node.Pods, pod), append(s.Pods, pod), append(s.Workloads, pod.Workload)
	}
	const budgets, terms = 5, 20000
	for i := range budgets {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: clustertest.Meta(fmt.Sprint("b", i)), Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}}
		for j := range terms {
			b.Spec.Selector.MatchExpressions = append(b.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: fmt.Sprintf("k%d", j), Operator: metav1.LabelSelectorOpDoesNotExist})
		}
		s.Budgets["shop"] = append(s.Budgets["shop"], b)
	}
	p := NewPlanner(Settings{Interruption: interruption.Settings{Drain: controller.Drain{Assist: true}}, ReplacementTimeout: replacementTimeout})
	changes, _ := p.Plan(s)
	if len(changes) != 1 || changes[0].Kind != Create {
		t.Errorf("changes %v, want the budget of the protected Deployment", changes)
	}
	for name, step := range map[string]func(){
		"Plan":          func() { p.Plan(s) },
		"NoSurgeReason": func() { migration.NoSurgeReason(s)(s.Pods[0]) },
	} {
		if got := testing.AllocsPerRun(1, step); got > budgets*terms/10 {
			t.Errorf("%s: %.0f allocations, want fewer than a tenth of the terms", name, got)
		}
	}
}

// A Deployment whose own selector has thousands of terms gets no budget, and costs nothing.
func TestDeploymentOfManyTerms(t *testing.T) {
	w := newWorld(t)
	pod := w.deployment("web")
	for j := range 20000 {
		pod.Workload.Deployment.Spec.Selector.MatchExpressions = append(pod.Workload.Deployment.Spec.Selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: fmt.Sprintf("k%d", j), Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	w.wants("20,000 terms", "refused web: its selector has more than 200 terms")
	if got := testing.AllocsPerRun(1, func() { w.planner.Plan(w.snapshot) }); got > 2000 {
		t.Errorf("%.0f allocations, want fewer than a tenth of the terms", got)
	}
}

// A PodDisruptionBudget that claims a Deployment of another namespace does not prevent the
// protection of that Deployment.
func TestBudgetOfAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	pod := w.deployment("web")
	w.snapshot.Budgets["evil"] = []*policyv1.PodDisruptionBudget{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "x", UID: "evil-uid", Labels: map[string]string{spot.ProtectLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: pod.Workload.Deployment.UID, Controller: ptr.To(true)}}},
		Status: policyv1.PodDisruptionBudgetStatus{Conditions: []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "text of the attacker"}}},
	}}
	for _, after := range []time.Duration{0, time.Minute, time.Hour} {
		w.snapshot.Now = start.Add(after)
		changes, refusals := w.planner.Plan(w.snapshot)
		created := false
		for _, c := range changes {
			created = created || c.Kind == Create && strings.HasPrefix(c.Budget.Name, "web")
		}
		if !created || len(refusals) > 0 {
			t.Errorf("after %s: changes %v, refusals %v; want the budget of web", after, changes, refusals)
		}
	}
}
