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
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// Two groups of rights.
const laterRequests, repeatedRequests = "later requests", "repeated requests"

// groupOf returns the group of a right of the controller. The test removes the rights of a group
// together, because each start takes seconds. No right of a group is needed before the controller
// requests another of the same group.
func groupOf(g grant) string {
	switch g.String() {
	case "list leases.coordination.k8s.io":
		return "the first request, without which the controller ends"
	case "get leases.coordination.k8s.io": // of the leader election, and of silent nodes
		return "lists"
	case "create leases.coordination.k8s.io":
		return "watches"
	// These requests follow a read of the pod, the release of another pod, and the authentication
	// of the metrics client. The read of a Node precedes the deletion of a pod.
	// The read of the ledger precedes its creation.
	case "create pods/eviction", "create events.events.k8s.io", "create subjectaccessreviews.authorization.k8s.io", "get nodes",
		"create configmaps":
		return laterRequests
	case "patch events.events.k8s.io", "update configmaps spot-controller-ledger":
		return repeatedRequests
	}
	switch g.verb {
	case "list":
		return "lists"
	case "watch":
		return "watches"
	}
	return "first requests"
}

// ownerGroups are the groups of owners whose metadata the controller gets for a warning only. These
// kinds do not exist here.
var ownerGroups = []string{"apps.kruise.io", "ray.io", "kubeflow.org", "sparkoperator.k8s.io", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io"}

// TestControllerNeedsEachRight removes the controller's rights, and then each binding to a
// role. It runs a controller until the API server has denied every right.
func TestControllerNeedsEachRight(t *testing.T) {
	_, err := controlPlane.ControllerKubeconfig(t.Context()) // which grants the rights
	live.Must(t, err)
	scheduler, err := controlPlane.StartScheduler(t.Context(), lab.SchedulerOptions{})
	live.Must(t, err)
	defer func() {
		live.Must(t, scheduler.Stop())
		live.Must(t, client.CoordinationV1().Leases(namespace).Delete(t.Context(), string(schedulers), metav1.DeleteOptions{}))
	}()
	defineNodeOwners(t)
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
				return fmt.Errorf("denials:\n%s", strings.Join(a.denials, "\n"))
			}
			return errors.Join(a.metrics, a.done(t.Context()))
		})
	})
	groups := map[string][]grant{}
	for _, g := range shipped.grants() {
		if slices.Contains(ownerGroups, g.group) {
			if g.verb != "get" {
				t.Errorf("%s: the controller only gets these objects", g)
			}
			continue
		}
		groups[groupOf(g)] = append(groups[groupOf(g)], g)
	}
	for name, grants := range groups {
		t.Run(name, func(t *testing.T) {
			if name == "lists" {
				// If the API server streams lists to informers, the informers send only watch
				// requests.
				t.Setenv("KUBE_FEATURE_WatchListClient", "false")
			}
			switch name {
			case laterRequests:
				deleteLedger(t)
			case repeatedRequests:
				deleteLedger(t)
				_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
					&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: safety.Ledger}}, metav1.CreateOptions{})
				live.Must(t, err)
			}
			r.without(t, nil, grants...)
		})
	}
	r.withoutBindings(t)
}

// deleteLedger deletes the ledger if it exists, so that the controller creates it.
func deleteLedger(t *testing.T) {
	t.Helper()
	live.Must(t, ctrlclient.IgnoreNotFound(client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), safety.Ledger, metav1.DeleteOptions{})))
}

