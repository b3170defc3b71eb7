package snapshot

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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// census assigns the pods of one Snapshot to revisions and workloads.
type census struct {
	*Reader
	now     time.Time
	ranges  map[string][]*v1.LimitRange // by namespace
	defects []Defect
	// byUID contains the owners in the caches; nil until it is needed.
	byUID map[types.UID]owner
	// subjects contains the Subject of one pod of each revision with a known owner, and objects
	// what it was read from, by Subject.RevisionKey.
	subjects  map[workload.OwnerKey]*workload.Subject
	objects   map[workload.OwnerKey]workload.Objects
	revisions map[workload.OwnerKey]*Revision
	workloads map[workload.OwnerKey]*workloadState
}

// workloadState is a workload with the scheduler names of its pods.
type workloadState struct {
	Workload
	live                 bool               // whether a pod is live
	foreign, foreignLive bool               // whether a pod, or a live pod, is out of scope
	ownLive              bool               // whether a live pod is in scope
	newest               *appsv1.ReplicaSet // the newest ReplicaSet, even if it wants no pods (but see isNewer)
}

// readPods fills s.Pods, s.Workloads and the pods of s.Nodes.
func (r *Reader) readPods(s *Snapshot, pods []*podFacts, replicaSets []*appsv1.ReplicaSet, nodeOf map[string]*Node) error {
	c := &census{
		Reader:    r,
		now:       s.Now,
		ranges:    byNamespace(All(r.factory.Core().V1().LimitRanges().Lister())),
		subjects:  make(map[workload.OwnerKey]*workload.Subject, r.revisions),
		objects:   make(map[workload.OwnerKey]workload.Objects, r.revisions),
		revisions: make(map[workload.OwnerKey]*Revision, r.revisions),
		workloads: make(map[workload.OwnerKey]*workloadState, r.revisions),
	}
	slab := make([]Pod, len(pods))
	s.Pods = make([]*Pod, len(pods))
	for i, facts := range pods {
		p := &slab[i]
		s.Pods[i] = p
		p.Pod, p.Requests = facts.pod, facts.requests
		if p.Node = nodeOf[facts.pod.Spec.NodeName]; p.Node != nil {
			p.Node.Pods = append(p.Node.Pods, p)
		}
		p.Volumes = r.volumesOf(facts.pod)
		if err := c.count(p, facts); err != nil {
			return err
		}
	}
	c.addPodlessRevisions(replicaSets)
	s.Workloads, s.Defects = c.finish(), c.defects
	r.revisions = len(c.revisions)
	return nil
}

// count assigns p to its revision and workload, and counts it there. It makes no changes before all
// facts are known. If count fails, the pod belongs to no workload and counts nowhere.
func (c *census) count(p *Pod, facts *podFacts) error {
	defer recovery.Recover(recovery.Pod, klog.KObj(facts.pod))
	var release *Release
	release, facts.effective = c.releaseOf(facts)
	subject, err := c.subjectOf(facts)
	if err != nil {
		return err
	}
	if facts.hasOpinion && (subject == nil || workload.HasUnsupportedController(facts.effective)) && release == nil {
		c.checkOwner(facts)
	}
	var revision *Revision
	if subject != nil {
		revision = c.revisionOf(subject, facts.effective)
	}
	p.Release = release
	if revision == nil {
		if release != nil && workload.ControlledByDeployment(p.Pod) {
			p.Deployment, _ = c.deployments.Deployments(p.Namespace).Get(metav1.GetControllerOfNoCopy(p.Pod).Name) // it exists: see releaseDefect
		}
		return nil
	}
	p.Replacement = &subject.Pod
	foreign := !c.scope.Includes(p.Pod)
	if !foreign && p.Live() && workload.HasUnsupportedController(facts.effective) {
		settings, _ := c.policy.Settings(&subject.Pod)
		*revision.Settings = revision.Settings.Stricter(settings, subject.Pod.Workload.Desired)
	}
	workload := c.workloads[subject.WorkloadKey]
	if p.Release != nil {
		p.ReleasedFrom = revision
	} else {
		p.Subject, p.Workload, p.Revision = subject, &workload.Workload, revision
	}
	workload.foreign = workload.foreign || foreign
	if !p.Live() {
		return nil
	}
	workload.KeepsScheduler = workload.KeepsScheduler || c.scope.KeepsScheduler(p.Pod)
	workload.live, workload.foreignLive, workload.ownLive = true, workload.foreignLive || foreign, workload.ownLive || !foreign
	revision.Pods = append(revision.Pods, p)
	if p.Node != nil {
		revision.Placed.Add(p.Node.Facts.Capacity.Type, 1)
	}
	return nil
}

