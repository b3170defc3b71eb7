package kube

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Subject is a pod to place, with what it belongs to.
type Subject struct {
	decision.Pod
	// RevisionKey is the key of what the pod's siblings are counted by: its controller, or itself without one.
	RevisionKey OwnerKey
	// WorkloadKey is the key of the object that carries the replica count and the annotations; RevisionKey if that is the same object.
	WorkloadKey OwnerKey
	// RevisionNumber is that of the ReplicaSet in its Deployment, as of the function of that name; 0 for all other workloads.
	RevisionNumber int64
}

// OwnerKey identifies the controller of a pod or ReplicaSet. It has the namespace and the kind beside the UID because owner references are
// written by tenants: the UID of an object of another namespace or kind identifies nothing. The version is left out: a reference keeps the
// one that its writer used.
type OwnerKey struct {
	Namespace, Group, Kind string
	UID                    types.UID
}

// KeyOf returns the key of what ref, on an object of that namespace, refers to.
func KeyOf(namespace string, ref *metav1.OwnerReference) OwnerKey {
	return OwnerKey{Namespace: namespace, Group: groupOf(ref), Kind: ref.Kind, UID: ref.UID}
}

// RevisionOf returns the key that pod's siblings are counted by; see Subject.RevisionKey.
func RevisionOf(pod *v1.Pod) OwnerKey {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return KeyOf(pod.Namespace, ref)
	}
	return OwnerKey{Namespace: pod.Namespace, Kind: "Pod", UID: pod.UID}
}

// ControllerKey returns the key of object, which is of one of the kinds that Owners watches; false for every other kind.
func ControllerKey(object metav1.Object) (OwnerKey, bool) {
	key := OwnerKey{Namespace: object.GetNamespace(), Group: appsv1.GroupName, UID: object.GetUID()}
	switch object.(type) {
	case *appsv1.ReplicaSet:
		key.Kind = "ReplicaSet"
	case *appsv1.Deployment:
		key.Kind = "Deployment"
	case *appsv1.StatefulSet:
		key.Kind = "StatefulSet"
	case *v1.ReplicationController:
		key.Group, key.Kind = v1.GroupName, "ReplicationController"
	case *batchv1.Job:
		key.Group, key.Kind = batchv1.GroupName, "Job"
	default:
		return OwnerKey{}, false
	}
	return key, true
}

// UnknownOwner is the error for a pod whose owner is not in the cache, or not yet: what it may do cannot be known, and is not guessed.
type UnknownOwner struct {
	Name string
	Key  OwnerKey
	// Going: the owner is there, but is being deleted: its pods are deleted with it or left to themselves, one by one, so neither its
	// replica count nor the number of siblings says anything any more.
	Going bool
}

func (e *UnknownOwner) Error() string {
	if e.Going {
		return fmt.Sprintf("owner is being deleted: waits until %s %s/%s is gone", e.Key.Kind, e.Key.Namespace, e.Name)
	}
	return fmt.Sprintf("owner not known yet: waits for %s %s/%s to appear in the cache", e.Key.Kind, e.Key.Namespace, e.Name)
}

// HasOpinion reports whether the policy says anything about pod: not about those of a DaemonSet and static pods, which are tied
// to their node.
func HasOpinion(pod *v1.Pod) bool {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref == nil || !isKind(ref, appsv1.SchemeGroupVersion.Group, "DaemonSet") && !isKind(ref, v1.GroupName, "Node")
}

// Owners looks up the workloads behind pods in shared informer caches.
type Owners struct {
	policy       *decision.Policy
	replicaSets  appslisters.ReplicaSetLister
	deployments  appslisters.DeploymentLister
	statefulSets appslisters.StatefulSetLister
	controllers  corelisters.ReplicationControllerLister
	jobs         batchlisters.JobLister

	replicaSetIndex, podIndex cache.Indexer
	informers                 []cache.SharedIndexInformer
}

// The indexes that Owners adds to the shared informers: both by the key of an object's controller. That of pods holds only those
// whose controller is of a kind that is not known here.
const (
	replicaSetsByController = "spot-aware-scheduler.io/replicasets-by-controller"
	podsByUnknownController = "spot-aware-scheduler.io/pods-by-unknown-controller"
)

