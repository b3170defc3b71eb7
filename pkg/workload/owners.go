package workload

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// Subject is a pod to place, with its workload and revision.
type Subject struct {
	decision.Pod
	// RevisionKey identifies the group in which the pod and its siblings are counted: its
	// controller, the pods that its controller did not create, or the pod itself if it has none.
	RevisionKey OwnerKey
	// WorkloadKey identifies the object with the replica count and the annotations. It equals
	// RevisionKey if that is the same object.
	WorkloadKey OwnerKey
	// GroupsKey is the key of the StatefulSet of the leaders if Workload.Groups is set; else zero.
	GroupsKey OwnerKey
	// RevisionNumber is the number of the ReplicaSet in its workload (see function RevisionNumber);
	// 0 for workloads without revisions.
	RevisionNumber int64
}

// Objects are the objects that own a pod, if they are of a kind that Owners watches, as the caches
// contain them.
type Objects struct {
	// ReplicaSet or StatefulSet is the pod's controller.
	ReplicaSet  *appsv1.ReplicaSet
	StatefulSet *appsv1.StatefulSet
	// Deployment is the controller of ReplicaSet.
	Deployment *appsv1.Deployment
	// Template contains what the pod's controller, of any kind, requests for a new pod, as far as
	// transform.Trim retains it. It is nil if that is unknown, or if HasUnsupportedController.
	Template *v1.PodSpec
}

// UnknownOwner is the error for a pod whose owner is not in the cache (yet). The pod waits, because
// its policy cannot be determined.
type UnknownOwner struct {
	Name string
	Key  OwnerKey
	// BeingDeleted: the owner exists, but is being deleted. The garbage collector deletes or
	// orphans its pods one by one, so neither the replica count nor the number of siblings is
	// meaningful.
	BeingDeleted bool
}

func (e *UnknownOwner) Error() string {
	if e.BeingDeleted {
		return fmt.Sprintf("owner is being deleted: waits until %s %s/%s is deleted", e.Key.Kind, e.Key.Namespace, e.Name)
	}
	return fmt.Sprintf("owner not known yet: waits for %s %s/%s to appear in the cache", e.Key.Kind, e.Key.Namespace, e.Name)
}

// ownerLabels are the labels that controllers give to their pods, and no user.
var ownerLabels = []string{
	appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey, appsv1.StatefulSetPodNameLabel,
	"rollouts-pod-template-hash", batchv1.ControllerUidLabel,
}

// PolicyApplies reports whether the policy applies to the pod. It does not apply to pods of a
// DaemonSet and to static pods, which are bound to their nodes.
func PolicyApplies(pod *v1.Pod) bool {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref == nil || !isKind(ref, appsv1.SchemeGroupVersion.Group, "DaemonSet") && !isKind(ref, v1.GroupName, "Node")
}

// Owners looks up the workloads of pods in shared informer caches.
type Owners struct {
	policy       *decision.Policy
	replicaSets  appslisters.ReplicaSetLister
	deployments  appslisters.DeploymentLister
	statefulSets appslisters.StatefulSetLister
	controllers  corelisters.ReplicationControllerLister
	jobs         batchlisters.JobLister

	domains *domains

	replicaSetIndex, podIndex cache.Indexer
	informers                 []cache.SharedIndexInformer
}

// The indexes that Owners adds to the shared informers. The first two use the key of an object's
// controller, and the index of pods contains only pods whose controller is of an unsupported kind.
// The last one uses the UID of the ReplicaSet that a pod was released from.
const (
	replicaSetsByController  = "spot-aware-scheduler.io/replicasets-by-controller"
	podsByUnknownController  = "spot-aware-scheduler.io/pods-by-unknown-controller"
	releasedPodsByReplicaSet = "spot-aware-scheduler.io/released-pods-by-replicaset"
)

// NewOwners registers the informers that it needs with factory, which must not be started yet: the
// factory does not start informers that are registered later. It adds its indexes once per factory,
// and sets Trim as the transform of the informers. Only Subject reads policy; do not call Subject
// if policy is nil.
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
	var err error
	if o.domains, err = newDomains(factory, policy); err != nil {
		return nil, err
	}
	for _, informer := range o.informers {
		if err := informer.SetTransform(transform.Trim); err != nil {
			return nil, err
		}
	}
	return o, errors.Join(addIndex(apps.ReplicaSets().Informer(), replicaSetsByController, func(obj any) ([]string, error) {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
				return []string{KeyOf(rs.Namespace, ref).Index()}, nil
			}
		}
		return nil, nil
	}), addIndex(core.Pods().Informer(), releasedPodsByReplicaSet, indexReleased),
		addIndex(core.Pods().Informer(), podsByUnknownController, func(obj any) ([]string, error) {
			if pod, ok := obj.(*v1.Pod); ok && HasUnsupportedController(pod) {
				return []string{RevisionOf(pod).Index()}, nil
			}
			return nil, nil
		}))
}

