package migration_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const (
	namespace = clustertest.Namespace
	hashKey   = appsv1.DefaultDeploymentUniqueLabelKey
)

var start = clustertest.Now

// world is a mock of a cluster: an API server with preconditions and PodDisruptionBudgets, the
// ReplicaSet controller, the scheduler and kubelets. Each acts only when a test calls it. The tests
// of package execution are here too, because they perform plans in this mock.
type world struct {
	objects
	now     time.Time
	version int
	// seen are the objects in the informers' caches.
	seen objects
	// caches are the informers' caches, which snapshot fills with seen.
	caches *clustertest.World
	// fail, if set, answers a request instead of the API server. before: the request fails before
	// it is performed, not after.
	fail func(verb, resource, name string) (err error, before bool)
	// calm: the node "reclaimed" has no reclaim signal.
	calm bool
	// drained are the nodes with a drain signal.
	drained []string
	// reclaimed are more nodes with a reclaim signal.
	reclaimed []string
	// grace are the grace periods, in seconds, of the pods that ReplicaSets of an app create; 30
	// for others.
	grace map[string]int64
	// log contains the requests that changed an object.
	log []string
	// mayDelete and mayEvict, if set, are called for every deletion and eviction.
	mayDelete, mayEvict func(pod *v1.Pod)
	// removed are the pods that were evicted or deleted since the last sync of the caches, at
	// synced.
	removed map[string]bool
	synced  time.Time
}

type objects struct {
	nodes       map[string]*v1.Node
	pods        map[string]*v1.Pod
	replicaSets map[string]*appsv1.ReplicaSet
	deployments map[string]*appsv1.Deployment
	sets        map[string]*appsv1.StatefulSet
	budgets     []*policyv1.PodDisruptionBudget
	others      []runtime.Object // which do not change
}

func newWorld(t clustertest.TB) *world {
	w := &world{now: start, caches: clustertest.NewWorld(t), grace: map[string]int64{}, objects: objects{
		nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{}, replicaSets: map[string]*appsv1.ReplicaSet{},
		deployments: map[string]*appsv1.Deployment{}, sets: map[string]*appsv1.StatefulSet{},
	}}
	w.node("reclaimed")
	w.node("remaining")
	w.caches.Policy.Defaults = decision.WorkloadSettings{}
	return w
}

// admit gives an object the metadata of a new object in this API server. Its UID is unique.
func (w *world) admit(object metav1.Object) {
	w.touch(object)
	object.SetUID(types.UID(fmt.Sprintf("%s-%d", object.GetName(), w.version)))
	object.SetCreationTimestamp(metav1.NewTime(w.now))
}

func (w *world) node(name string) *v1.Node {
	n := clustertest.NewNode(name, "on-demand", "m/a")
	w.admit(n)
	w.nodes[name] = n
	return n
}

// deployment adds a Deployment with its ReplicaSet.
func (w *world) deployment(name string, n int32) *appsv1.Deployment {
	d := clustertest.NewDeployment(name, n)[0].(*appsv1.Deployment)
	w.admit(d)
	w.deployments[name] = d
	w.replicaSet(name+"-1", name, n, d)
	return d
}

// replicaSet adds a ReplicaSet as the Deployment controller creates it, owned by d unless d is nil.
func (w *world) replicaSet(name, app string, n int32, d *appsv1.Deployment) *appsv1.ReplicaSet {
	rs := clustertest.NewReplicaSet(app, name, n)
	rs.Name, rs.OwnerReferences = name, nil
	if d != nil {
		rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	}
	w.admit(rs)
	w.replicaSets[name] = rs
	return rs
}

func (w *world) statefulSet(name string, n int32) *appsv1.StatefulSet {
	set := clustertest.NewStatefulSet(name, n)
	w.admit(set)
	w.sets[name] = set
	return set
}

// pod adds a pod of a ReplicaSet, of a StatefulSet, or without an owner. With a node it is ready,
// and a day old.
func (w *world) pod(name string, owner metav1.Object, node string) *v1.Pod {
	pod := clustertest.NewPod(name)
	pod.Labels = map[string]string{"app": name}
	w.admit(pod)
	switch owner := owner.(type) {
	case *appsv1.ReplicaSet:
		pod.Labels = maps.Clone(owner.Spec.Selector.MatchLabels)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		if grace, ok := w.grace[pod.Labels["app"]]; ok {
			pod.Spec.TerminationGracePeriodSeconds = &grace
		}
	case *appsv1.StatefulSet:
		pod.Labels = map[string]string{"app": owner.Name}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	}
	pod.Status.Phase = v1.PodPending
	w.pods[name] = pod
	if node != "" {
		pod.CreationTimestamp = metav1.NewTime(w.now.Add(-24 * time.Hour))
		w.run(pod, node)
	}
	return pod
}