// releaseOf returns the release of a pod if it is trusted, and the version of the pod whose owner
// counts.
func (c *census) releaseOf(p *podFacts) (*Release, *v1.Pod) {
	defect := p.claimDefect
	if p.release != nil {
		if defect = c.releaseDefect(p); defect == "" {
			return c.succeeded(p)
		}
	}
	if defect != "" {
		c.defects = append(c.defects, Defect{p.pod, WrongRelease, defect})
	}
	return nil, p.pod
}

// checkOwner compares the controller reference of a pod with the owners in the caches. It does so
// once for each version of the pod, because a UID never changes its object.
func (c *census) checkOwner(p *podFacts) {
	if !p.ownerChecked {
		p.ownerChecked, p.ownerDefect = true, c.contradiction(p.pod)
	}
	if p.ownerDefect != "" {
		c.defects = append(c.defects, Defect{p.pod, WrongOwner, p.ownerDefect})
	}
}

// subjectOf returns the owner of a pod, or its owner before the release. It returns nil if the
// policy does not apply or the owner is unknown. It looks up the owner once per revision, and again
// for a pod only if the revision's result or the pod has changed.
func (c *census) subjectOf(p *podFacts) (*workload.Subject, error) {
	if !p.hasOpinion {
		return nil, nil
	}
	key := workload.RevisionOf(p.effective)
	base, seen := c.subjects[key]
	if seen && base == p.base {
		return p.subject, nil
	}
	subject, objects, err := c.owners.SubjectAndObjects(p.effective)
	if unknown := (*workload.UnknownOwner)(nil); errors.As(err, &unknown) {
		subject, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch {
	case subject == nil:
		// Another pod may name the same owner correctly, so the result is not valid for the
		// revision.
		base = nil
	case !seen:
		if p.subject != nil && sameWorkload(subject, p.subject) {
			subject = p.subject
		}
		base, c.subjects[key], c.objects[key] = subject, subject, objects
	case !sameWorkload(subject, base):
		// Pods of a StatefulSet never share a result: their ordinal changes with the set's first
		// ordinal, so it is read every time.
		base = nil
	}
	p.subject, p.base = subject, base
	return subject, nil
}

func sameWorkload(a, b *workload.Subject) bool {
	return a.WorkloadKey == b.WorkloadKey && reflect.DeepEqual(a.Pod.Workload, b.Pod.Workload)
}

// revisionOf returns the revision of subject. It adds the revision and its workload if they are
// new. pod is a pod of the revision.
func (c *census) revisionOf(subject *workload.Subject, pod *v1.Pod) *Revision {
	if existing := c.revisions[subject.RevisionKey]; existing != nil {
		return existing
	}
	objects := c.objects[subject.RevisionKey]
	revision := &Revision{Key: subject.RevisionKey, ReplicaSet: objects.ReplicaSet}
	revision.template, revision.refused = withLimitRanges(objects.Template, c.ranges[pod.Namespace])
	apiVersion, name := "v1", pod.Name
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		apiVersion, name = ref.APIVersion, ref.Name
	}
	if subject.WorkloadKey != subject.RevisionKey {
		owner := metav1.GetControllerOfNoCopy(objects.ReplicaSet)
		apiVersion, name = owner.APIVersion, owner.Name
	}
	if objects.Deployment != nil || objects.StatefulSet != nil { // the controller reads this version
		apiVersion = appsv1.SchemeGroupVersion.String()
	}
	settings, _ := c.policy.Settings(&subject.Pod)
	workload := c.workloads[subject.WorkloadKey]
	if workload == nil {
		workload = &workloadState{Workload: Workload{
			Key: subject.WorkloadKey, APIVersion: apiVersion, Kind: subject.Pod.Workload.Kind, Namespace: pod.Namespace, Name: name,
			Deployment: objects.Deployment, StatefulSet: objects.StatefulSet, GroupsKey: subject.GroupsKey,
		}}
		c.workloads[workload.Key] = workload
	}
	workload.Desired = max(workload.Desired, subject.Pod.Workload.Desired)
	revision.Workload, revision.Settings = &workload.Workload, &settings
	workload.Revisions = append(workload.Revisions, revision)
	c.revisions[revision.Key] = revision
	return revision
}