// addIndex adds an index to a shared informer, unless another profile of the scheduler already did.
func addIndex(informer cache.SharedIndexInformer, name string, index cache.IndexFunc) error {
	if _, ok := informer.GetIndexer().GetIndexers()[name]; ok {
		return nil
	}
	return informer.AddIndexers(cache.Indexers{name: index})
}

// Informers returns the informers of the kinds that own pods. A change of one of their objects may
// make a pod schedulable.
func (o *Owners) Informers() []cache.SharedIndexInformer { return o.informers }

// Subject returns the pod with its workload and revision. The error is an *UnknownOwner or an error
// of the cache.
func (o *Owners) Subject(pod *v1.Pod) (*Subject, error) {
	s, _, err := o.subject(pod, o.livePods)
	return s, err
}

// SubjectAndObjects is like Subject, and also returns the objects that it has read.
func (o *Owners) SubjectAndObjects(pod *v1.Pod) (*Subject, Objects, error) {
	return o.subject(pod, o.livePods)
}

// Subjects returns a function like Subject for many pods at one moment. The function counts the
// live pods of each controller only once.
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
	return func(pod *v1.Pod) (*Subject, error) {
		s, _, err := o.subject(pod, livePods)
		return s, err
	}
}

func (o *Owners) subject(pod *v1.Pod, livePods func(OwnerKey) (int, error)) (*Subject, Objects, error) {
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
			Assigned:      AssignedCapacityOf(pod),
			Granted:       GrantOf(pod),

			SpreadByAffinity: SpreadByAffinity(pod),
			SpreadToOnDemand: o.domains.spreadToOnDemand(pod),
		},
		RevisionKey: RevisionOf(pod),
	}
	s.WorkloadKey = s.RevisionKey
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		s.Pod.Workload = decision.Workload{Kind: "Pod", Revision: pod.Namespace + "/" + pod.Name, Desired: 1, OrphanOf: orphanOf(pod)}
		return s, Objects{}, nil
	}
	s.Pod.Workload = decision.Workload{Kind: s.RevisionKey.Kind, Revision: pod.Namespace + "/" + ref.Name}
	var objects Objects
	var err error
	switch w := &s.Pod.Workload; {
	case HasUnsupportedController(pod):
		if role := s.RevisionKey.Role; role != "" {
			w.Revision += " (" + role + ")"
		}
		w.Desired, err = livePods(s.RevisionKey)
	case isKind(ref, appsv1.GroupName, "ReplicaSet"):
		objects, err = o.replicaSet(pod.Namespace, ref, s)
	case isKind(ref, appsv1.GroupName, "StatefulSet"):
		objects, err = o.statefulSet(pod, ref, s)
	case isKind(ref, v1.GroupName, "ReplicationController"):
		var rc *v1.ReplicationController
		if rc, err = getController(o.controllers.ReplicationControllers(pod.Namespace).Get, pod.Namespace, ref); err == nil {
			w.Annotations, w.Desired = rc.Annotations, Replicas(rc.Spec.Replicas)
			if rc.Spec.Template != nil {
				objects.Template = &rc.Spec.Template.Spec
			}
		}
	case isKind(ref, batchv1.GroupName, "Job"):
		var job *batchv1.Job
		if job, err = getController(o.jobs.Jobs(pod.Namespace).Get, pod.Namespace, ref); err == nil {
			w.Annotations, w.Desired = job.Annotations, jobDesired(job)
			w.Batch, w.IgnoresDisruptions = batchOf(job)
			objects.Template = &job.Spec.Template.Spec
		}
	case IsDeployment(ref):
		// The pod claims to be released, so it counts nowhere. If it has to be placed, the claim is
		// false: a released pod has a node.
		s.RevisionKey.Kind, w.Kind, w.Desired = podsOfDeployment, podsOfDeployment, 1
		s.WorkloadKey = s.RevisionKey
	}
	if err != nil {
		return nil, Objects{}, err
	}
	return s, objects, nil
}

// orphanOf returns the label of a pod without a controller that names one, or "".
func orphanOf(pod *v1.Pod) string {
	for _, label := range ownerLabels {
		if pod.Labels[label] != "" {
			return label
		}
	}
	return ""
}

