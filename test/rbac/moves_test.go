package rbac

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// together says which rights of the controller are taken away at the same time: a start takes seconds, and nothing that a right of a group
// allows has to be done before another of the group is asked for.
func together(g grant) string {
	switch g.String() {
	case "get leases.coordination.k8s.io spot-controller":
		return "lists"
	case "create leases.coordination.k8s.io":
		return "watches"
	// After a look at the pod, the release of another, and who it is that asks for metrics.
	case "create pods/eviction", "create events.events.k8s.io", "create subjectaccessreviews.authorization.k8s.io":
		return "what comes second"
	case "patch events.events.k8s.io":
		return "what is told again"
	}
	switch g.verb {
	case "list":
		return "lists"
	case "watch":
		return "watches"
	}
	return "what comes first"
}

// TestNoRightOfTheControllerIsIdle takes the controller's rights away, then each binding to a role, and runs a controller until it was
// denied every one of them.
func TestNoRightOfTheControllerIsIdle(t *testing.T) {
	_, err := controlPlane.ControllerKubeconfig(t.Context()) // which grants them
	must(t, err)
	scheduler, err := controlPlane.StartScheduler(t.Context(), lab.SchedulerOptions{})
	must(t, err)
	defer func() {
		must(t, scheduler.Stop())
		must(t, client.CoordinationV1().Leases(namespace).Delete(t.Context(), string(schedulers), metav1.DeleteOptions{}))
	}()
	shipped := shippedRights(t, controllers)
	r := &runner{
		shipped: shipped, token: controlPlane.Config().BearerToken, programs: controlPlane.Controllers,
		start: func(ctx context.Context, flags []string) (*lab.Process, error) {
			return controlPlane.StartController(ctx, lab.ControllerOptions{Flags: append([]string{"-v=2"}, flags...)})
		},
		prepare: func(ctx context.Context) (work, error) { return makeMoves(ctx) },
	}
	t.Run("all", func(t *testing.T) {
		r.run(t, nil, func(a attempt) error {
			if len(a.denials) > 0 {
				return fmt.Errorf("denied was:\n%s", strings.Join(a.denials, "\n"))
			}
			return errors.Join(a.metrics, a.done(t.Context()))
		})
	})
	groups := map[string][]grant{}
	for _, g := range shipped.grants() {
		groups[together(g)] = append(groups[together(g)], g)
	}
	for name, grants := range groups {
		t.Run(name, func(t *testing.T) {
			if name == "lists" {
				// Where the API server streams lists to informers, these only watch.
				t.Setenv("KUBE_FEATURE_WatchListClient", "false")
			}
			r.without(t, nil, grants...)
		})
	}
	r.withoutBindings(t)
}

// moves is one of everything that makes the controller ask the API server for something.
type moves struct {
	namespace string
	// Nodes of which the first gets two minutes' notice, the second has no time left, and the third takes what leaves them.
	going, late, room string
	// uids are those of the pods that have to go.
	uids []types.UID
}

// makeMoves makes nodes and pods that have to leave them.
func makeMoves(ctx context.Context) (*moves, error) {
	none := metav1.CreateOptions{}
	ns, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rbac-"}}, none)
	if err != nil {
		return nil, err
	}
	m := &moves{namespace: ns.Name, going: ns.Name + "-going", late: ns.Name + "-late", room: ns.Name + "-room"}
	if err := controlPlane.CreateNodes(ctx, lab.NodeSpec{Name: m.going, Capacity: lab.Spot}); err != nil {
		return m, err
	}

	// What surges, two pods at once so that the same is told of their workload, and what is evicted. What surges asks for protection.
	parts := func(app string) (metav1.ObjectMeta, *metav1.LabelSelector, v1.PodTemplateSpec) {
		labels := map[string]string{"app": app}
		return metav1.ObjectMeta{Name: app, Annotations: map[string]string{"spot-aware-scheduler.io/min-on-demand": "0"}},
			&metav1.LabelSelector{MatchLabels: labels}, v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}
	}
	meta, selector, template := parts("surge")
	meta.Annotations[decision.ProtectAnnotation] = "true"
	if _, err := client.AppsV1().Deployments(m.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: selector, Template: template},
	}, none); err != nil {
		return m, err
	}
	meta, selector, template = parts("evict")
	if _, err := client.AppsV1().StatefulSets(m.namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: template},
	}, none); err != nil {
		return m, err
	}
	if err := live.Until(ctx, limit, func() error { return m.ready(ctx, 3) }); err != nil {
		return m, err
	}

	// What is deleted: because there is no time left, and because what it was released from is gone.
	if err := controlPlane.CreateNodes(ctx, lab.NodeSpec{Name: m.late, Capacity: lab.Spot}, lab.NodeSpec{Name: m.room, Capacity: lab.OnDemand, CPU: "10"}); err != nil {
		return m, err
	}
	orphan := pod("orphan", func(spec *v1.PodSpec) { spec.NodeName = m.room })
	orphan.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "released"}
	orphan.Annotations = map[string]string{"spot-aware-scheduler.io/released": `{"replicaSet":"gone","replicaSetUID":"gone","hash":"gone"}`}
	controller, err := as(controllerUser, "system:masters") // nobody else may mark a pod
	if err != nil {
		return m, err
	}
	for _, p := range []*v1.Pod{orphan, pod("late", func(spec *v1.PodSpec) { spec.NodeName = m.late })} {
		if _, err := controller.CoreV1().Pods(m.namespace).Create(ctx, p, none); err != nil {
			return m, err
		}
	}
	if err := live.Until(ctx, limit, func() error { return m.ready(ctx, 5) }); err != nil {
		return m, err
	}
	if err := m.makeBudgets(ctx); err != nil {
		return m, err
	}
	for node, deadline := range map[string]time.Time{m.going: time.Now().Add(2 * time.Minute), m.late: time.Now().Add(-time.Minute)} {
		if err := live.EditNode(ctx, client, limit, node, func(n *v1.Node) {
			// It was added before the deadline that is past, which would count for nothing otherwise.
			added := metav1.NewTime(deadline.Add(-time.Hour))
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: reclaimed, Effect: v1.TaintEffectPreferNoSchedule, TimeAdded: &added})
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, "spot-aware-scheduler.io/interruption-deadline", deadline.UTC().Format(time.RFC3339))
		}); err != nil {
			return m, err
		}
	}
	return m, nil
}