// NewOwners registers the informers it needs with factory, which must not have been started: an informer asked for later would
// never be. It adds its indexes to them, once for all that are made from factory, and has them hold owners as Trim does. Only Subject reads policy, and must not be called if
// that is nil.
func NewOwners(factory informers.SharedInformerFactory, policy *decision.Policy) (*Owners, error) {
	apps, core, batch := factory.Apps().V1(), factory.Core().V1(), factory.Batch().V1()
	o := &Owners{
		policy:          policy,
		replicaSets:     apps.ReplicaSets().Lister(),
		deployments:     apps.Deployments().Lister(),
		statefulSets:    apps.StatefulSets().Lister(),
		controllers:     core.ReplicationControllers().Lister(),
		jobs:            batch.Jobs().Lister(),
		replicaSetIndex: apps.ReplicaSets().Informer().GetIndexer(),
		podIndex:        core.Pods().Informer().GetIndexer(),
		informers: []cache.SharedIndexInformer{
			apps.ReplicaSets().Informer(), apps.Deployments().Informer(), apps.StatefulSets().Informer(),
			core.ReplicationControllers().Informer(), batch.Jobs().Informer(),
		},
	}
	for _, informer := range o.informers {
		if err := informer.SetTransform(Trim); err != nil {
			return nil, err
		}
	}
	if err := addIndex(apps.ReplicaSets().Informer(), replicaSetsByController, func(obj any) ([]string, error) {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
				return []string{KeyOf(rs.Namespace, ref).Index()}, nil
			}
		}
		return nil, nil
	}); err != nil {
		return nil, err
	}
	return o, addIndex(core.Pods().Informer(), podsByUnknownController, func(obj any) ([]string, error) {
		if pod, ok := obj.(*v1.Pod); ok && CountedByPods(pod) {
			return []string{RevisionOf(pod).Index()}, nil
		}
		return nil, nil
	})
}

// Index returns k as the value of an index. No two keys have the same: group and kind, which tenants write, are quoted.
func (k OwnerKey) Index() string {
	return k.Namespace + "/" + strconv.Quote(k.Group) + strconv.Quote(k.Kind) + string(k.UID)
}

// addIndex adds an index to a shared informer, once for all profiles of a scheduler.
func addIndex(informer cache.SharedIndexInformer, name string, index cache.IndexFunc) error {
	if _, ok := informer.GetIndexer().GetIndexers()[name]; ok {
		return nil
	}
	return informer.AddIndexers(cache.Indexers{name: index})
}

// Informers returns the informers of the kinds that own pods: a change of one of their objects may change what a pod may do.
func (o *Owners) Informers() []cache.SharedIndexInformer { return o.informers }

// Subject returns what pod belongs to. The error is an *UnknownOwner or one of the cache.
func (o *Owners) Subject(pod *v1.Pod) (*Subject, error) { return o.subject(pod, o.livePods) }

// Subjects returns a function that is Subject for many pods at one moment: it counts the live pods of a controller once.
func (o *Owners) Subjects() func(pod *v1.Pod) (*Subject, error) {
	counts := map[OwnerKey]int{}
	livePods := func(controller OwnerKey) (int, error) {
		if n, ok := counts[controller]; ok {
			return n, nil
		}
		n, err := o.livePods(controller)
		if err == nil {
			counts[controller] = n
		}
		return n, err
	}
	return func(pod *v1.Pod) (*Subject, error) { return o.subject(pod, livePods) }
}

