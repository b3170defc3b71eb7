package cluster

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// census finds out what the pods of one Snapshot belong to.
type census struct {
	*Reader
	now     time.Time
	defects []Defect
	// byUID are the owners in the caches; nil until one is looked for.
	byUID map[types.UID]owner
	// subjects has the Subject of one pod of each revision whose owner is known, by Subject.RevisionKey.
	subjects  map[kube.OwnerKey]*kube.Subject
	revisions map[kube.OwnerKey]*Revision
	workloads map[kube.OwnerKey]*counted
}

// counted is a workload with what its pods name as their scheduler.
type counted struct {
	Workload
	live                 bool               // some pod is live
	foreign, foreignLive bool               // some pod, or some live pod, names another profile
	newest               *appsv1.ReplicaSet // of a Deployment, also while it wants no pods
}

// readPods fills s.Pods, s.Workloads and the pods of s.Nodes.
func (r *Reader) readPods(s *Snapshot, pods []*knownPod, replicaSets []*appsv1.ReplicaSet, nodeOf map[string]*Node) error {
	c := &census{
		Reader:    r,
		now:       s.Now,
		subjects:  make(map[kube.OwnerKey]*kube.Subject, r.revisions),
		revisions: make(map[kube.OwnerKey]*Revision, r.revisions),
		workloads: make(map[kube.OwnerKey]*counted, r.revisions),
	}
	slab := make([]Pod, len(pods))
	s.Pods = make([]*Pod, len(pods))
	for i, known := range pods {
		p := &slab[i]
		s.Pods[i] = p
		p.Pod, p.Requests = known.pod, known.requests
		if p.Node = nodeOf[known.pod.Spec.NodeName]; p.Node != nil {
			p.Node.Pods = append(p.Node.Pods, p)
		}
		if len(known.claims) > 0 {
			p.volumes = r.volumesOf(known.pod.Namespace, known.claims)
		}
		if err := c.count(p, known); err != nil {
			return err
		}
	}
	c.addWanted(replicaSets)
	s.Workloads, s.Defects = c.finish(), c.defects
	r.revisions = len(c.revisions)
	return nil
}

// count finds out what p belongs to, and counts it there. It changes nothing before all is found out, so that a pod of which that fails
// belongs to nothing and counts nowhere.
func (c *census) count(p *Pod, known *knownPod) error {
	defer recovery.Recover(recovery.Pod, klog.KObj(known.pod))
	var release *Release
	release, known.owned = c.releaseOf(known)
	subject, err := c.subjectOf(known)
	if err != nil {
		return err
	}
	if known.hasOpinion && (subject == nil || kube.CountedByPods(known.owned)) && release == nil {
		c.judge(known)
	}
	if subject == nil {
		p.Release = release
		return nil
	}
	revision := c.revisions[subject.RevisionKey]
	if revision == nil {
		if revision = c.newRevision(subject, known.owned); revision == nil {
			p.Release = release
			return nil
		}
	}
	p.Release, p.replacement = release, &subject.Pod
	workload := c.workloads[subject.WorkloadKey]
	if p.Release != nil {
		p.ReleasedFrom = revision
	} else {
		p.Subject, p.Workload, p.Revision = subject, &workload.Workload, revision
	}
	foreign := p.Spec.SchedulerName != c.profile
	workload.foreign = workload.foreign || foreign
	if !p.Live() {
		return nil
	}
	workload.live, workload.foreignLive = true, workload.foreignLive || foreign
	revision.Pods = append(revision.Pods, p)
	switch {
	case p.Node == nil:
	case p.Node.Facts.Capacity.Type == decision.Spot:
		revision.Placed.Spot++
	default:
		revision.Placed.OnDemand++
	}
	return nil
}

