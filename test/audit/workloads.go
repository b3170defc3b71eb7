package audit

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// membership is the workload that a pod counts for. A pod that loses its controller was released,
// and counts for no workload until it returns.
type membership struct {
	kind     string    // the controller's kind, "" without a controller, otherKind for unknown kinds
	name     string    // the controller's name, or the pod's own
	revision types.UID // the controller's UID, or the pod's own
}

const (
	otherKind = "other"
	// released is the kind of a pod that was released from its ReplicaSet. It counts for no
	// workload.
	released = "released"
	// noOpinion is the kind of a pod of a DaemonSet and of a static pod.
	noOpinion = "none"
)

// memberOf returns the membership of a pod by its controller.
func memberOf(pod *corev1.Pod) membership {
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return membership{kind: noOpinion, name: pod.Name, revision: pod.UID}
	}
	ref := metav1.GetControllerOf(pod)
	if ref == nil || controllerKind(ref) == "Deployment" && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == releasedHash {
		m := membership{name: pod.Name, revision: pod.UID}
		if _, was := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; was {
			m.kind = released
		}
		return m
	}
	kind := controllerKind(ref)
	if kind == "Deployment" || ref.Kind == "Pod" {
		return membership{kind: otherKind, name: ref.Name, revision: "pods-of-" + ref.UID + roleOf(pod)} // its controller did not create it
	}
	if kind == otherKind {
		return membership{kind: otherKind, name: ref.Name, revision: ref.UID + roleOf(pod)}
	}
	return membership{kind: kind, name: ref.Name, revision: ref.UID}
}

// roleOf returns what distinguishes a pod from others of a controller of an unknown kind: labels
// with a role, and the pod's own settings.
func roleOf(pod *corev1.Pod) types.UID {
	var role types.UID
	for _, label := range []string{
		"ray.io/node-type", "ray.io/group", "training.kubeflow.org/replica-type", "training.kubeflow.org/job-role", "spark-role",
		"jobset.sigs.k8s.io/replicatedjob-name", "volcano.sh/task-spec", "dask.org/component",
		"weblogic.clusterName", "vcluster.loft.sh/namespace", "app.kubernetes.io/component",
	} {
		role += "/" + types.UID(pod.Labels[label])
	}
	if pod.Labels["vcluster.loft.sh/namespace"] != "" { // its workloads have one controller
		role += "/" + types.UID(pod.Labels["app"])
	}
	for _, value := range policyAnnotations(pod.Annotations) {
		role += "/" + types.UID(value)
	}
	return role + "/" + types.UID(pod.Annotations[prefix+"protect"])
}

func controllerKind(ref *metav1.OwnerReference) string {
	group, _, grouped := strings.Cut(ref.APIVersion, "/")
	if !grouped {
		group = ""
	}
	switch group + "/" + ref.Kind {
	case "apps/ReplicaSet", "apps/StatefulSet", "apps/Deployment", "batch/Job", "/ReplicationController":
		return ref.Kind
	case "apps/DaemonSet", "/Node":
		return noOpinion
	}
	return otherKind
}

// ownerFacts are the facts about an owner that the policy uses. The zero value is an owner that
// does not exist.
type ownerFacts struct {
	exists  bool
	kind    string
	name    string
	desired int
	start   int    // first ordinal of a StatefulSet
	leader  string // namespace/name of the pod that controls a StatefulSet, "" if none does
	// groups is the number of groups if a group is the replica, as in a LeaderWorkerSet, and group
	// is the index of this one.
	group, groups int
	annotations   annotations
	fragileJob    bool
	disruptions   string    // annotation of a Job
	deployment    types.UID // of a ReplicaSet, "" unless a Deployment controls it
	argoRollout   types.UID // of a ReplicaSet, "" unless an Argo Rollout controls it
	rollout       int       // a ReplicaSet's place in the history of either, 0 if unknown
}

