package protection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const (
	shop               = "shop"
	replacementTimeout = 2 * time.Minute
)

var start = clustertest.Now

// world is a cluster with one node, "n", and a Planner with its memory.
type world struct {
	*testing.T
	planner  *Planner
	snapshot *snapshot.Snapshot
	node     *snapshot.Node
	client   *fake.Clientset
}

func newWorld(t *testing.T) *world {
	node := &snapshot.Node{Node: clustertest.NewNode("n", "spot", "m/a")}
	client := fake.NewClientset()
	uids := 0
	client.PrependReactor("create", "poddisruptionbudgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		uids++
		action.(clienttesting.CreateAction).GetObject().(*policyv1.PodDisruptionBudget).UID = types.UID(fmt.Sprint(uids))
		return false, nil, nil
	})
	return &world{
		T: t, planner: NewPlanner(Settings{Interruption: interruption.Settings{
			Interruption: controller.Interruption{Enabled: true}, Drain: controller.Drain{Assist: true, Cordons: true},
		}, ReplacementTimeout: replacementTimeout}), node: node,
		snapshot: &snapshot.Snapshot{Now: start, Nodes: []*snapshot.Node{node}, Budgets: map[string][]*policyv1.PodDisruptionBudget{}},
		client:   client,
	}
}

// deployment adds a Deployment that requests protection, with one ready pod on the node, and
// returns the pod.
func (w *world) deployment(name string, edits ...func(*appsv1.Deployment)) *snapshot.Pod {
	pod := clustertest.NewReplica(name, w.node)
	d := pod.Workload.Deployment
	d.Generation = 1
	for _, edit := range edits {
		edit(d)
	}
	pod.Revision.ReplicaSet.Spec.Selector = metav1.AddLabelToSelector(d.Spec.Selector.DeepCopy(), appsv1.DefaultDeploymentUniqueLabelKey, "r")
	pod.Workload.InScope, pod.Workload.Settings = true, decision.WorkloadSettings{Protect: true}
	w.node.Pods = append(w.node.Pods, pod)
	w.snapshot.Pods = append(w.snapshot.Pods, pod)
	w.snapshot.Workloads = append(w.snapshot.Workloads, pod.Workload)
	return pod
}

// plan plans and applies the changes. It returns the changes and refusals, one per line.
func (w *world) plan() (got []string) {
	w.Helper()
	changes, refusals := w.planner.Plan(w.snapshot)
	for _, c := range changes {
		allowed := ""
		if c.Kind != Delete {
			allowed = " " + c.Budget.Spec.MaxUnavailable.String()
		} else if c.Deployment != nil {
			w.Errorf("%s of %s is planned for a Deployment", c.Kind, c.Budget.Name)
		}
		got = append(got, fmt.Sprintf("%s %s%s", c.Kind, c.Budget.Name, allowed))
		if err := c.Apply(w.Context(), w.client); err != nil {
			w.Fatal(err)
		}
	}
	for _, r := range refusals {
		object, _ := r.Object.(metav1.Object)
		got = append(got, "refused "+object.GetName()+": "+r.Why)
	}
	w.sync()
	return got
}

// sync copies the budgets of the API server to the snapshot.
func (w *world) sync() {
	w.Helper()
	list, err := w.client.PolicyV1().PodDisruptionBudgets("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.snapshot.Budgets = map[string][]*policyv1.PodDisruptionBudget{}
	for i := range list.Items {
		w.snapshot.Budgets[list.Items[i].Namespace] = append(w.snapshot.Budgets[list.Items[i].Namespace], &list.Items[i])
	}
}

func (w *world) wants(what string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.plan()); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// budget adds a PodDisruptionBudget of another owner for pods with these labels.
func (w *world) budget(name string, selects map[string]string) *policyv1.PodDisruptionBudget {
	w.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: clustertest.Meta(name)}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: selects}
	if _, err := w.client.PolicyV1().PodDisruptionBudgets(shop).Create(w.Context(), b, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.sync()
	return b
}