// run makes a pod run and become ready.
func (w *world) run(pod *v1.Pod, node string) {
	pod.Spec.NodeName, pod.Status.Phase = node, v1.PodRunning
	w.setReady(pod, v1.ConditionTrue)
}

func (w *world) setReady(pod *v1.Pod, status v1.ConditionStatus) {
	w.touch(pod)
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(w.now)}}
}

// released makes a pod one that was released this long ago, after its ReplicaSet has removed its
// owner reference.
func (w *world) released(pod *v1.Pod, ago time.Duration) *v1.Pod {
	return w.releasedFor(pod, migration.Heal, ago)
}

func (w *world) releasedFor(pod *v1.Pod, reason migration.Reason, ago time.Duration) *v1.Pod {
	clustertest.ReleaseFor(string(reason), w.now.Add(-ago), pod)
	return pod
}

// handOver makes the Deployment the controller of the released pod "old".
func handOver(w *world) { w.pods["old"].OwnerReferences = w.replicaSets["web-1"].OwnerReferences }

// budget adds a PodDisruptionBudget for the pods of an app, with this minAvailable.
func (w *world) budget(app string, least int32) {
	budget := clustertest.NewBudget(app, least)
	if len(w.budgets) > 0 {
		budget.Name = fmt.Sprint(app, len(w.budgets))
	}
	w.admit(budget)
	w.budgets = append(w.budgets, budget)
}

// service adds a Service that selects these labels.
func (w *world) service(selects map[string]string) {
	name := fmt.Sprint("service-", len(w.others))
	w.others = append(w.others, &v1.Service{ObjectMeta: clustertest.Meta(name), Spec: v1.ServiceSpec{Selector: selects}})
}

// daemonSet adds a DaemonSet that selects the pods of an app.
func (w *world) daemonSet(name, app string) {
	w.others = append(w.others, &appsv1.DaemonSet{ObjectMeta: clustertest.Meta(name), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}})
}

func (w *world) touch(object metav1.Object) {
	w.version++
	object.SetResourceVersion(fmt.Sprint(w.version))
}

// sync updates the caches.
func (w *world) sync() {
	w.synced = w.now
	w.removed = map[string]bool{}
	for i, budget := range w.budgets { // the disruption controller
		w.budgets[i] = budget.DeepCopy()
		w.budgets[i].Status.DisruptionsAllowed = int32(max(w.allows(budget), 0))
		w.budgets[i].Status.DesiredHealthy = ptr.Deref(budget.Spec.MinAvailable, intstr.IntOrString{}).IntVal
	}
	w.seen = objects{
		nodes: copied(w.nodes, (*v1.Node).DeepCopy), pods: copied(w.pods, (*v1.Pod).DeepCopy),
		replicaSets: copied(w.replicaSets, (*appsv1.ReplicaSet).DeepCopy), deployments: copied(w.deployments, (*appsv1.Deployment).DeepCopy),
		sets: copied(w.sets, (*appsv1.StatefulSet).DeepCopy), budgets: slices.Clone(w.budgets), others: slices.Clone(w.others),
	}
}

func copied[T any](of map[string]*T, one func(*T) *T) map[string]*T {
	all := map[string]*T{}
	for name, object := range of {
		all[name] = one(object)
	}
	return all
}

// snapshot returns what package snapshot reads from the caches, with a reclaim signal on the node
// "reclaimed".
func (w *world) snapshot() *snapshot.Snapshot {
	all := slices.Concat(values(w.seen.nodes), values(w.seen.pods), values(w.seen.replicaSets), values(w.seen.deployments), values(w.seen.sets), w.seen.others)
	for _, budget := range w.seen.budgets {
		all = append(all, budget)
	}
	w.caches.Replace(all...)
	s := w.caches.SnapshotAt(w.now)
	for _, node := range s.Nodes {
		switch {
		case slices.Contains(w.reclaimed, node.Name) || node.Name == "reclaimed" && !w.calm:
			node.Facts.Signal = decision.Reclaim
		case slices.Contains(w.drained, node.Name):
			node.Facts.Signal = decision.Drain
		}
	}
	return s
}

