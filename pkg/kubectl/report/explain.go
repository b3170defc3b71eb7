package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Explanation explains why a pod is on its node or waits, and how the policy applies to its
// workload.
type Explanation struct {
	// Object is the requested object. Pod is the explained pod and OnNode its node. If Pod is "",
	// Nodes apply to one more replica.
	Object Ref    `json:"object"`
	Pod    string `json:"pod,omitempty"`
	OnNode string `json:"onNode,omitempty"`
	// Answer is the summary in one sentence.
	Answer string `json:"answer"`
	// Scheduler is the scheduler that places the pod if the pod keeps its scheduler; "" otherwise.
	// It does not know the policy, so Nodes then has only the reasons of Kubernetes.
	Scheduler string `json:"scheduler,omitempty"`
	// Workload is the owner of the pod. Revision is the revision with which its siblings are
	// counted. They are nil and "" if the policy does not apply to the pod or its owner is unknown.
	// Then no field below is set.
	Workload *Ref   `json:"workload,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Settings are the settings in effect, with their origins. Ignored lists the annotations and
	// labels that have no effect.
	Settings []Setting `json:"settings,omitempty"`
	Ignored  []string  `json:"ignored,omitempty"`
	// Assigned is the value of the annotation by which the controller assigned a capacity type to
	// the pod, with the reason. Granted is the value of the annotation by which the controller
	// permits any spot node, with the reason. Invalid values are omitted.
	Assigned string `json:"assigned,omitempty"`
	Granted  string `json:"granted,omitempty"`
	Desired  int    `json:"desired"`
	Floor    int    `json:"floor"`
	// Disruptions is the number of disruptions of a Job, its limit, and the effect; "" without a
	// limit.
	Disruptions string `json:"disruptions,omitempty"`
	// Budget is the number of the revision's pods that may be on spot. OnSpot and OnOnDemand count
	// the revision's pods without this pod; they are nil if nodes could not be read. For an ordered
	// workload (a StatefulSet), Ordinal decides instead: the first ordinals are the floor.
	Budget     int  `json:"budget"`
	OnSpot     *int `json:"spot,omitempty"`
	OnOnDemand *int `json:"onDemand,omitempty"`
	Ordinal    *int `json:"ordinal,omitempty"`
	// BudgetUsage is the budget and its use, in the scheduler's words.
	BudgetUsage string `json:"budgetUsage,omitempty"`
	// Nodes has all nodes, grouped by their properties for the pod: groups that accept the pod
	// first, then by size.
	Nodes []NodeGroup `json:"nodes,omitempty"`
	// Remedies lists the changes that would let the scheduler place the pod; nil if the pod has a
	// node, or if a node would accept one more replica.
	Remedies []string `json:"remedies,omitempty"`
}

// Setting is one setting of a pod, with its origin.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// NodeGroup is a group of nodes that are equal for a pod.
type NodeGroup struct {
	Capacity string `json:"capacity"`
	// Pool is TYPE/ZONE; "" if labels do not define it. Pools counts the pools of the nodes if they
	// are in several: then Pool is "".
	Pool  string `json:"pool,omitempty"`
	Pools int    `json:"pools,omitempty"`
	// Accepts reports whether the nodes accept the pod.
	Accepts bool `json:"accepts"`
	// Reasons is why the nodes do not accept the pod: first the reason of the policy, in the
	// scheduler's words.
	Reasons []string `json:"reasons,omitempty"`
	// Names has the names of the nodes, and Count their number.
	Names []string `json:"names"`
	Count int      `json:"count"`

	verdict   decision.Verdict
	obstacles []string        // the reasons that are not of the policy
	pools     map[string]bool // the pools of the nodes
}

// nodesUnread replaces the parts of an answer that depend on nodes.
const nodesUnread = "nodes cannot be read, so it is unknown which nodes have room"

// creationFailure returns why the controller of a workload cannot create pods, such as an exceeded
// quota: ": MESSAGE"; "" if it can, or if the reason is only in events.
func (v *View) creationFailure(ref Ref) (why string) {
	read := func(failed bool, status v1.ConditionStatus, message string) {
		if failed && status == v1.ConditionTrue {
			why = ": " + message
		}
	}
	switch o := v.object(ref).(type) {
	case *appsv1.Deployment:
		for _, c := range o.Status.Conditions {
			read(c.Type == appsv1.DeploymentReplicaFailure, c.Status, c.Message)
		}
	case *appsv1.ReplicaSet:
		for _, c := range o.Status.Conditions {
			read(c.Type == appsv1.ReplicaSetReplicaFailure, c.Status, c.Message)
		}
	case *v1.ReplicationController:
		for _, c := range o.Status.Conditions {
			read(c.Type == v1.ReplicationControllerReplicaFailure, c.Status, c.Message)
		}
	}
	return why
}

// noPodsCreated is the answer for a workload that has replicas but no pods.
func (v *View) noPodsCreated(ref Ref) string {
	why := cmp.Or(v.creationFailure(ref), ": see the events of its ReplicaSet, StatefulSet or Job")
	return "its controller has created none of its pods" + why
}

// ErrNotFound means that an object is not in the cluster, or was not read.
var ErrNotFound = errors.New("not found")

// Explain explains a pod. For a workload it explains the first waiting pod, or else one more
// replica. kind is as in Ref, in any case.
func (v *View) Explain(kind, namespace, name string) (*Explanation, error) {
	if strings.EqualFold(kind, "Pod") {
		for _, p := range v.Snapshot.Pods {
			if p.Namespace == namespace && p.Name == name {
				return v.explainPod(Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name}, p), nil
			}
		}
		return nil, fmt.Errorf("pod %s/%s: %w (terminated pods are not considered)", namespace, name, ErrNotFound)
	}
	var roles []*snapshot.Workload // of the object, or the role that name contains
	for _, w := range v.Snapshot.Workloads {
		ref := refOf(w)
		if strings.EqualFold(w.Kind, kind) && w.Namespace == namespace && (w.Name == name || strings.EqualFold(ref.String(), kind+"/"+name)) {
			roles = append(roles, w)
		}
		for _, r := range w.Revisions {
			if rs := r.ReplicaSet; rs != nil && strings.EqualFold(kind, "ReplicaSet") && rs.Namespace == namespace && rs.Name == name {
				return v.explainWorkload(w), nil
			}
		}
	}
	if len(roles) > 0 {
		waits := func(w *snapshot.Workload) bool { return len(placementOf(w).waiting) > 0 }
		return v.explainWorkload(roles[max(0, slices.IndexFunc(roles, waits))]), nil
	}
	for _, pod := range v.TemplatePods {
		if subject, err := v.Owners.Subject(pod); err == nil {
			if owner := ownerOf(pod); strings.EqualFold(owner.Kind, kind) && owner.Namespace == namespace && owner.Name == name {
				p := simulation.Hypothetical(pod)
				p.Subject = subject
				e := &Explanation{Object: owner, Answer: v.noPodsCreated(owner)}
				if !v.applies(e, pod) {
					return e, nil
				}
				v.plan(e, p, owner, nil, decision.WaitTime{})
				if e.Desired == 0 { // no replica is missing, so the nodes do not matter
					e.Answer, e.Nodes = "it is scaled to 0 and has no pods", nil
				}
				return e, nil
			}
		}
	}
	return nil, fmt.Errorf("%s %s/%s: %w, or it has no pods", kind, namespace, name, ErrNotFound)
}

// explainWorkload explains the first waiting pod of w, or else one more replica of its newest
// revision with pods.
func (v *View) explainWorkload(w *snapshot.Workload) *Explanation {
	placement, pods := placementOf(w), w.Pods()
	if len(placement.waiting) > 0 {
		return v.explainPod(refOf(w), placement.waiting[0])
	}
	if len(pods) == 0 {
		return &Explanation{Object: refOf(w), Answer: "all its pods are being deleted or moved"}
	}
	live, last := len(pods), pods[len(pods)-1]
	more, what := v.oneMore(w, last)
	e := &Explanation{Object: refOf(w)}
	if !v.applies(e, last.Pod) {
		return e
	}
	plan := v.plan(e, more, refOf(w), last.Revision.Pods, decision.WaitTime{})
	if v.NodesUnknown {
		e.Answer = fmt.Sprintf("%s of %d; none is waiting; %s", Count(live, "replica", "replicas"), w.Desired, nodesUnread)
		return e
	}
	missing := ""
	if n := len(placement.onMissingNode); n > 0 {
		missing = fmt.Sprintf(", %d on deleted nodes", n)
	}
	if n := v.Snapshot.PodsInTransition()[w.Key].Missing; n > 0 {
		missing += fmt.Sprintf(", %d not created by its controller yet%s", n, v.creationFailure(refOf(w)))
	}
	e.Answer = fmt.Sprintf("%d of %d replicas are bound to nodes, %d on on-demand and %d on spot%s; none is waiting. ",
		live, w.Desired, placement.OnDemand, placement.Spot, missing)
	if e.Scheduler != "" {
		e.Answer += fmt.Sprintf("The controller decides about each new pod before scheduler %q places it", e.Scheduler)
		return e
	}
	would := "prefer"
	if plan.RequiresOnDemand() {
		would = "require"
	}
	e.Answer += fmt.Sprintf("%s would %s %s", what, would, plan.Prefer)
	if plan.Exempt || more.Subject.OnlyOnDemand {
		e.Answer += ", because " + e.onlyType(plan.Prefer)
	}
	if !slices.ContainsFunc(e.Nodes, func(g NodeGroup) bool { return g.Accepts }) {
		e.Answer += ", but no node would accept it"
		e.Remedies = v.remedies(e, more, &plan, decision.WaitTime{})
	}
	return e
}

// oneMore returns the pod that the controller of w would create next, in words too: a surge pod
// during a rollout, else a pod of one more replica. last is a pod of the newest revision.
func (v *View) oneMore(w *snapshot.Workload, last *snapshot.Pod) (pod *snapshot.Pod, what string) {
	more, subject := *last, *last.Subject
	subject.Pod = *subject.Pod.Replacement()
	more.Node, more.Subject, more.Pod = nil, &subject, workload.BeforeAssignment(last.Pod, v.Policy)
	subject.Pod.OnlyOnDemand = subject.Pod.OnlyOnDemand && more.Pod == last.Pod // else the assignment added this
	of := &subject.Pod.Workload
	switch {
	case of.Ordered:
		more.Volumes = nil // another ordinal has other volumes
		of.Ordinal = w.Desired
	case w.RollingOut:
		return &more, "The next pod of the rollout"
	}
	of.Desired = w.Desired + 1
	return &more, fmt.Sprintf("With %d replicas, the new one", of.Desired)
}

func (v *View) explainPod(of Ref, p *snapshot.Pod) *Explanation {
	e := &Explanation{Object: of, Pod: p.Name}
	if p.Node != nil {
		e.OnNode = p.Node.Name
	}
	if !v.applies(e, p.Pod) {
		return e
	}
	if p.Release != nil {
		e.Answer = "it was released from its ReplicaSet and will be removed when its replacement is ready: " +
			cmp.Or(p.Release.Reason, "unknown reason")
		return e
	}
	if p.Subject == nil {
		_, err := v.Owners.Subject(p.Pod)
		e.Answer = cmp.Or(err, errors.New("its owner is unknown")).Error()
		return e
	}
	// A pod never counts itself.
	siblings := slices.DeleteFunc(slices.Clone(p.Revision.Pods), func(q *snapshot.Pod) bool { return q == p })
	waiting := v.waiting(p)
	plan := v.plan(e, p, refOf(p.Workload), siblings, waiting)
	if p.Subject.Pod.Assigned != decision.Unassigned {
		e.Assigned = p.Annotations[spot.AssignedAnnotation]
	}
	if p.Subject.Pod.Granted != decision.NotGranted {
		e.Granted = workload.Granted(p.Pod)
	}
	switch {
	case p.DeletionTimestamp != nil:
		e.Answer = "it is being deleted"
	case p.Node != nil:
		e.Answer = fmt.Sprintf("it runs on %s (%s): %s", p.Node.Name, p.Node.Facts.Capacity.Type, v.placementReason(e, p, siblings, waiting))
	case p.Spec.NodeName != "" && v.NodesUnknown:
		e.Answer = fmt.Sprintf("it is bound to node %s; %s", p.Spec.NodeName, nodesUnread)
	case p.Spec.NodeName != "":
		e.Answer = fmt.Sprintf("it is bound to node %s, which is unknown", p.Spec.NodeName)
	default:
		e.Answer = "it waits: " + waitReason(p)
		if workload.Gated(p.Pod) {
			e.Answer = "it has the scheduling gate " + spot.CapacityGate + " until the controller assigns a capacity type to it"
			if until := workload.GateKeptUntil(p.Pod); !until.IsZero() {
				e.Answer = "it waits at its scheduling gate for on-demand room; it may run on spot from " + until.Format(time.RFC3339)
			}
		}
		if e.Scheduler != "" {
			e.Answer += "; " + placedBy(p)
		}
		if v.NodesUnknown {
			e.Answer += "; " + nodesUnread
		} else {
			e.Remedies = v.remedies(e, p, &plan, waiting)
		}
	}
	return e
}

// waiting returns how long the pod has waited, as a new leader of the scheduler would determine it.
func (v *View) waiting(p *snapshot.Pod) (wait decision.WaitTime) {
	if since, waits := workload.WaitingSince(p.Pod, v.Snapshot.Now); waits {
		wait.For = v.Snapshot.Now.Sub(since)
	}
	for _, r := range p.Workload.Revisions {
		if r == p.Revision {
			break // the oldest revision is first
		}
		wait.OlderRevisionOnDemand = wait.OlderRevisionOnDemand || r.Placed.OnDemand > 0
	}
	return wait
}

// plan adds to e how the policy applies to p, and returns the plan. siblings has the other live
// pods of its revision.
func (v *View) plan(e *Explanation, p *snapshot.Pod, w Ref, siblings []*snapshot.Pod, waiting decision.WaitTime) decision.Plan {
	pod := &p.Subject.Pod
	siblingsAt := distributionOf(siblings)
	placed := siblingsAt.Placed
	settings, origins, invalid := v.Policy.Explain(pod)
	plan := decision.NewPlan(pod, settings, placed, waiting)
	e.Workload, e.Revision = &w, pod.Workload.Revision
	if v.Scope.KeepsScheduler(p.Pod) {
		e.Scheduler = p.Spec.SchedulerName
	}
	job := pod.Workload.Batch != decision.NotBatch
	for i := range decision.Settings {
		if setting := &decision.Settings[i]; setting.Applies(settings, job) {
			e.Settings = append(e.Settings, Setting{setting.Name, setting.Text(settings), origins.Sources[setting.Name]})
		}
	}
	if job {
		e.Disruptions = disruptionsOf(settings, &plan)
	}
	e.Ignored = v.ignoredOf(p, origins, invalid)
	if e.Scheduler != "" && plan.PoolCap > 0 {
		e.Ignored = append(e.Ignored, "maxPerPool has no effect: node affinity cannot express it")
	}
	if workload.HasUnsupportedController(p.Pod) {
		e.Ignored = append(e.Ignored, "annotations on its controller are not read: set them in the pod template")
	}
	e.Desired, e.Floor, e.Budget = pod.Workload.Desired, plan.Floor, plan.Budget
	if !v.NodesUnknown {
		e.OnSpot, e.OnOnDemand = &placed.Spot, &placed.OnDemand
	}
	if pod.Workload.Ordered {
		e.Ordinal = &pod.Workload.Ordinal
	}
	e.BudgetUsage = plan.BudgetUsage()
	if e.Scheduler == "" || e.Pod != "" && !workload.Gated(p.Pod) { // else the controller decides first
		e.Nodes = v.groups(p, &plan, &siblingsAt)
	}
	return plan
}

// disruptionsOf describes the disruptions of a Job; "" without a limit.
func disruptionsOf(s decision.WorkloadSettings, plan *decision.Plan) string {
	switch counted := fmt.Sprintf("%d of %d", s.Disruptions, s.DisruptionLimit); {
	case s.DisruptionLimit == 0:
		return ""
	case s.DisruptionLimitReached():
		return counted + ": " + plan.DisruptionReason()
	case s.OnDisruptionLimit == decision.PreferOnDemand:
		return counted + ": at the limit, its pods prefer on-demand"
	default:
		return counted + ": at the limit, its pods run on on-demand"
	}
}