func TestBudget(t *testing.T) {
	w := newWorld(t)
	w.deployment("web")
	w.wants("protected", "create web-protected 0")
	got := w.snapshot.Budgets[shop][0]
	got.UID, got.TypeMeta, got.ManagedFields = "", metav1.TypeMeta{}, nil
	want := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: "web-protected", Labels: map[string]string{"spot-aware-scheduler.io/protect": "true"},
			// No blockOwnerDeletion, which would require more rights.
			OwnerReferences: []metav1.OwnerReference{clustertest.OwnedBy("Deployment", "web")},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
	clustertest.Equal(t, "budget", want, got)
	w.sync()
	w.wants("a second time")

	w.snapshot.Budgets[shop][0].Spec.MaxUnavailable = &all
	w.wants("changed by hand", "update web-protected 0")

	for what, edit := range map[string]func(*snapshot.Workload) func(){
		"it no longer requests protection": func(c *snapshot.Workload) func() {
			c.Settings.Protect = false
			return func() { c.Settings.Protect = true }
		},
		"it is scaled to 0": func(c *snapshot.Workload) func() { c.Desired = 0; return func() { c.Desired = 1 } },
		"it is being deleted": func(c *snapshot.Workload) func() {
			c.Deployment.DeletionTimestamp = ptr.To(metav1.NewTime(start))
			return func() { c.Deployment.DeletionTimestamp = nil }
		},
		"its namespace is not selected": func(*snapshot.Workload) func() {
			w.planner.settings.Interruption.Selects = func(string) bool { return false }
			return func() { w.planner.settings.Interruption.Selects = nil }
		},
		"the controller does not help": func(*snapshot.Workload) func() {
			w.planner.settings.Interruption.Drain.Assist = false
			return func() { w.planner.settings.Interruption.Drain.Assist = true }
		},
	} {
		undo := edit(w.snapshot.Workloads[0])
		w.wants(what, "delete web-protected")
		undo()
		w.wants(what+", and that is over", "create web-protected 0")
	}

	w.snapshot.Workloads[0].Deployment.UID = "another"
	w.wants("of a Deployment that was created again", "delete web-protected")
	w.wants("a round later", "create web-protected 0")
	w.snapshot.Workloads = nil
	w.wants("the Deployment is gone", "delete web-protected")
}

// TestBudgetIsRelaxed: no drain waits for longer than twice ReplacementTimeout, and none waits if
// the controller does not help.
func TestBudgetIsRelaxed(t *testing.T) {
	for name, test := range map[string]struct {
		node func(*snapshot.Node)
		with func(*Settings)
		// at the start, after ReplacementTimeout, and after twice ReplacementTimeout.
		want [3]string
	}{
		"drained":                          {node: func(n *snapshot.Node) { n.Facts.Signal = decision.Drain }, want: [3]string{"0", "1", "100%"}},
		"cordoned":                         {node: func(n *snapshot.Node) { n.Spec.Unschedulable = true }, want: [3]string{"0", "1", "100%"}},
		"cordoned, and Cordons is not set": {node: func(n *snapshot.Node) { n.Spec.Unschedulable = true }, with: func(s *Settings) { s.Interruption.Drain.Cordons = false }, want: [3]string{"100%", "100%", "100%"}},
		"reclaimed, and the controller moves pods":         {node: func(n *snapshot.Node) { n.Facts.Signal = decision.Reclaim }, want: [3]string{"0", "0", "0"}},
		"reclaimed, and the controller does not move pods": {node: func(n *snapshot.Node) { n.Facts.Signal = decision.Reclaim }, with: func(s *Settings) { s.Interruption.Interruption.Enabled = false }, want: [3]string{"100%", "100%", "100%"}},
		"advisory signal": {node: func(n *snapshot.Node) { n.Facts.Signal = decision.Advisory }, want: [3]string{"0", "0", "0"}},
		"not drained":     {node: func(*snapshot.Node) {}, want: [3]string{"0", "0", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.with != nil {
				test.with(&w.planner.settings)
			}
			w.deployment("web")
			w.deployment("other").Node = nil
			w.node.Pods = w.node.Pods[:1]
			test.node(w.node)
			for i, want := range test.want {
				w.snapshot.Now = start.Add(time.Duration(i) * replacementTimeout)
				w.plan()
				for _, budget := range w.snapshot.Budgets[shop] {
					got, expected := budget.Spec.MaxUnavailable.String(), want
					if budget.Name == "other-protected" { // its pod is on another node
						expected = "0"
					}
					if got != expected {
						t.Errorf("after %s: %s allows %s, want %s", time.Duration(i)*replacementTimeout, budget.Name, got, expected)
					}
				}
			}
			w.node.Facts.Signal, w.node.Spec.Unschedulable = decision.NoSignal, false
			w.plan()
			if got := w.snapshot.Budgets[shop][len(w.snapshot.Budgets[shop])-1].Spec.MaxUnavailable.String(); got != "0" {
				t.Errorf("after the drain it allows %s", got)
			}
		})
	}
}