func values[T runtime.Object](of map[string]T) (all []runtime.Object) {
	for _, object := range of {
		all = append(all, object)
	}
	return all
}

// client returns a client of the world's API server.
func (w *world) client() *fake.Clientset {
	c := &fake.Clientset{}
	c.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var name string
		switch a := action.(type) {
		case interface{ GetName() string }: // get, patch, delete
			name = a.GetName()
		case clienttesting.CreateAction:
			name = a.GetObject().(metav1.Object).GetName()
		}
		verb, resource := action.GetVerb(), action.GetResource().Resource
		if action.GetSubresource() == "eviction" {
			verb = "evict"
		}
		if action.GetSubresource() == "status" {
			verb = "patch status"
		}
		var failed error
		if w.fail != nil {
			var before bool
			if failed, before = w.fail(verb, resource, name); failed != nil && before {
				return true, nil, failed
			}
		}
		object, err := w.answer(verb, resource, name, action)
		return true, object, cmp.Or(failed, err)
	})
	return c
}

func (w *world) answer(verb, resource, name string, action clienttesting.Action) (runtime.Object, error) {
	group := action.GetResource().GroupResource()
	if resource == "replicasets" {
		if rs, ok := w.replicaSets[name]; ok {
			return rs.DeepCopy(), nil
		}
		return nil, apierrors.NewNotFound(group, name)
	}
	if resource == "deployments" {
		if d, ok := w.deployments[name]; ok {
			return d.DeepCopy(), nil
		}
		return nil, apierrors.NewNotFound(group, name)
	}
	pod, ok := w.pods[name]
	if !ok {
		return nil, apierrors.NewNotFound(group, name)
	}
	switch verb {
	case "get":
		return pod.DeepCopy(), nil
	case "patch":
		patch := action.(clienttesting.PatchAction).GetPatch()
		var expected v1.Pod
		if err := json.Unmarshal(patch, &expected); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if expected.UID != pod.UID || expected.ResourceVersion != pod.ResourceVersion {
			return nil, apierrors.NewConflict(group, name, errors.New("precondition"))
		}
		if err := patchPod(pod, patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		w.touch(pod)
		w.log = append(w.log, "patch "+name)
		return pod.DeepCopy(), nil
	case "patch status":
		var patch struct {
			Metadata struct{ UID types.UID }
			Status   struct{ Conditions []v1.PodCondition }
		}
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if patch.Metadata.UID != pod.UID {
			return nil, apierrors.NewConflict(group, name, errors.New("precondition"))
		}
		pod.Status.Conditions = append(pod.Status.Conditions, patch.Status.Conditions...)
		w.touch(pod)
		return pod.DeepCopy(), nil
	case "delete":
		options := action.(clienttesting.DeleteAction).GetDeleteOptions()
		if *options.Preconditions.UID != pod.UID {
			return nil, apierrors.NewConflict(group, name, errors.New("precondition"))
		}
		if w.mayDelete != nil {
			w.mayDelete(pod)
		}
		w.removed[name] = true
		grace := ""
		if options.GracePeriodSeconds != nil {
			grace = fmt.Sprintf(" %ds", *options.GracePeriodSeconds)
		}
		w.log = append(w.log, "delete "+name+grace)
		w.terminate(pod)
		return nil, nil
	case "evict":
		options := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).DeleteOptions
		if *options.Preconditions.UID != pod.UID {
			return nil, apierrors.NewConflict(group, name, errors.New("precondition"))
		}
		if !w.mayDisrupt(pod) {
			return nil, tooManyRequests()
		}
		if w.mayEvict != nil {
			w.mayEvict(pod)
		}
		w.removed[name] = true
		w.log = append(w.log, "evict "+name)
		w.terminate(pod)
		return nil, nil
	}
	return nil, fmt.Errorf("%s %s: unexpected", verb, resource)
}

// patchPod applies a strategic merge patch to the metadata of a pod, like the API server.
func patchPod(pod *v1.Pod, patch []byte) error {
	before, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	if err != nil {
		return err
	}
	var patched v1.Pod
	if err := json.Unmarshal(after, &patched); err != nil {
		return err
	}
	pod.Labels, pod.Annotations, pod.OwnerReferences = patched.Labels, patched.Annotations, patched.OwnerReferences
	return nil
}

// tooManyRequests is the answer of the API server if a PodDisruptionBudget refuses.
func tooManyRequests() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}
	return err
}