// releaseOf returns the release of a pod if it is trusted, and the pod whose owner counts.
func (c *census) releaseOf(p *knownPod) (*Release, *v1.Pod) {
	why := p.wrong
	if p.release != nil {
		if why = c.distrust(p); why == "" {
			return p.release, p.before
		}
	}
	if why != "" {
		c.defects = append(c.defects, Defect{p.pod, WrongRelease, why})
	}
	return nil, p.pod
}

// judge compares the controller reference of a pod with the owners in the caches, once for each version of the pod: a UID never changes hands.
func (c *census) judge(p *knownPod) {
	if !p.judged {
		p.judged, p.contradicts = true, c.contradiction(p.pod)
	}
	if p.contradicts != "" {
		c.defects = append(c.defects, Defect{p.pod, WrongOwner, p.contradicts})
	}
}

// subjectOf returns what a pod belongs to, or did before it was released; nil if the policy has no opinion or the owner is not known. The
// owner is looked up once a revision, and for each pod only if that or the pod has changed.
func (c *census) subjectOf(p *knownPod) (*kube.Subject, error) {
	if !p.hasOpinion {
		return nil, nil
	}
	key := kube.RevisionOf(p.owned)
	base, seen := c.subjects[key]
	if seen && base == p.base {
		return p.subject, nil
	}
	subject, err := c.owners.Subject(p.owned)
	if unknown := (*kube.UnknownOwner)(nil); errors.As(err, &unknown) {
		subject, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !seen && subject == nil {
		// Another pod may name its owner rightly: nothing is known of the revision yet.
		p.subject, p.base = nil, nil
		return nil, nil
	}
	if !seen {
		if p.subject != nil && alike(subject, p.subject) {
			subject = p.subject
		}
		p.subject, p.base = subject, subject
		c.subjects[key] = subject
		return subject, nil
	}
	p.subject, p.base = subject, nil
	// Pods of a StatefulSet are never alike: a pod's ordinal changes when that of the set's first one does, so it is read every time.
	if subject != nil && alike(subject, base) {
		p.base = base
	}
	return subject, nil
}

// alike reports whether two pods of one revision belong to the same.
func alike(a, b *kube.Subject) bool {
	return a.WorkloadKey == b.WorkloadKey && reflect.DeepEqual(a.Pod.Workload, b.Pod.Workload)
}

// newRevision adds the revision of subject, which is what pod belongs to, and the workload if that is new. It returns nil if the owner has
// gone since subject was read.
func (c *census) newRevision(subject *kube.Subject, pod *v1.Pod) *Revision {
	revision := &Revision{Key: subject.RevisionKey}
	apiVersion, name := "v1", pod.Name
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		apiVersion, name = ref.APIVersion, ref.Name
		if ref.Kind == "ReplicaSet" && !kube.CountedByPods(pod) {
			rs, err := c.replicaSets.ReplicaSets(pod.Namespace).Get(name)
			if err != nil || rs.UID != subject.RevisionKey.UID {
				return nil
			}
			revision.ReplicaSet = rs
		}
	}
	var deployment *appsv1.Deployment
	if subject.WorkloadKey != subject.RevisionKey {
		if deployment = c.deploymentOf(revision.ReplicaSet, subject.WorkloadKey.UID); deployment == nil {
			return nil
		}
		apiVersion, name = appsv1.SchemeGroupVersion.String(), deployment.Name
	}
	settings, _ := c.policy.Settings(&subject.Pod)
	workload := c.workloads[subject.WorkloadKey]
	if workload == nil {
		workload = &counted{Workload: Workload{
			Key: subject.WorkloadKey, APIVersion: apiVersion, Kind: subject.Pod.Workload.Kind, Namespace: pod.Namespace, Name: name,
			Desired: subject.Pod.Workload.Desired, Deployment: deployment,
		}}
		if subject.Pod.Workload.Ordered {
			if set, err := c.statefulSets.StatefulSets(pod.Namespace).Get(name); err == nil && set.UID == workload.Key.UID {
				workload.StatefulSet, workload.APIVersion = set, appsv1.SchemeGroupVersion.String()
			}
		}
		c.workloads[workload.Key] = workload
	}
	revision.Workload, revision.settings = &workload.Workload, &settings
	workload.Revisions = append(workload.Revisions, revision)
	c.revisions[revision.Key] = revision
	return revision
}