// defineNodeOwners defines the resource of the objects that own nodes. The controller watches them
// only where the resource exists.
func defineNodeOwners(t *testing.T) {
	owner := providers.NodeOwner
	definition := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.%[2]s"},
		"spec":{"group":"%[2]s","scope":"Cluster","names":{"plural":"%[1]s","kind":"NodeClaim"},"versions":[{"name":"%[3]s","served":true,
		"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, owner.Resource, owner.Group, owner.Version)
	definitions := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	live.Must(t, client.Discovery().RESTClient().Post().AbsPath(definitions).Body([]byte(definition)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error())
	t.Cleanup(func() {
		live.Must(t, client.Discovery().RESTClient().Delete().AbsPath(definitions, owner.Resource+"."+owner.Group).Do(context.Background()).Error())
	})
	live.Must(t, live.Until(t.Context(), limit, func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/apis", owner.Group, owner.Version, owner.Resource).Do(t.Context()).Error()
	}))
}

// moves has one object for each kind of request that the controller sends to the API server.
type moves struct {
	namespace string
	// Nodes: spot runs a pod that its floor requires on on-demand, reclaimed has two minutes'
	// notice, the kubelet of silent is unreachable, and room runs the replacements.
	spot, reclaimed, silent, room string
	// uids are the UIDs of the pods that the controller must evict.
	uids []types.UID
}

// makeMoves creates nodes, and pods that the controller must evict from them.
func makeMoves(ctx context.Context) (*moves, error) {
	none := metav1.CreateOptions{}
	ns, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rbac-"}}, none)
	if err != nil {
		return nil, err
	}
	m := &moves{
		namespace: ns.Name, spot: ns.Name + "-spot", reclaimed: ns.Name + "-reclaimed", silent: ns.Name + "-silent", room: ns.Name + "-room",
	}
	if err := m.makeBrokenFloor(ctx); err != nil {
		return m, err
	}
	if err := controlPlane.CreateNodes(ctx, lab.NodeSpec{Name: m.reclaimed, Capacity: lab.Spot}); err != nil {
		return m, err
	}

	// The Deployment surges. It has two pods, so the controller repeats the same event about it,
	// and it asks for protection. The StatefulSet's pod is evicted.
	parts := func(app string) (metav1.ObjectMeta, *metav1.LabelSelector, v1.PodTemplateSpec) {
		labels := map[string]string{"app": app}
		return metav1.ObjectMeta{Name: app, Annotations: map[string]string{"spot-aware-scheduler.io/min-on-demand": "0"}},
			&metav1.LabelSelector{MatchLabels: labels}, v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}
	}
	meta, selector, template := parts("surge")
	meta.Annotations[spot.ProtectAnnotation] = "true"
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
	if err := live.Until(ctx, limit, func() error { return m.ready(ctx, 4) }); err != nil {
		return m, err
	}

	// The controller deletes a pod that has less time left than its grace period, and released
	// pods whose ReplicaSet no longer exists: one without a controller, and one whose Deployment
	// wants no replicas.
	if err := controlPlane.CreateNodes(ctx, lab.NodeSpec{Name: m.silent, Capacity: lab.Spot},
		lab.NodeSpec{Name: m.room, Capacity: lab.OnDemand, CPU: "10"}); err != nil {
		return m, err
	}
	meta, selector, template = parts("idle")
	idle, err := client.AppsV1().Deployments(m.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: selector, Template: template},
	}, none)
	if err != nil {
		return m, err
	}
	orphan := pod("orphan", func(spec *v1.PodSpec) { spec.NodeName = m.room })
	orphan.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "released"}
	leftover := orphan.DeepCopy()
	leftover.Name = "leftover"
	leftover.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: idle.Name, UID: idle.UID, Controller: ptr.To(true)}}
	controller, err := as(controllerUser, "system:masters") // only this user may mark a pod
	if err != nil {
		return m, err
	}
	for _, p := range []*v1.Pod{orphan, leftover, pod("slow", func(spec *v1.PodSpec) {
		spec.NodeName, spec.TerminationGracePeriodSeconds = m.reclaimed, ptr.To[int64](600)
	})} {
		created, err := controller.CoreV1().Pods(m.namespace).Create(ctx, p, none)
		if err != nil {
			return m, err
		}
		if p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "released" {
			continue
		}
		release := fmt.Sprintf(`{"replicaSet":"gone","replicaSetUID":"gone","pod":%q,"hash":"gone","at":%q}`, created.UID,
			time.Now().UTC().Format(time.RFC3339)) // the scheduler ends old releases
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":%q}}}`, release)
		if _, err := controller.CoreV1().Pods(m.namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return m, err
		}
	}
	if err := live.Until(ctx, limit, func() error { return m.ready(ctx, 7) }); err != nil {
		return m, err
	}
	if err := m.makeBudgets(ctx); err != nil {
		return m, err
	}
	if err := m.makeDisruptedJob(ctx); err != nil {
		return m, err
	}
	unreachable := `{"status":{"conditions":[{"type":"Ready","status":"Unknown","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if _, err := client.CoreV1().Nodes().Patch(ctx, m.silent, types.StrategicMergePatchType, []byte(unreachable), metav1.PatchOptions{}, "status"); err != nil {
		return m, err
	}
	return m, live.EditNode(ctx, client, limit, m.reclaimed, func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: reclaimTaint, Effect: v1.TaintEffectPreferNoSchedule})
		deadline := time.Now().Add(2 * time.Minute)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, "spot-aware-scheduler.io/interruption-deadline", deadline.UTC().Format(time.RFC3339))
	})
}

// makeBrokenFloor creates a Deployment whose only pod runs on spot. Limits bound only the move of
// this pod, so only this move is in the ledger.
func (m *moves) makeBrokenFloor(ctx context.Context) error {
	if err := controlPlane.CreateNodes(ctx, lab.NodeSpec{Name: m.spot, Capacity: lab.Spot}); err != nil {
		return err
	}
	labels := map[string]string{"app": "heal"}
	if _, err := client.AppsV1().Deployments(m.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "heal", Annotations: map[string]string{"spot-aware-scheduler.io/when-unsatisfiable": "ScheduleAnyway"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := live.Until(ctx, limit, func() error { return m.ready(ctx, 1) }); err != nil {
		return err
	}
	return live.EditNode(ctx, client, limit, m.spot, func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "other-pods", Effect: v1.TaintEffectNoSchedule})
	})
}

// makeDisruptedJob creates a Job whose pod has failed because of a disruption. The controller must
// count it. The failed pod remains, so that the controller sees it when it starts.
func (m *moves) makeDisruptedJob(ctx context.Context) error {
	template := v1.PodTemplateSpec{Spec: pod("", onNode(m.room)).Spec}
	template.Labels, template.Spec.RestartPolicy = map[string]string{"app": "disrupted"}, v1.RestartPolicyNever
	if _, err := client.BatchV1().Jobs(m.namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "disrupted", Annotations: map[string]string{spot.DisruptionLimitAnnotation: "3"}},
		Spec:       batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return live.Until(ctx, limit, func() error {
		pods, err := client.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=disrupted"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != v1.PodRunning {
			return fmt.Errorf("the Job has %d pods, want one that runs", len(pods.Items))
		}
		p := &pods.Items[0]
		p.Status.Phase = v1.PodFailed
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"})
		_, err = client.CoreV1().Pods(m.namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
		return err
	})
}

// makeBudgets creates two PodDisruptionBudgets of the controller. The controller must correct one,
// because it differs from the desired state, and delete the other.
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
	for _, name := range []string{"kept-protected", "obsolete-protected"} {
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

// budgets returns an error unless exactly the protected workloads have a PodDisruptionBudget, and
// each allows no disruption.
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
		return fmt.Errorf("PodDisruptionBudgets allow %v, want %v", got, want)
	}
	return nil
}

// reclaimTaint is set by the AWS node termination handler on a node that is about to be reclaimed.
const reclaimTaint = "aws-node-termination-handler/spot-itn"

// ready returns an error unless there are exactly want pods and all are ready. It records their
// UIDs.
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

// keepChanging changes nothing: the controller has enough to do.
func (m *moves) keepChanging(ctx context.Context) { <-ctx.Done() }

// done returns an error unless all the pods are gone, the disruption of the Job was counted, and an
// event was repeated.
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
	job, err := client.BatchV1().Jobs(m.namespace).Get(ctx, "disrupted", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if n := job.Annotations[spot.DisruptionsAnnotation]; n != "1" {
		return fmt.Errorf("the Job has %q disruptions, want 1", n)
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
	return fmt.Errorf("no event was repeated: %v", events.Items)
}

// remove deletes the nodes and the pods, and returns when they are gone.
func (m *moves) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := live.Clear(ctx, client, m.namespace); err != nil {
		return err
	}
	for _, node := range []string{m.spot, m.reclaimed, m.silent, m.room} {
		if err := client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return client.CoreV1().Namespaces().Delete(ctx, m.namespace, metav1.DeleteOptions{})
}