func (w *world) terminate(pod *v1.Pod) {
	if pod.Spec.NodeName == "" {
		delete(w.pods, pod.Name)
		return
	}
	if pod.DeletionTimestamp == nil {
		now := metav1.NewTime(w.now)
		pod.DeletionTimestamp = &now
		w.touch(pod)
	}
}

// mayDisrupt reports whether every PodDisruptionBudget that selects the pod allows a disruption.
func (w *world) mayDisrupt(pod *v1.Pod) bool {
	for _, budget := range w.budgets {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) || !isReady(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if w.allows(budget) <= 0 {
			return false
		}
	}
	return true
}

// allows returns how many disruptions a PodDisruptionBudget allows.
func (w *world) allows(budget *policyv1.PodDisruptionBudget) int {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		panic(err)
	}
	healthy := 0
	for _, pod := range w.pods {
		if selector.Matches(labels.Set(pod.Labels)) && isReady(pod) && pod.DeletionTimestamp == nil {
			healthy++
		}
	}
	needed := ptr.Deref(budget.Spec.MinAvailable, intstr.FromInt32(0))
	return healthy - needed.IntValue()
}

func isReady(pod *v1.Pod) bool {
	return len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == v1.ConditionTrue
}

// control runs the Kubernetes controllers once. ReplicaSets release, adopt, create and delete pods.
// The garbage collector deletes objects without an existing owner.
func (w *world) control() {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		owner := metav1.GetControllerOf(pod)
		if owner != nil && owner.Kind == "Deployment" && (w.deployments[owner.Name] == nil || w.deployments[owner.Name].UID != owner.UID) {
			w.terminate(pod)
		}
		if owner == nil || owner.Kind != "ReplicaSet" {
			continue
		}
		switch rs, ok := w.replicaSets[owner.Name]; {
		case !ok || rs.UID != owner.UID:
			w.terminate(pod)
		case !selects(rs, pod) && pod.DeletionTimestamp == nil:
			pod.OwnerReferences = nil
			w.touch(pod)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.replicaSets)) {
		rs := w.replicaSets[name]
		var active []*v1.Pod
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			pod := w.pods[name]
			if by := metav1.GetControllerOf(pod); !selects(rs, pod) || pod.DeletionTimestamp != nil || by != nil && by.UID != rs.UID {
				continue
			}
			if metav1.GetControllerOf(pod) == nil {
				pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
				w.touch(pod)
			}
			active = append(active, pod)
		}
		for n := len(active); n < int(*rs.Spec.Replicas); n++ {
			w.pod(fmt.Sprintf("%s-%d", rs.Name, w.version), rs, "")
		}
		// Unready pods first, then the youngest.
		slices.SortStableFunc(active, func(a, b *v1.Pod) int {
			return cmp.Or(cmp.Compare(number(isReady(a)), number(isReady(b))), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
		})
		for _, pod := range active[:max(0, len(active)-int(*rs.Spec.Replicas))] {
			w.terminate(pod)
		}
	}
}

func selects(rs *appsv1.ReplicaSet, pod *v1.Pod) bool {
	return labels.SelectorFromSet(rs.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// startPods starts pending pods, and endPods removes terminating ones.
func (w *world) startPods() {
	for _, pod := range w.pods {
		if pod.Spec.NodeName == "" {
			w.run(pod, "remaining")
		}
	}
}

func (w *world) endPods() {
	maps.DeleteFunc(w.pods, func(_ string, pod *v1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// moves returns moves of the named pods.
func moves(s *snapshot.Snapshot, reason migration.Reason, deadline time.Time, names ...string) []migration.Move {
	var all []migration.Move
	for _, pod := range s.Pods {
		if slices.Contains(names, pod.Name) {
			all = append(all, migration.Move{Pod: pod, Reason: reason, Deadline: deadline})
		}
	}
	return all
}

// room is a Room for this many replacements.
type room struct {
	left  int
	taken []string
}

func (r *room) Replace(p *snapshot.Pod, _ decision.AssignedCapacity) (*snapshot.Node, string) {
	r.taken = append(r.taken, p.Name)
	if r.left--; r.left < 0 {
		return nil, "all full"
	}
	return &snapshot.Node{Node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "remaining"}}}, ""
}

// describe formats actions.
func describe(actions []migration.Action) []string {
	var all []string
	for _, a := range actions {
		words := []string{string(a.Kind), a.Pod.Name}
		if a.Method != "" {
			words = append(words, "by "+string(a.Method))
		}
		if a.Grace != nil {
			words = append(words, a.Grace.String())
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}