func (o *Owners) replicaSet(namespace string, ref *metav1.OwnerReference, s *Subject) (objects Objects, err error) {
	rs, err := getController(o.replicaSets.ReplicaSets(namespace).Get, namespace, ref)
	if err != nil {
		return objects, err
	}
	objects.ReplicaSet, objects.Template = rs, &rs.Spec.Template.Spec
	w := &s.Pod.Workload
	owner, controller := revisionController(rs)
	if owner == nil || controller.Desired != "" {
		w.Annotations, w.Desired = rs.Annotations, Replicas(rs.Spec.Replicas)
	}
	switch {
	case owner == nil:
		return objects, nil
	case controller.Desired == "":
		objects.Deployment, err = get(o.deployments.Deployments(namespace).Get, namespace, owner)
		if err != nil {
			return objects, err
		}
		w.Annotations, w.Desired = objects.Deployment.Annotations, Replicas(objects.Deployment.Spec.Replicas)
	default:
		if n, err := strconv.ParseInt(rs.Annotations[controller.Desired], 10, 32); err == nil && n >= 0 {
			w.Desired = int(n)
		}
	}
	w.Kind, s.WorkloadKey, s.RevisionNumber = owner.Kind, KeyOf(namespace, owner), RevisionNumber(rs)
	return objects, nil
}

func (o *Owners) statefulSet(pod *v1.Pod, ref *metav1.OwnerReference, s *Subject) (objects Objects, err error) {
	set, err := getController(o.statefulSets.StatefulSets(pod.Namespace).Get, pod.Namespace, ref)
	if err != nil {
		return objects, err
	}
	w := &s.Pod.Workload
	objects.StatefulSet, objects.Template = set, &set.Spec.Template.Spec
	w.Annotations, w.Desired, w.Ordered = set.Annotations, Replicas(set.Spec.Replicas), true
	w.BlocksLater = set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	w.Ordinal = ordinalOf(pod.Name, set.Name)
	if set.Spec.Ordinals != nil {
		w.Ordinal -= int(set.Spec.Ordinals.Start)
	}
	if leader := metav1.GetControllerOfNoCopy(set); leader != nil && isKind(leader, v1.GroupName, "Pod") {
		o.joinGroup(leader.Name, s)
	}
	return objects, nil
}

// joinGroup sets the group of a pod of a StatefulSet that a leader controls, as in a
// LeaderWorkerSet. Without a StatefulSet of the leader the pod has no group.
func (o *Owners) joinGroup(leader string, s *Subject) {
	name := leader[:max(strings.LastIndexByte(leader, '-'), 0)]
	leaders, err := o.statefulSets.StatefulSets(s.Namespace).Get(name)
	if w := &s.Pod.Workload; err == nil && ordinalOf(leader, name) >= 0 {
		w.Groups, w.Group = Replicas(leaders.Spec.Replicas), ordinalOf(leader, name)
		w.Annotations = leaders.Annotations // one floor for all groups and their leaders
		s.GroupsKey, _ = ControllerKey(leaders)
	}
}

// HasUnsupportedController reports whether the pod's controller is of an unsupported kind, or did
// not create the pod. Subject then uses the number of live pods, from the pod informer, as the
// replica count.
func HasUnsupportedController(pod *v1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && (!isSupportedKind(ref) || directKind(pod, ref) != "")
}

// livePods counts the live pods of an unsupported controller, as an estimate of its replica count.
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

// Live reports whether the pod is neither terminal nor terminating.
func Live(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

// Counts reports whether the pod counts as a replica of its controller, as far as the pod shows it:
// it is live and not released, and the policy applies to it.
func Counts(pod *v1.Pod) bool { return Live(pod) && !Released(pod) && PolicyApplies(pod) }

// Ready reports whether the pod is ready, and since when it has been ready or unready.
func Ready(pod *v1.Pod) (since time.Time, ready bool) {
	i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady })
	if i < 0 {
		return time.Time{}, false
	}
	c := &pod.Status.Conditions[i]
	return c.LastTransitionTime.Time, c.Status == v1.ConditionTrue
}

// getController is get for a pod's own controller. It returns an error if the controller is being
// deleted: then it creates no more pods, and its pods are deleted or orphaned.
func getController[T metav1.Object](lookUp func(name string) (T, error), namespace string, ref *metav1.OwnerReference) (T, error) {
	obj, err := get(lookUp, namespace, ref)
	if err == nil && obj.GetDeletionTimestamp() != nil {
		return obj, &UnknownOwner{Name: ref.Name, Key: KeyOf(namespace, ref), BeingDeleted: true}
	}
	return obj, err
}

// get looks up the object that ref refers to by name. It returns an error if the UID differs: the
// object was recreated under the same name.
func get[T metav1.Object](lookUp func(name string) (T, error), namespace string, ref *metav1.OwnerReference) (T, error) {
	obj, err := lookUp(ref.Name)
	if apierrors.IsNotFound(err) || err == nil && obj.GetUID() != ref.UID {
		return obj, &UnknownOwner{Name: ref.Name, Key: KeyOf(namespace, ref)}
	}
	return obj, err
}

// Replicas returns an optional replica count. The API's default is 1.
func Replicas(n *int32) int {
	return int(ptr.Deref(n, 1))
}