// TestReleasedPodHasWaited: for a released and restored pod the whole time counts.
func TestReleasedPodHasWaited(t *testing.T) {
	w := newWorld(t)
	pod := w.deployment("web")
	workload := pod.Workload
	w.node.Facts.Signal = decision.Drain
	w.wants("drained", "create web-protected 0")

	pod.Release, pod.ReleasedFrom = &snapshot.Release{At: start}, pod.Revision
	pod.Workload, pod.Revision, pod.ReleasedFrom.Pods = nil, nil, nil
	w.snapshot.Now = start.Add(replacementTimeout - 1)
	w.wants("while it is released")
	w.planner = NewPlanner(w.planner.settings) // without memory
	w.wants("with another controller")

	w.snapshot.Now = start.Add(replacementTimeout)
	pod.Workload, pod.Revision, pod.ReleasedFrom.Pods = workload, pod.ReleasedFrom, []*snapshot.Pod{pod}
	pod.Release, pod.ReleasedFrom = nil, nil
	w.wants("given back", "update web-protected 1")
}

// TestReleasedPodIsHeld: a ready replacement does not suffice if the Deployment lacks another pod.
func TestReleasedPodIsHeld(t *testing.T) {
	w := newWorld(t)
	pod := w.deployment("web", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 30 })
	w.node.Facts.Signal = decision.Drain
	w.wants("drained", "create web-protected 0")
	released := start.Add(time.Minute)
	pod.Release, pod.ReleasedFrom = &snapshot.Release{At: released}, pod.Revision
	pod.Workload, pod.Revision, pod.ReleasedFrom.Pods = nil, nil, nil
	within := replacementTimeout + 30*time.Second
	w.snapshot.Now = released.Add(within - 1)
	w.wants("while it may be replaced")
	w.snapshot.Now = released.Add(within)
	w.wants("still not evicted", "update web-protected 1")
	w.snapshot.Now = released.Add(2 * within)
	w.wants("as if nothing helped", "update web-protected 100%")
}

// TestBudgetWithoutSurge: if no replacement can start first, one pod at a time may be evicted.
func TestBudgetWithoutSurge(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	changes, _ := w.planner.Plan(w.snapshot)
	if why := "its pods cannot be replaced before they are evicted: its Deployment's strategy allows no surge"; len(changes) != 1 || changes[0].Why != why {
		t.Errorf("got %v, want one because %s", changes, why)
	}
	w.wants("recreated", "create web-protected 1")

	w = newWorld(t)
	w.deployment("web").Workload.RollingOut = true
	w.wants("while it is rolled out", "create web-protected 0") // the rollout ends
}