func (o *Owners) subject(pod *v1.Pod, livePods func(OwnerKey) (int, error)) (*Subject, error) {
	s := &Subject{
		Pod: decision.Pod{
			Namespace:     pod.Namespace,
			Labels:        pod.Labels,
			Annotations:   pod.Annotations,
			PriorityClass: pod.Spec.PriorityClassName,
			Priority:      corev1.PodPriority(pod),
			QOSClass:      string(pod.Status.QOSClass),
			OnlySpot:      onlySpot(pod, o.policy),
			OnlyOnDemand:  OnlyOnDemand(pod, o.policy),
			Assigned:      AssignmentOf(pod),
			Granted:       GrantOf(pod),
		},
		RevisionKey: RevisionOf(pod),
	}
	s.WorkloadKey = s.RevisionKey
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		s.Pod.Workload = decision.Workload{Kind: "Pod", Revision: pod.Namespace + "/" + pod.Name, Desired: 1}
		return s, nil
	}
	s.Pod.Workload = decision.Workload{Kind: ref.Kind, Revision: pod.Namespace + "/" + ref.Name}
	var err error
	switch w := &s.Pod.Workload; {
	case isKind(ref, appsv1.GroupName, "ReplicaSet"):
		err = o.replicaSet(pod.Namespace, ref, s)
	case isKind(ref, appsv1.GroupName, "StatefulSet"):
		err = o.statefulSet(pod, ref, w)
	case isKind(ref, v1.GroupName, "ReplicationController"):
		var rc *v1.ReplicationController
		if rc, err = getController(o.controllers.ReplicationControllers(pod.Namespace).Get, pod.Namespace, ref); err == nil {
			w.Annotations, w.Desired = rc.Annotations, Replicas(rc.Spec.Replicas)
		}
	case isKind(ref, batchv1.GroupName, "Job"):
		var job *batchv1.Job
		if job, err = getController(o.jobs.Jobs(pod.Namespace).Get, pod.Namespace, ref); err == nil {
			w.Annotations, w.Desired, w.Batch = job.Annotations, jobDesired(job), batchOf(job)
		}
	case isKind(ref, appsv1.GroupName, "Deployment"):
		// Its ReplicaSets control pods, and it controls none. Counted by its key, such a pod would be one of the workload's own.
		err = &UnknownOwner{Name: ref.Name, Key: s.RevisionKey}
	default:
		w.Desired, err = livePods(s.RevisionKey)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (o *Owners) replicaSet(namespace string, ref *metav1.OwnerReference, s *Subject) error {
	rs, err := getController(o.replicaSets.ReplicaSets(namespace).Get, namespace, ref)
	if err != nil {
		return err
	}
	w := &s.Pod.Workload
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil || !isKind(owner, appsv1.GroupName, "Deployment") {
		w.Annotations, w.Desired = rs.Annotations, Replicas(rs.Spec.Replicas)
		return nil
	}
	deployment, err := get(o.deployments.Deployments(namespace).Get, namespace, owner)
	if err != nil {
		return err
	}
	w.Kind, w.Annotations, w.Desired = owner.Kind, deployment.Annotations, Replicas(deployment.Spec.Replicas)
	s.WorkloadKey, s.RevisionNumber = KeyOf(namespace, owner), RevisionNumber(rs)
	return nil
}

func (o *Owners) statefulSet(pod *v1.Pod, ref *metav1.OwnerReference, w *decision.Workload) error {
	set, err := getController(o.statefulSets.StatefulSets(pod.Namespace).Get, pod.Namespace, ref)
	if err != nil {
		return err
	}
	w.Annotations, w.Desired, w.Ordered = set.Annotations, Replicas(set.Spec.Replicas), true
	w.HoldsUpLater = set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	// A pod whose name does not say its ordinal is treated as one of the floor's.
	w.Ordinal = -1
	if ordinal, err := strconv.Atoi(strings.TrimPrefix(pod.Name, set.Name+"-")); err == nil {
		w.Ordinal = ordinal
	}
	if set.Spec.Ordinals != nil {
		w.Ordinal -= int(set.Spec.Ordinals.Start)
	}
	return nil
}

// CountedByPods reports whether pod's controller is of a kind that is not known here, so that its replica count is that of its live
// pods (Subject asks the pod informer for them).
func CountedByPods(pod *v1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && !isKnown(ref)
}

// livePods counts the pods of a controller of an unknown kind: the nearest thing to a replica count that it has.
func (o *Owners) livePods(controller OwnerKey) (int, error) {
	objs, err := o.podIndex.ByIndex(podsByUnknownController, controller.Index())
	if err != nil {
		return 0, err
	}
	n := 0
	for _, obj := range objs {
		if pod, ok := obj.(*v1.Pod); ok && Live(pod) {
			n++
		}
	}
	return n, nil
}

// Live reports whether pod counts: it is neither terminal nor terminating.
func Live(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

// OlderRevisions returns the ReplicaSets of s's Deployment that are older than its own, by their keys as in Subject.RevisionKey; none for
// every other workload.
func (o *Owners) OlderRevisions(s *Subject) ([]OwnerKey, error) {
	if s.WorkloadKey == s.RevisionKey {
		return nil, nil
	}
	objs, err := o.replicaSetIndex.ByIndex(replicaSetsByController, s.WorkloadKey.Index())
	if err != nil {
		return nil, err
	}
	var own int64
	for _, obj := range objs {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok && rs.UID == s.RevisionKey.UID {
			own = RevisionNumber(rs)
		}
	}
	var older []OwnerKey
	for _, obj := range objs {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok && rs.UID != s.RevisionKey.UID && RevisionNumber(rs) < own {
			key, _ := ControllerKey(rs)
			older = append(older, key)
		}
	}
	return older, nil
}

// OtherRevision reports whether other belongs to another revision of pod's Deployment.
func (o *Owners) OtherRevision(pod, other *v1.Pod) bool {
	if pod.Namespace != other.Namespace || RevisionOf(pod) == RevisionOf(other) {
		return false
	}
	a, b := o.deploymentOf(pod), o.deploymentOf(other)
	return a != OwnerKey{} && a == b
}

// deploymentOf returns the key of pod's Deployment, the zero key if it has none or its ReplicaSet is not in the cache.
func (o *Owners) deploymentOf(pod *v1.Pod) OwnerKey {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || !isKind(ref, appsv1.GroupName, "ReplicaSet") {
		return OwnerKey{}
	}
	rs, err := get(o.replicaSets.ReplicaSets(pod.Namespace).Get, pod.Namespace, ref)
	if err != nil {
		return OwnerKey{}
	}
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil && isKind(owner, appsv1.GroupName, "Deployment") {
		return KeyOf(pod.Namespace, owner)
	}
	return OwnerKey{}
}

// RevisionNumber orders the ReplicaSets of a Deployment, the newest has the highest; 0 if the Deployment controller has given none. An
// undone rollout gives an old ReplicaSet the newest number.
func RevisionNumber(rs *appsv1.ReplicaSet) int64 {
	n, _ := strconv.ParseInt(rs.Annotations[revisionAnnotation], 10, 64)
	return n
}

// jobDesired is how many pods a Job still wants to run at once.
func jobDesired(job *batchv1.Job) int {
	desired := Replicas(job.Spec.Parallelism)
	if job.Spec.Completions != nil {
		desired = min(desired, int(*job.Spec.Completions-job.Status.Succeeded))
	}
	return max(desired, 0)
}

// batchOf tells whether a lost pod only costs time. The first rule of a podFailurePolicy that speaks of disruptions decides; without
// one a Job starts a lost pod again unless its limit, or with a limit per index each index's, is 0.
func batchOf(job *batchv1.Job) decision.Batch {
	if policy := job.Spec.PodFailurePolicy; policy != nil {
		for i := range policy.Rules {
			switch rule := &policy.Rules[i]; {
			case !onDisruption(rule) || rule.Action == batchv1.PodFailurePolicyActionCount:
			case rule.Action == batchv1.PodFailurePolicyActionIgnore:
				return decision.Retriable
			default: // FailJob, FailIndex
				return decision.NotRetriable
			}
		}
	}
	once := func(limit *int32) bool { return limit != nil && *limit == 0 }
	if once(job.Spec.BackoffLimit) || once(job.Spec.BackoffLimitPerIndex) {
		return decision.NotRetriable
	}
	return decision.Retriable
}

// onDisruption reports whether a rule applies to pods that a reclaim or a drain removes.
func onDisruption(rule *batchv1.PodFailurePolicyRule) bool {
	return slices.ContainsFunc(rule.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
		return c.Type == v1.DisruptionTarget && (c.Status == v1.ConditionTrue || c.Status == "")
	})
}

// getController is get for a pod's own controller. One that is being deleted makes no pods any more, and lets go of those it has.
func getController[T metav1.Object](lookUp func(name string) (T, error), namespace string, ref *metav1.OwnerReference) (T, error) {
	obj, err := get(lookUp, namespace, ref)
	if err == nil && obj.GetDeletionTimestamp() != nil {
		return obj, &UnknownOwner{Name: ref.Name, Key: KeyOf(namespace, ref), Going: true}
	}
	return obj, err
}

// get looks ref up by name, and takes only the very object that it means: one that was made anew under the name is another.
func get[T metav1.Object](lookUp func(name string) (T, error), namespace string, ref *metav1.OwnerReference) (T, error) {
	obj, err := lookUp(ref.Name)
	if apierrors.IsNotFound(err) || err == nil && obj.GetUID() != ref.UID {
		return obj, &UnknownOwner{Name: ref.Name, Key: KeyOf(namespace, ref)}
	}
	return obj, err
}

// Replicas reads an optional count: the API's default for one that is not set is 1.
func Replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// isKnown reports whether Subject looks ref up itself, or leaves its pods alone.
func isKnown(ref *metav1.OwnerReference) bool {
	switch ref.Kind {
	case "ReplicaSet", "StatefulSet", "DaemonSet", "Deployment":
		return isKind(ref, appsv1.GroupName, ref.Kind)
	case "Job":
		return isKind(ref, batchv1.GroupName, ref.Kind)
	case "ReplicationController", "Node":
		return isKind(ref, v1.GroupName, ref.Kind)
	}
	return false
}

// IsDeployment reports whether ref is to a Deployment. It controls pods only that were released from one of its ReplicaSets.
func IsDeployment(ref *metav1.OwnerReference) bool {
	return isKind(ref, appsv1.GroupName, "Deployment")
}

// isKind compares the group, not the version; see OwnerKey.
func isKind(ref *metav1.OwnerReference, group, kind string) bool {
	return ref.Kind == kind && groupOf(ref) == group
}

// groupOf returns the API group that ref names; that of an unversioned name such as v1 is the core group.
func groupOf(ref *metav1.OwnerReference) string {
	if group, _, versioned := strings.Cut(ref.APIVersion, "/"); versioned {
		return group
	}
	return v1.GroupName
}