// parent returns what controls the ReplicaSet and its older revisions; "" if nothing does.
func (f ownerFacts) parent() types.UID { return cmp.Or(f.deployment, f.argoRollout) }

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// readOwner returns the facts about an owner, and false if the object is not an owner.
func readOwner(object metav1.Object) (ownerFacts, bool) {
	facts := ownerFacts{
		exists:      true,
		name:        object.GetNamespace() + "/" + object.GetName(),
		annotations: policyAnnotations(object.GetAnnotations()),
	}
	switch o := object.(type) {
	case *appsv1.Deployment:
		facts.kind, facts.desired = "Deployment", replicas(o.Spec.Replicas)
	case *appsv1.ReplicaSet:
		facts.kind, facts.desired = "ReplicaSet", replicas(o.Spec.Replicas)
		revision := "deployment.kubernetes.io/revision"
		if ref := metav1.GetControllerOf(o); ref != nil && controllerKind(ref) == "Deployment" {
			facts.deployment = ref.UID
		} else if ref != nil && ref.Kind == "Rollout" && strings.HasPrefix(ref.APIVersion, "argoproj.io/") {
			facts.argoRollout, revision = ref.UID, "rollout.argoproj.io/revision"
			if n, err := strconv.Atoi(o.Annotations["rollout.argoproj.io/desired-replicas"]); err == nil && n >= 0 {
				facts.desired = n
			}
		}
		facts.rollout, _ = strconv.Atoi(o.Annotations[revision]) // 0 if absent
	case *appsv1.StatefulSet:
		facts.kind, facts.desired = "StatefulSet", replicas(o.Spec.Replicas)
		if o.Spec.Ordinals != nil {
			facts.start = int(o.Spec.Ordinals.Start)
		}
		if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == "Pod" {
			facts.leader = o.Namespace + "/" + ref.Name
		}
	case *corev1.ReplicationController:
		facts.kind, facts.desired = "ReplicationController", replicas(o.Spec.Replicas)
	case *batchv1.Job:
		facts.kind, facts.desired = "Job", replicas(o.Spec.Parallelism)
		if o.Spec.Completions != nil {
			facts.desired = max(0, min(facts.desired, int(*o.Spec.Completions-o.Status.Succeeded)))
		}
		facts.fragileJob, facts.disruptions = fragile(o), o.Annotations[prefix+"disruptions"]
	default:
		return ownerFacts{}, false
	}
	return facts, true
}

// fragile reports whether the Job fails if it loses one pod to a drain or a reclaim. A JobSet may
// restart a failed Job.
func fragile(job *batchv1.Job) bool {
	if ref := metav1.GetControllerOf(job); ref != nil && strings.HasPrefix(ref.APIVersion, "jobset.x-k8s.io/") {
		return false
	}
	if job.Spec.BackoffLimit == nil || *job.Spec.BackoffLimit != 0 {
		return false
	}
	if job.Spec.PodFailurePolicy == nil {
		return true
	}
	for _, rule := range job.Spec.PodFailurePolicy.Rules {
		ignores := slices.ContainsFunc(rule.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return c.Type == corev1.DisruptionTarget && (c.Status == "" || c.Status == corev1.ConditionTrue)
		})
		if rule.Action == batchv1.PodFailurePolicyActionIgnore && ignores {
			return false
		}
	}
	return true
}

// owner is an object that owns pods or ReplicaSets.
type owner struct {
	facts timeline[ownerFacts]
}

// workload is the object with the replica count of a pod. known is false until all owners have
// been observed.
type workload struct {
	known bool
	uid   types.UID
	ownerFacts
}

// workloads returns every reading of a pod's workload in the window, at least one.
func (c *core) workloads(p *pod, from time.Time, to stamp) []workload {
	switch p.member.kind {
	case "":
		return []workload{{true, p.uid, ownerFacts{kind: "Pod", name: p.name(), desired: 1}}}
	case otherKind:
		facts := ownerFacts{kind: p.controllerKind(), name: p.namespace() + "/" + p.member.name, desired: c.liveDuring(p, from, to)}
		return []workload{{true, p.member.revision, facts}}
	}
	var out []workload
	for _, own := range c.ownerDuring(p.member.revision, from, to) {
		if own.deployment == "" {
			out = append(out, workload{own.exists, p.member.revision, c.inGroup(own)})
			continue
		}
		for _, deployment := range c.ownerDuring(own.deployment, from, to) {
			out = append(out, workload{own.exists && deployment.exists, own.deployment, deployment})
		}
	}
	return out
}