// TestRefusals: with two budgets for one pod the API server would refuse every eviction.
func TestRefusals(t *testing.T) {
	const two = ", and the API server evicts no pod with two PodDisruptionBudgets"
	w := newWorld(t)
	w.deployment("web")
	w.wants("alone", "create web-protected 0")
	w.budget("theirs", map[string]string{"app": "web"})
	w.wants("another budget appears", "delete web-protected", "refused web: PodDisruptionBudget theirs selects its pods"+two)
	w.wants("reported once")
	if err := w.client.PolicyV1().PodDisruptionBudgets(shop).Delete(t.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.wants("it is gone", "create web-protected 0")

	w = newWorld(t)
	w.deployment("web")
	w.budget("all", map[string]string{})
	w.wants("a budget of all", "refused web: PodDisruptionBudget all selects its pods"+two)

	w = newWorld(t)
	w.deployment("web")
	w.budget("other", map[string]string{"app": "other"})
	w.wants("a budget of others", "create web-protected 0")

	w = newWorld(t)
	w.deployment("web")
	w.budget("web-protected", map[string]string{"app": "other"})
	w.wants("its name is taken", "refused web: PodDisruptionBudget web-protected does not belong to the controller")

	w = newWorld(t)
	w.deployment("web")
	w.deployment("web-2", func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels = map[string]string{"tier": "front"} }).Labels["app"] = "web"
	w.wants("pods of another workload", "create web-2-protected 0", "refused web: its selector also selects pods of Deployment web-2")

	w = newWorld(t)
	w.deployment("web", func(d *appsv1.Deployment) {
		d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	})
	w.deployment("other")
	w.wants("pods of others by an expression", "create other-protected 0", "refused web: its selector also selects pods of Deployment other")

	w = newWorld(t)
	set := &appsv1.StatefulSet{ObjectMeta: clustertest.Meta("db")}
	w.snapshot.Workloads = []*snapshot.Workload{{
		Kind: "StatefulSet", Namespace: shop, Name: "db", Desired: 1, StatefulSet: set, Settings: decision.WorkloadSettings{Protect: true},
	}}
	w.wants("a StatefulSet that a rule protects with others")
	set.Annotations = map[string]string{spot.ProtectAnnotation: "true"}
	w.wants("a StatefulSet that requests protection", "refused db: a pod of a StatefulSet cannot be replaced before it is evicted")
}

// TestOrder: changes that a drain may wait for are first.
func TestOrder(t *testing.T) {
	w := newWorld(t)
	change := func(kind Kind, namespace, name, why string) Change {
		return Change{Kind: kind, Budget: &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, Why: why}
	}
	var got []string
	for _, c := range inOrder([]Change{
		change(Create, "a", "1", ""), change(Update, "b", "5", "relaxed"), change(Create, "a", "2", "relaxed"), change(Update, "a", "3", ""),
		change(Create, "b", "4", ""), change(Delete, "a", "7", ""), change(Delete, "a", "6", ""),
	}) {
		got = append(got, c.Budget.Namespace+c.Budget.Name)
	}
	clustertest.Equal(t, "order", []string{"a6", "a7", "b5", "a1", "a2", "a3", "b4"}, got)

	w.deployment("a-1")
	w.deployment("z")
	w.wants("protected", "create a-1-protected 0", "create z-protected 0")
	w.deployment("a-2")
	w.snapshot.Workloads[1].Settings.Protect = false
	w.wants("one requests protection, and one no longer does", "delete z-protected", "create a-2-protected 0")
}

// TestPanicOfOneWorkload: a panic about one Deployment does not prevent the protection of others.
func TestPanicOfOneWorkload(t *testing.T) {
	w := newWorld(t)
	w.deployment("bad").Workload.Revisions = []*snapshot.Revision{nil}
	w.deployment("web")
	w.wants("beside one that panics", "create web-protected 0")
}

