package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Explanation says why a pod is where it is, or waits, and what the policy says of its workload.
type Explanation struct {
	// Of is what was asked for; Pod is the pod that Nodes speak of, OnNode where it stands. Without Pod they speak of one more replica.
	Of     Ref    `json:"of"`
	Pod    string `json:"pod,omitempty"`
	OnNode string `json:"onNode,omitempty"`
	// Answer is the whole in one sentence.
	Answer string `json:"answer"`
	// Workload is what the pod belongs to, Revision what its siblings are counted by; nil and "": the policy has no opinion on it, or its owner
	// is not known. Then nothing below is set.
	Workload *Ref   `json:"workload,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Settings are those in force, with what gave each; Ignored are the annotations that do not count.
	Settings []Setting `json:"settings,omitempty"`
	Ignored  []string  `json:"ignored,omitempty"`
	// Assigned is the annotation of that name: the capacity type that the controller assigned to the pod, and why. Granted is the other one:
	// why the controller lets the pod take any spot node. Values that mean nothing are left out.
	Assigned string `json:"assigned,omitempty"`
	Granted  string `json:"granted,omitempty"`
	Desired  int    `json:"desired"`
	Floor    int    `json:"floor"`
	// Budget is how many of the revision may be on spot; OnSpot and OnOnDemand how many of it are there, the pod itself left out. For an
	// ordered workload (a StatefulSet) Ordinal decides instead: the floor is the first ones. Both counts are nil where nodes could not be read.
	Budget     int  `json:"budget"`
	OnSpot     *int `json:"onSpot,omitempty"`
	OnOnDemand *int `json:"onOnDemand,omitempty"`
	Ordinal    *int `json:"ordinal,omitempty"`
	// Budgeted says it in the scheduler's words.
	Budgeted string `json:"budgeted,omitempty"`
	// Nodes are all nodes, in groups of those that are alike to the pod: those that would take it first, then the largest.
	Nodes []NodeGroup `json:"nodes,omitempty"`
	// Unblock is what would have the pod placed; nil for one that stands where it should.
	Unblock []string `json:"unblock,omitempty"`
}

// Setting is one setting of a pod, with what gave it.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// NodeGroup is all nodes that are alike to a pod.
type NodeGroup struct {
	Capacity string `json:"capacity"`
	// Pool is TYPE/ZONE; "" where labels do not say.
	Pool string `json:"pool,omitempty"`
	// Takes: nothing keeps the pod off them.
	Takes bool `json:"takes"`
	// Policy is why the policy keeps it off, in the scheduler's words. Obstacles are what does so beside the policy.
	Policy    string   `json:"policy,omitempty"`
	Obstacles []string `json:"obstacles,omitempty"`
	// Names are the nodes.
	Names []string `json:"names"`

	verdict decision.Verdict
}

// nodesUnread is what is said instead of what only nodes tell.
const nodesUnread = "nodes cannot be read, so where on-demand or spot takes it is not known"

// noneMade is said of a workload that wants pods, and has none.
const noneMade = "none of its pods has been made: see the events of its ReplicaSet or StatefulSet"

// ErrNotFound is the error for what is not in the cluster, or was not read.
var ErrNotFound = errors.New("not found")

// Explain explains a pod, or a workload by its first pod that waits, or else by one more replica of it. kind is as in Ref, in any case.
func (v *View) Explain(kind, namespace, name string) (*Explanation, error) {
	if strings.EqualFold(kind, "Pod") {
		for _, p := range v.Snapshot.Pods {
			if p.Namespace == namespace && p.Name == name {
				return v.explainPod(Ref{"v1", "Pod", namespace, name}, p)
			}
		}
		return nil, fmt.Errorf("pod %s/%s: %w (pods that have ended are not looked at)", namespace, name, ErrNotFound)
	}
	for _, w := range v.Snapshot.Workloads {
		if strings.EqualFold(w.Kind, kind) && w.Namespace == namespace && w.Name == name {
			return v.explainWorkload(w)
		}
		for _, r := range w.Revisions {
			if rs := r.ReplicaSet; rs != nil && strings.EqualFold(kind, "ReplicaSet") && rs.Namespace == namespace && rs.Name == name {
				return v.explainWorkload(w)
			}
		}
	}
	for _, pod := range v.Wanted {
		if subject, err := v.Owners.Subject(pod); err == nil {
			if of := ownerOf(pod, subject.Pod.Workload.Kind); strings.EqualFold(of.Kind, kind) && of.Namespace == namespace && of.Name == name {
				p := cluster.Hypothetical(pod)
				p.Subject = subject
				e := &Explanation{Of: of, Answer: noneMade}
				v.plan(e, p, of, decision.Placed{}, nil, decision.Waiting{})
				if e.Desired == 0 { // no node takes a replica that nobody wants
					e.Answer, e.Nodes = "it is scaled to 0, and has no pods", nil
				}
				return e, nil
			}
		}
	}
	return nil, fmt.Errorf("%s %s/%s: %w, or it has no pods", kind, namespace, name, ErrNotFound)
}

// explainWorkload explains the first pod of w that waits, or else one more replica of its newest revision that has pods.
func (v *View) explainWorkload(w *cluster.Workload) (*Explanation, error) {
	var last *cluster.Pod
	for _, r := range w.Revisions {
		for _, p := range r.Pods {
			if p.Spec.NodeName == "" {
				return v.explainPod(refOf(w), p)
			}
			last = p
		}
	}
	if last == nil {
		return &Explanation{Of: refOf(w), Answer: "all its pods are on the way out"}, nil
	}
	if last.Subject.Pod.Workload.Ordered {
		return v.explainPod(refOf(w), last) // what holds for one ordinal says nothing of another
	}
	more, subject := *last, *last.Subject
	subject.Pod = *subject.Pod.Replacement()
	more.Node, more.Subject = nil, &subject
	e := &Explanation{Of: refOf(w)}
	if !v.ours(e, last.Pod) {
		return e, nil
	}
	at := standingOf(w)
	plan := v.plan(e, &more, refOf(w), last.Revision.Placed, last.Revision.Pods, decision.Waiting{})
	if v.NoNodes {
		e.Answer = fmt.Sprintf("%s of %d, and none waits; %s", Count(live(w), "replica", "replicas"), w.Desired, nodesUnread)
		return e, nil
	}
	e.Answer = fmt.Sprintf("%d of %d replicas stand on nodes, %d on on-demand and %d on spot; none waits. One more would prefer %s",
		at.OnDemand+at.Spot, w.Desired, at.OnDemand, at.Spot, plan.Prefer)
	return e, nil
}

// live returns how many live pods w has.
func live(w *cluster.Workload) (n int) {
	for _, r := range w.Revisions {
		n += len(r.Pods)
	}
	return n
}

// ours reports whether the policy speaks of a pod, and says why not in the answer.
func (v *View) ours(e *Explanation, pod *v1.Pod) bool {
	switch {
	case !kube.HasOpinion(pod):
		e.Answer = "the policy has no opinion on it: pods of DaemonSets and static pods belong to their nodes"
	case pod.Spec.SchedulerName != v.Profile:
		e.Answer = fmt.Sprintf("the policy does not speak of it: its schedulerName is %q, not %q", pod.Spec.SchedulerName, v.Profile)
	default:
		return true
	}
	return false
}

func (v *View) explainPod(of Ref, p *cluster.Pod) (*Explanation, error) {
	e := &Explanation{Of: of, Pod: p.Name}
	if p.Node != nil {
		e.OnNode = p.Node.Name
	}
	if !v.ours(e, p.Pod) {
		return e, nil
	}
	if p.Release != nil {
		e.Answer = "it was released from its ReplicaSet, to leave when its replacement is ready: " + cmp.Or(p.Release.Reason, "for a reason that is not known")
		return e, nil
	}
	if p.Subject == nil {
		_, err := v.Owners.Subject(p.Pod)
		if err == nil {
			err = errors.New("what it belongs to is not known")
		}
		e.Answer = err.Error()
		return e, nil
	}
	placed, siblings := p.Revision.Placed, slices.DeleteFunc(slices.Clone(p.Revision.Pods), func(q *cluster.Pod) bool { return q == p })
	if p.Node != nil && p.Live() { // a pod never counts itself
		if p.Node.Facts.Capacity.Type == decision.Spot {
			placed.Spot--
		} else {
			placed.OnDemand--
		}
	}
	waiting := v.waiting(p)
	plan := v.plan(e, p, refOf(p.Workload), placed, siblings, waiting)
	if p.Subject.Pod.Assigned != decision.Unassigned {
		e.Assigned = p.Annotations[kube.AssignedAnnotation]
	}
	if p.Subject.Pod.Granted != decision.NotGranted {
		e.Granted = p.Annotations[kube.GrantedAnnotation]
	}
	switch {
	case p.DeletionTimestamp != nil:
		e.Answer = "it is being deleted"
	case p.Node != nil:
		e.Answer = fmt.Sprintf("it stands on %s (%s): %s", p.Node.Name, p.Node.Facts.Capacity.Type, v.standsAs(p, siblings, waiting))
	case p.Spec.NodeName != "" && v.NoNodes:
		e.Answer = fmt.Sprintf("it is bound to node %s; %s", p.Spec.NodeName, nodesUnread)
	case p.Spec.NodeName != "":
		e.Answer = fmt.Sprintf("it is bound to node %s, which is not known", p.Spec.NodeName)
	default:
		e.Answer = "it waits: " + waitsFor(p)
		if kube.Gated(p.Pod) {
			e.Answer = "it waits behind the scheduling gate " + kube.CapacityGate + " until the controller has assigned a capacity type to it"
		}
		if v.NoNodes {
			e.Answer += "; " + nodesUnread
		} else {
			e.Unblock = v.unblock(e, p, &plan, waiting)
		}
	}
	return e, nil
}

// waiting returns what having waited may have earned a pod. The scheduler remembers since when; from outside there is only the condition,
// which tells the same unless the pod had a scheduling gate before, or the scheduler has been started since.
func (v *View) waiting(p *cluster.Pod) (earned decision.Waiting) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
			earned.For = max(0, v.Snapshot.Now.Sub(c.LastTransitionTime.Time))
		}
	}
	for _, r := range p.Workload.Revisions {
		if r == p.Revision {
			break // the oldest comes first
		}
		earned.OlderOnDemand = earned.OlderOnDemand || r.Placed.OnDemand > 0
	}
	return earned
}

// plan fills in what the policy says of p, whose revision stands as placed says, siblings being its other pods, and returns it.
func (v *View) plan(
	e *Explanation, p *cluster.Pod, w Ref, placed decision.Placed, siblings []*cluster.Pod, waiting decision.Waiting,
) decision.Plan {
	pod := &p.Subject.Pod
	settings, origins, invalid := v.Policy.Explain(pod)
	plan := decision.NewPlan(pod, settings, placed, waiting)
	e.Workload, e.Revision = &w, pod.Workload.Revision
	e.Settings = settingsOf(settings, &origins)
	for _, annotation := range invalid {
		e.Ignored = append(e.Ignored, annotation.String())
	}
	e.Ignored = append(e.Ignored, origins.Overruled...)
	e.Desired, e.Floor, e.Budget = pod.Workload.Desired, plan.Floor, plan.Budget
	if !v.NoNodes {
		e.OnSpot, e.OnOnDemand = &placed.Spot, &placed.OnDemand
	}
	if pod.Workload.Ordered {
		e.Ordinal = &pod.Workload.Ordinal
	}
	e.Budgeted = plan.Budgeted()
	e.Nodes = v.groups(p, &plan, siblings)
	return plan
}

// settingsOf lists settings with where they come from.
func settingsOf(s decision.Settings, from *decision.Origins) []Setting {
	perPool, unsatisfiable := "no cap", "DoNotSchedule"
	orNever := func(d time.Duration) string {
		if d == decision.Never {
			return "never"
		}
		return d.String()
	}
	if s.MaxPerPool != nil {
		perPool = s.MaxPerPool.String()
	}
	if s.WhenUnsatisfiable == decision.ScheduleAnyway {
		unsatisfiable = "ScheduleAnyway"
	}
	return []Setting{
		{"minOnDemand", s.MinOnDemand.String(), from.MinOnDemand},
		{"maxPerPool", perPool, from.MaxPerPool},
		{"whenUnsatisfiable", unsatisfiable, from.WhenUnsatisfiable},
		{"fallbackAfter", orNever(s.FallbackAfter), from.FallbackAfter},
		{"rolloutRelief", orNever(s.RolloutRelief), from.RolloutRelief},
		{"overflow", s.Overflow.String(), from.Overflow},
		{"exemptions", s.Exemptions.String(), from.Exemptions},
		{"protect", strconv.FormatBool(s.Protect), from.Protect},
	}
}

// inPool counts the siblings on nodes of a node's pool.
func inPool(n *cluster.Node, siblings []*cluster.Pod) (pods int) {
	for _, p := range siblings {
		if p.Node != nil && poolOf(p.Node) == poolOf(n) {
			pods++
		}
	}
	return pods
}

// poolOf is what siblings on a node are counted by.
func poolOf(n *cluster.Node) decision.SpreadPool {
	return n.Facts.SpreadPool(n.Labels[v1.LabelTopologyZone])
}

// groups asks the plan and the pod's own demands of every node.
func (v *View) groups(p *cluster.Pod, plan *decision.Plan, siblings []*cluster.Pod) (all []NodeGroup) {
	inspection := cluster.NewInspection(v.Snapshot, p)
	perPool := map[decision.SpreadPool]int{}
	index := map[string]int{}
	for _, n := range v.Snapshot.Nodes {
		pods, counted := perPool[poolOf(n)]
		if !counted {
			pods = inPool(n, siblings)
			perPool[poolOf(n)] = pods
		}
		verdict, obstacles := plan.Admit(n.Facts, 0, pods), inspection.Obstacles(n)
		if n.Facts.Capacity.Source == decision.Settling && verdict == decision.Admitted && v.wantedForFloor(n, p) {
			verdict = decision.Held(verdict)
		}
		g := NodeGroup{
			Capacity: n.Facts.Capacity.Type.String(), Takes: verdict == decision.Admitted && len(obstacles) == 0,
			Policy: plan.Reason(verdict), Obstacles: obstacles, verdict: verdict,
		}
		if n.Facts.Pool != (decision.Pool{}) {
			g.Pool = poolName(n)
		}
		key := strings.Join(append([]string{g.Capacity, g.Pool, g.Policy}, obstacles...), "\x00")
		at, known := index[key]
		if !known {
			at = len(all)
			index[key], all = at, append(all, g)
		}
		all[at].Names = append(all[at].Names, n.Name)
	}
	slices.SortStableFunc(all, func(a, b NodeGroup) int {
		if a.Takes != b.Takes {
			if a.Takes {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(len(b.Names), len(a.Names)), strings.Compare(a.Capacity, b.Capacity), strings.Compare(a.Pool, b.Pool))
	})
	return all
}

// standsAs says in words why a pod stands where it does, by the siblings that come before it there (cluster.ByRank): where more of them
// stand than the floor or the budget has, the last are those beyond it.
func (v *View) standsAs(p *cluster.Pod, siblings []*cluster.Pod, waiting decision.Waiting) string {
	capacity := p.Node.Facts.Capacity.Type
	before := slices.DeleteFunc(slices.Clone(siblings), func(q *cluster.Pod) bool {
		return q.Node == nil || q.Node.Facts.Capacity.Type != capacity || cluster.ByRank(q, p) > 0
	})
	settings, _ := v.Policy.Settings(&p.Subject.Pod)
	var there decision.Placed
	for _, q := range siblings {
		if q.Node != nil && (q.Node.Facts.Capacity.Type != capacity || cluster.ByRank(q, p) <= 0) {
			there.Add(q.Node.Facts.Capacity.Type, 1)
		}
	}
	plan := decision.NewPlan(&p.Subject.Pod, settings, there, waiting)
	switch plan.Outcome(p.Node.Facts, inPool(p.Node, before)) {
	case decision.OnFloor:
		return "part of the floor"
	case decision.Overflow:
		if plan.KeptOffOnDemand() {
			return "beyond the floor, although overflow is Never: the setting, the floor or the replica count has changed since"
		}
		return "beyond the floor: no spot node took it, or the budget was used up"
	case decision.ByExemption:
		return "its own selector or affinity admits only spot, so no floor holds it back"
	case decision.ByScheduleAnyway:
		return "over its budget or cap: whenUnsatisfiable is ScheduleAnyway"
	}
	if !plan.Exempt && !plan.WithinBudget(0) {
		return "over its budget: it fell back to spot, or the floor or the replica count has changed since"
	}
	return "within its budget"
}

// unblock says what would have a pod placed that waits.
func (v *View) unblock(e *Explanation, p *cluster.Pod, plan *decision.Plan, waiting decision.Waiting) (all []string) {
	if len(p.Spec.SchedulingGates) > 0 {
		return v.unblockGated(p)
	}
	takes, kept := 0, map[decision.Verdict]int{} // how many nodes would take it but for the policy
	short := map[string]int{}                    // how many that the policy allows lack one thing only
	for i := range e.Nodes {
		switch g := &e.Nodes[i]; {
		case g.Takes:
			takes += len(g.Names)
		case g.verdict != decision.Admitted && len(g.Obstacles) == 0:
			kept[g.verdict] += len(g.Names)
		case g.verdict == decision.Admitted && len(g.Obstacles) == 1:
			short[g.Capacity+" nodes: "+g.Obstacles[0]] += len(g.Names)
		}
	}
	if takes > 0 {
		return []string{fmt.Sprintf("%s would take it: the scheduler has not tried it again yet, or is kept off by what is not looked at here "+
			"(limits on volumes, resource claims, gangs, the anti-affinity of others)", Count(takes, "node", "nodes"))}
	}
	things := make([]string, 0, len(short))
	for thing := range short {
		things = append(things, thing)
	}
	slices.SortFunc(things, func(a, b string) int { return cmp.Or(cmp.Compare(short[b], short[a]), strings.Compare(a, b)) })
	for _, thing := range things {
		all = append(all, fmt.Sprintf("%d %s is all that is in the way", short[thing], thing))
	}
	for verdict := range decision.Verdict(decision.Verdicts) {
		if n := kept[verdict]; n > 0 {
			all = append(all, fmt.Sprintf("%s would take it but for the policy: %s", Count(n, "node", "nodes"), plan.Reason(verdict)))
		}
	}
	if kept[decision.OverBudget] > 0 || kept[decision.OnFloorOrdinal] > 0 {
		all = append(all, fmt.Sprintf("a lower floor: annotation %s on the %s", decision.MinOnDemandAnnotation, e.Workload.Kind))
	}
	if kept[decision.OverflowRefused] > 0 {
		all = append(all, fmt.Sprintf("overflow Allow: annotation %s on the %s", decision.OverflowAnnotation, e.Workload.Kind))
	}
	if plan.Grant == decision.NotGranted && !plan.MayTakeSpot() && !p.Subject.Pod.OnlyOnDemand {
		settings, _ := v.Policy.Settings(&p.Subject.Pod)
		if in, ok := settings.NextChange(waiting.For, waiting.OlderOnDemand); ok {
			all = append(all, fmt.Sprintf("time: in %s it may take any spot node (it has waited for %s; a scheduler started since counts anew)",
				in.Round(time.Second), waiting.For.Round(time.Second)))
		}
	}
	if len(all) == 0 {
		all = append(all, "another node: those that there are lack more than one thing each")
	}
	return all
}

// unblockGated says who removes each scheduling gate of a pod, as far as that is known.
func (v *View) unblockGated(p *cluster.Pod) (all []string) {
	for _, gate := range p.Spec.SchedulingGates {
		if gate.Name != kube.CapacityGate {
			all = append(all, "its scheduling gates: "+gate.Name)
			continue
		}
		left := max(0, v.Policy.GateTimeout-v.Snapshot.Now.Sub(p.CreationTimestamp.Time))
		all = append(all, fmt.Sprintf("the controller, with gating.enabled: it removes the scheduling gate %s; else the scheduler does in %s (gateTimeout)",
			gate.Name, left.Round(time.Second)))
	}
	return all
}