// deploymentOf returns the Deployment of that UID that controls rs, which may be nil; nil if the cache does not have it.
func (c *census) deploymentOf(rs *appsv1.ReplicaSet, uid types.UID) *appsv1.Deployment {
	if rs == nil {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return nil
	}
	deployment, err := c.deployments.Deployments(rs.Namespace).Get(owner.Name)
	if err != nil || deployment.UID != uid {
		return nil
	}
	return deployment
}

// addWanted adds the revisions of known Deployments that have no pods yet, but want some, and notes which is the newest.
func (c *census) addWanted(replicaSets []*appsv1.ReplicaSet) {
	for _, rs := range replicaSets {
		owner := metav1.GetControllerOfNoCopy(rs)
		if owner == nil || rs.DeletionTimestamp != nil {
			continue
		}
		workload := c.workloads[kube.KeyOf(rs.Namespace, owner)]
		if workload == nil || workload.Deployment == nil {
			continue
		}
		if workload.newest == nil || older(workload.newest, rs) < 0 {
			workload.newest = rs
		}
		key, _ := kube.ControllerKey(rs)
		if kube.Replicas(rs.Spec.Replicas) > 0 && c.revisions[key] == nil {
			workload.Revisions = append(workload.Revisions, &Revision{Key: key, Workload: &workload.Workload, ReplicaSet: rs})
		}
	}
}

// finish returns the workloads in order, with what only their whole says.
func (c *census) finish() []*Workload {
	all := make([]*Workload, 0, len(c.workloads))
	for _, counted := range c.workloads {
		counted.complete()
		all = append(all, &counted.Workload)
	}
	slices.SortFunc(all, func(a, b *Workload) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Key.Group, b.Key.Group), cmp.Compare(a.Key.UID, b.Key.UID))
	})
	return all
}

// complete fills in what only all pods of a workload say. If that fails, the workload is not Ours.
func (c *counted) complete() {
	w := &c.Workload
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	// Only a Deployment has more than one.
	slices.SortFunc(w.Revisions, func(a, b *Revision) int { return older(a.ReplicaSet, b.ReplicaSet) })
	w.RollingOut = rollingOut(w, c.newest)
	if c.foreignLive || !c.live && c.foreign {
		return
	}
	var settings decision.Settings
	floor := 0
	for _, revision := range w.Revisions {
		if revision.settings != nil { // it has pods
			settings = *revision.settings
			floor = max(floor, settings.Floor(w.Desired))
		}
	}
	w.Ours, w.Settings, w.Floor = true, settings, floor
}

// older orders the ReplicaSets of a Deployment, the oldest first.
func older(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(cmp.Compare(kube.RevisionNumber(a), kube.RevisionNumber(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name))
}

// rollingOut is Workload.RollingOut of w. newest is its newest ReplicaSet, if it is a Deployment.
func rollingOut(w *Workload, newest *appsv1.ReplicaSet) bool {
	if set := w.StatefulSet; set != nil {
		return set.Status.ObservedGeneration < set.Generation || set.Status.CurrentRevision != set.Status.UpdateRevision
	}
	if w.Deployment == nil {
		return false
	}
	// What the newest ReplicaSet asks for tells, not how many pods it has: one that waits for a quota, or lost a pod just now, is no rollout.
	if w.Deployment.Status.ObservedGeneration < w.Deployment.Generation || newest == nil || kube.Replicas(newest.Spec.Replicas) < w.Desired {
		return true
	}
	return slices.ContainsFunc(w.Revisions, func(r *Revision) bool {
		return r.Key.UID != newest.UID && (len(r.Pods) > 0 || kube.Replicas(r.ReplicaSet.Spec.Replicas) > 0)
	})
}