// TestBudgetWithoutItsLabel: someone has removed the label of a budget. The controller recognizes
// it by its name and its Deployment: no second one is created, and it is deleted with its reason.
func TestBudgetWithoutItsLabel(t *testing.T) {
	w := newWorld(t)
	pod := w.deployment("web")
	w.wants("protected", "create web-protected 0")
	budget := w.snapshot.Budgets[shop][0].DeepCopy()
	budget.Labels, budget.Spec.MaxUnavailable = nil, &one
	if _, err := w.client.PolicyV1().PodDisruptionBudgets(shop).Update(t.Context(), budget, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sync()
	w.wants("without the label, and changed", "update web-protected 0")
	pod.Workload.Settings.Protect = false
	w.wants("no longer requested", "delete web-protected")
}

// TestApplyChecksUID: a newer object with the same name is not changed.
func TestApplyChecksUID(t *testing.T) {
	w := newWorld(t)
	w.deployment("web")
	w.wants("protected", "create web-protected 0")
	other := w.snapshot.Budgets[shop][0].DeepCopy()
	other.UID = "another"
	change := Change{Kind: Update, Budget: other}
	if err := change.Apply(t.Context(), w.client); err == nil {
		t.Error("another object of its name was changed")
	}
	change = Change{Kind: Create, Budget: other}
	if err := change.Apply(t.Context(), w.client); !apierrors.IsAlreadyExists(errors.Unwrap(err)) || !strings.Contains(err.Error(), "shop/web-protected") {
		t.Errorf("creating it again: %v", err)
	}
	w.client.ClearActions()
	change = Change{Kind: Delete, Budget: other}
	_ = change.Apply(t.Context(), w.client) // the fake API server ignores preconditions
	deletion, ok := w.client.Actions()[0].(interface{ GetDeleteOptions() metav1.DeleteOptions })
	if !ok || string(*deletion.GetDeleteOptions().Preconditions.UID) != "another" || workload.ManagedDisruptionBudget(other) == false {
		t.Errorf("deleted without its UID: %v", w.client.Actions())
	}
}

// TestBudgetOfSomePods: a budget of another owner prevents protection even if it selects only
// completed pods, or one pod of many.
func TestBudgetOfSomePods(t *testing.T) {
	for name, edit := range map[string]func(w *world, pod *snapshot.Pod){
		"the pod is released": func(_ *world, pod *snapshot.Pod) {
			pod.Release, pod.ReleasedFrom = &snapshot.Release{At: start}, pod.Revision
			pod.Workload, pod.Revision, pod.ReleasedFrom.Pods = nil, nil, nil
		},
		"the pod terminates": func(_ *world, pod *snapshot.Pod) {
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(start))
			pod.Revision.Pods = nil
		},
		"the label of one pod": func(w *world, pod *snapshot.Pod) {
			other := *pod
			other.Pod = pod.Pod.DeepCopy()
			other.Name, other.UID = "web-y", "p-web-y"
			delete(other.Labels, "role")
			pod.Revision.Pods = []*snapshot.Pod{&other, pod}
			w.snapshot.Pods = []*snapshot.Pod{pod, &other}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := w.deployment("web")
			pod.Labels["role"] = "leader"
			w.budget("leaders", map[string]string{"role": "leader"})
			edit(w, pod)
			w.wants(name, "refused web: PodDisruptionBudget leaders selects its pods, and the API server evicts no pod with two PodDisruptionBudgets")
		})
	}
}

// TestRefusalIsReportedOnce: if several other workloads conflict, a refusal names the same one in
// every round.
func TestRefusalIsReportedOnce(t *testing.T) {
	w := newWorld(t)
	values := []string{"a", "b", "c", "d", "e", "web"}
	w.deployment("web", func(d *appsv1.Deployment) {
		d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values}}}
	})
	for _, name := range append([]string{"another"}, values[:5]...) {
		w.deployment(name).Workload.Settings.Protect = false
	}
	w.wants("at first", "refused web: its selector also selects pods of Deployment a")
	for range 50 {
		w.wants("reported once")
	}
}

// TestUncountedBudget: a budget that Kubernetes cannot evaluate allows no eviction. It is deleted,
// and not created again at once.
func TestUncountedBudget(t *testing.T) {
	const refused = "refused web: Kubernetes cannot count the pods that its selector selects: jobs.batch does not implement the scale subresource"
	w := newWorld(t)
	w.deployment("web")
	w.wants("protected", "create web-protected 0")
	fail := func() {
		w.snapshot.Budgets[shop][0].Status.Conditions = []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
			Message: "jobs.batch does not implement the scale subresource",
		}}
	}
	at := func(after time.Duration) { w.snapshot.Now = start.Add(after) }
	fail()
	w.wants("for a moment")
	at(syncTimeout)
	w.wants("counted again")
	fail()
	w.wants("failed again")
	at(2*syncTimeout - 1)
	fail()
	w.wants("failing for long")
	at(2 * syncTimeout)
	fail()
	w.wants("failing for too long", "delete web-protected", refused)
	at(syncTimeout + syncRetry - 1)
	w.wants("reported once")
	at(syncTimeout + syncRetry)
	w.wants("tried again", "create web-protected 0")
}