// makeBudgets makes a budget of the controller that it has to change, because somebody else did, and one that it has to delete.
func (m *moves) makeBudgets(ctx context.Context) error {
	surge, err := client.AppsV1().Deployments(m.namespace).Get(ctx, "surge", metav1.GetOptions{})
	if err != nil {
		return err
	}
	kept, err := client.AppsV1().Deployments(m.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Annotations: surge.Annotations},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "kept"}},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "kept"}}, Spec: pod("").Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, name := range []string{"kept-protected", "left-protected"} {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"spot-aware-scheduler.io/protect": "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(kept, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		}}
		budget.Spec.Selector = kept.Spec.Selector
		if _, err := client.PolicyV1().PodDisruptionBudgets(m.namespace).Create(ctx, budget, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// budgets returns an error unless the budgets are those of what asks for protection, and allow nothing.
func (m *moves) budgets(ctx context.Context) error {
	budgets, err := client.PolicyV1().PodDisruptionBudgets(m.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	got := map[string]string{}
	for _, budget := range budgets.Items {
		got[budget.Name] = budget.Spec.MaxUnavailable.String()
	}
	if want := map[string]string{"surge-protected": "0", "kept-protected": "0"}; !maps.Equal(got, want) {
		return fmt.Errorf("the budgets allow %v, want %v", got, want)
	}
	return nil
}

// reclaimed is what the AWS node termination handler sets on a node that is about to go.
const reclaimed = "aws-node-termination-handler/spot-itn"

// ready returns an error unless there are so many pods, all ready. It notes which they are.
func (m *moves) ready(ctx context.Context, want int) error {
	pods, err := live.Pods(ctx, client, m.namespace, metav1.ListOptions{})
	if err != nil {
		return err
	}
	m.uids = nil
	for _, p := range pods {
		if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue }) {
			m.uids = append(m.uids, p.UID)
		}
	}
	if len(m.uids) != want || len(pods) != want {
		return fmt.Errorf("%d of %d pods are ready, want %d", len(m.uids), len(pods), want)
	}
	return nil
}

// stir changes nothing: the controller has enough to do.
func (m *moves) stir(ctx context.Context) { <-ctx.Done() }

// done returns an error unless all the pods are gone and the same has been told again.
func (m *moves) done(ctx context.Context) error {
	pods, err := client.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if slices.Contains(m.uids, p.UID) {
			return fmt.Errorf("%s is on %s", p.Name, p.Spec.NodeName)
		}
	}
	if err := m.budgets(ctx); err != nil {
		return err
	}
	events, err := client.EventsV1().Events(m.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=MovingPods"})
	if err != nil {
		return err
	}
	for _, event := range events.Items {
		if event.Series != nil {
			return nil
		}
	}
	return fmt.Errorf("nothing was told again: %v", events.Items)
}

// remove deletes the nodes and the pods, and returns when they are gone.
func (m *moves) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := live.Clear(ctx, client, m.namespace); err != nil {
		return err
	}
	for _, node := range []string{m.going, m.late, m.room} {
		if err := client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return client.CoreV1().Namespaces().Delete(ctx, m.namespace, metav1.DeleteOptions{})
}