// deploymentOf returns the Deployment with that UID that controls rs, or nil if the cache does not
// have it.
func (c *census) deploymentOf(rs *appsv1.ReplicaSet, uid types.UID) *appsv1.Deployment {
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

// addPodlessRevisions adds the revisions of known workloads that want pods but have none yet. It
// also records the newest revision.
func (c *census) addPodlessRevisions(replicaSets []*appsv1.ReplicaSet) {
	for _, rs := range replicaSets {
		owner := metav1.GetControllerOfNoCopy(rs)
		if owner == nil || rs.DeletionTimestamp != nil {
			continue
		}
		w := c.workloads[workload.KeyOf(rs.Namespace, owner)]
		if w == nil || !w.ownsRevisions() {
			continue
		}
		if w.newest == nil || w.isNewer(rs) {
			w.newest = rs
		}
		key, _ := workload.ControllerKey(rs)
		if workload.Replicas(rs.Spec.Replicas) > 0 && c.revisions[key] == nil {
			w.Revisions = append(w.Revisions, &Revision{Key: key, Workload: &w.Workload, ReplicaSet: rs})
		}
	}
}

// isNewer reports whether rs is newer than the newest ReplicaSet so far. If the object of the
// workload is not read, a ReplicaSet that wants pods is newer than one that does not.
func (w *workloadState) isNewer(rs *appsv1.ReplicaSet) bool {
	wants := workload.Replicas(rs.Spec.Replicas) > 0
	if w.Deployment == nil && wants != (workload.Replicas(w.newest.Spec.Replicas) > 0) {
		return wants
	}
	return compareReplicaSets(w.newest, rs) < 0
}

func (c *census) finish() []*Workload {
	all := make([]*Workload, 0, len(c.workloads))
	for _, state := range c.workloads {
		state.complete()
		all = append(all, &state.Workload)
	}
	slices.SortFunc(all, func(a, b *Workload) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Key.Role, b.Key.Role), strings.Compare(a.Key.Group, b.Key.Group), cmp.Compare(a.Key.UID, b.Key.UID))
	})
	return all
}

// complete computes the fields that depend on all pods of the workload. If it fails, the workload
// is not InScope.
func (c *workloadState) complete() {
	w := &c.Workload
	defer recovery.Recover(recovery.Workload, klog.KRef(w.Namespace, w.Name))
	// If there is more than one revision, all are ReplicaSets.
	slices.SortFunc(w.Revisions, func(a, b *Revision) int { return compareReplicaSets(a.ReplicaSet, b.ReplicaSet) })
	w.RollingOut = rollingOut(w, c.newest)
	if w.Key.Direct() && !c.ownLive || !w.Key.Direct() && (c.foreignLive || !c.live && c.foreign) {
		return
	}
	var settings decision.WorkloadSettings
	floor := 0
	for _, revision := range w.Revisions {
		if revision.Settings != nil { // it has pods
			settings = *revision.Settings
			floor = max(floor, settings.Floor(w.Desired))
		}
	}
	w.InScope, w.Settings, w.Floor = true, settings, floor
}

// JudgeByNodes sets OnlySpot and OnlyOnDemand in the Subjects of pods by the nodes that exist and
// the pools from which an autoscaler adds nodes. Only reports use it: the controller also considers
// nodes that existed, and terms between pods.
func (s *Snapshot) JudgeByNodes(policy *decision.Policy, pools *workload.Pools) {
	evidence := workload.NewNodeEvidence(policy)
	evidence.Pools = pools
	for _, n := range s.Nodes {
		evidence.Set(n.Node, n.Facts.Capacity, s.Now)
	}
	for _, p := range s.Pods {
		if p.Subject != nil {
			judged := *p.Subject // the Reader retains the original
			judged.OnlySpot = judged.OnlySpot || evidence.AdmitsOnly(p.Pod, p.Volumes, decision.Spot)
			judged.OnlyOnDemand = judged.OnlyOnDemand || evidence.AdmitsOnly(p.Pod, p.Volumes, decision.OnDemand)
			p.Subject, p.Replacement = &judged, &judged.Pod
		}
	}
}

// compareReplicaSets orders the ReplicaSets of a workload, oldest first.
func compareReplicaSets(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(cmp.Compare(workload.RevisionNumber(a), workload.RevisionNumber(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name))
}

// rollingOut returns the value of Workload.RollingOut. newest is the newest ReplicaSet if w keeps
// its revisions in ReplicaSets.
func rollingOut(w *Workload, newest *appsv1.ReplicaSet) bool {
	if set := w.StatefulSet; set != nil {
		return set.Status.ObservedGeneration < set.Generation || set.Status.CurrentRevision != set.Status.UpdateRevision
	}
	if !w.ownsRevisions() {
		return false
	}
	// The replica count of the newest ReplicaSet decides, not the number of its pods: a ReplicaSet
	// that waits for quota, or has just lost a pod, is not a rollout.
	if d := w.Deployment; d != nil && d.Status.ObservedGeneration < d.Generation || newest == nil ||
		workload.Replicas(newest.Spec.Replicas) < w.Desired {
		return true
	}
	return slices.ContainsFunc(w.Revisions, func(r *Revision) bool {
		return r.Key.UID != newest.UID && (len(r.Pods) > 0 || workload.Replicas(r.ReplicaSet.Spec.Replicas) > 0)
	})
}