// inGroup returns the facts about a StatefulSet as part of the group of its leader, a pod of
// another StatefulSet. Leader and group have one floor.
func (c *core) inGroup(own ownerFacts) ownerFacts {
	end := strings.LastIndexByte(own.leader, '-')
	if end < 0 {
		return own
	}
	group, err := strconv.Atoi(own.leader[end+1:])
	for _, o := range c.owners {
		if leaders := o.facts.last(); err == nil && leaders.kind == "StatefulSet" && leaders.name == own.leader[:end] {
			own.group, own.groups, own.annotations = group, leaders.desired, leaders.annotations
		}
	}
	return own
}

// ownerDuring returns every reading of an owner in the window. If the owner was never observed,
// it returns the zero value.
func (c *core) ownerDuring(uid types.UID, from time.Time, to stamp) []ownerFacts {
	var out []ownerFacts
	if o := c.owners[uid]; o != nil {
		for _, e := range o.facts.during(from, to) {
			out = append(out, e.value)
		}
	}
	if len(out) == 0 {
		return []ownerFacts{{}}
	}
	return out
}

// liveDuring counts the pods of p's controller that existed at any time in the window. This is
// the highest number that a scheduler may have seen.
func (c *core) liveDuring(p *pod, from time.Time, to stamp) int {
	live := 0
	for _, q := range c.revisions[p.member.revision] {
		if !q.seen.after(to) && (q.ended.at.IsZero() || q.ended.at.After(from)) {
			live++
		}
	}
	return live
}

// reading is the policy's view of a pod for one combination of values in the window.
type reading struct {
	workload
	settings
	floor        int
	exempt       bool // its own selector or affinity allows only spot, and the policy respects that
	onlyOnDemand bool // they allow no spot node
	// assignedBeyond: an annotation assigns the pod beyond the floor. granted: an annotation
	// allows the pod on spot.
	assignedBeyond, granted bool
	// hardSpread: a topology spread constraint may require on-demand in spite of overflow Never.
	hardSpread bool
}

func (r reading) budget() int { return r.desired - r.floor }

// ordinal returns the ordinal of a StatefulSet's pod, and false for other pods.
func (r reading) ordinal(podName string) (int, bool) {
	if r.kind != "StatefulSet" {
		return 0, false
	}
	n, err := strconv.Atoi(podName[strings.LastIndex(podName, "-")+1:])
	return n, err == nil
}

// readings returns the reading of each combination of policy, pod and workload in the window, at
// least one.
func (c *core) readings(p *pod, from time.Time, to stamp) []reading {
	var out []reading
	for _, policy := range c.policies.during(from, to) {
		for _, version := range p.versions.during(from, to) {
			for _, w := range c.workloads(p, from, to) {
				s := subject{
					pod: version.value, kind: w.kind, annotations: w.annotations, desired: cmp.Or(w.groups, w.desired), fragileJob: w.fragileJob,
					disruptions: w.disruptions,
				}
				resolved, floor := policy.value.resolve(s)
				if w.groups > 0 && w.group < floor {
					floor = w.desired
				} else if w.groups > 0 {
					floor = 0
				}
				assigned, _, _ := strings.Cut(version.value.Annotations[prefix+"assigned"], ":")
				grant, of, _ := strings.Cut(version.value.Annotations[prefix+"granted"], " ") // a copy has the grant of another pod
				out = append(out, reading{
					w, resolved, floor, resolved.exemptions == "Allow" && assigned != "spot" && policy.value.onlySpot(version.value),
					policy.value.onlyOnDemand(version.value), assigned == "spot" || assigned == "any",
					slices.Contains([]string{"fallback", "rollout-relief", "exemption"}, grant) && of == string(version.value.UID),
					slices.ContainsFunc(version.value.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
						return c.WhenUnsatisfiable == corev1.DoNotSchedule
					}),
				})
			}
		}
	}
	return out
}
