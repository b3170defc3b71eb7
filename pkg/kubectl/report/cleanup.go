package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/failsafe"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Cleanup contains what the programs left on objects of other owners. It is only valid while no
// controller runs.
type Cleanup struct {
	// Items are the changes that remove it, at most one of an object.
	Items []CleanupItem `json:"items"`
	// Left are the marks that cannot be removed now, with the reason.
	Left []LeftMark `json:"left,omitempty"`
	// Waiting are the pods without a node that name the scheduler, as NAMESPACE/NAME.
	Waiting []string `json:"waiting,omitempty"`
}

// CleanupItem is a change of an object.
type CleanupItem struct {
	Ref `json:",inline"`
	// Change describes what is removed from the object.
	Change string `json:"change"`
	// Pod is patched, or deleted if Patch is nil. Mark removes the marks of a node. If both are
	// nil, the PodDisruptionBudget with this UID is deleted.
	Pod   *v1.Pod            `json:"-"`
	Patch *workload.PodPatch `json:"-"`
	Mark  *interruption.Mark `json:"-"`
	UID   types.UID          `json:"-"`
}

// LeftMark is a mark that stays.
type LeftMark struct {
	Ref `json:",inline"`
	// Reason is why the mark stays.
	Reason string `json:"reason"`
}

// NewCleanup returns what is left in the caches of factory. With a namespace, it ignores nodes. If
// a node lacks the record of the controller's taint, a value that names one of signals identifies
// it. Pods with the schedulerName of profile wait for the scheduler.
func NewCleanup(
	factory informers.SharedInformerFactory, namespace string, signals []providers.Signal, profile string, now time.Time,
) *Cleanup {
	c, releases := &Cleanup{Items: []CleanupItem{}}, failsafe.NewReleases(factory)
	for _, pod := range snapshot.All(factory.Core().V1().Pods().Lister()) {
		if !workload.Live(pod) {
			continue
		}
		c.addPod(pod, releases)
		if pod.Spec.NodeName == "" && pod.Spec.SchedulerName == profile {
			c.Waiting = append(c.Waiting, pod.Namespace+"/"+pod.Name)
		}
	}
	for _, budget := range snapshot.All(factory.Policy().V1().PodDisruptionBudgets().Lister()) {
		if workload.ManagedDisruptionBudget(budget) && budget.DeletionTimestamp == nil {
			ref := Ref{APIVersion: "policy/v1", Kind: "PodDisruptionBudget", Namespace: budget.Namespace, Name: budget.Name}
			c.Items = append(c.Items, CleanupItem{Ref: ref, Change: "delete it", UID: budget.UID})
		}
	}
	if namespace == "" {
		c.addNodes(snapshot.All(factory.Core().V1().Nodes().Lister()), signals, now)
	}
	slices.SortFunc(c.Items, func(a, b CleanupItem) int { return compareRefs(a.Ref, b.Ref) })
	slices.SortFunc(c.Left, func(a, b LeftMark) int { return cmp.Or(compareRefs(a.Ref, b.Ref), strings.Compare(a.Reason, b.Reason)) })
	slices.Sort(c.Waiting)
	return c
}

// addPod adds one change with all that is left on a pod.
func (c *Cleanup) addPod(pod *v1.Pod, releases *failsafe.Releases) {
	ref := Ref{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	patch, changes := &workload.PodPatch{Annotations: map[string]*string{}}, []string{}
	if workload.Released(pod) {
		var end *workload.PodPatch
		release, reason := workload.ReadRelease(pod)
		if reason == "" {
			end, reason = releases.End(pod, release)
		}
		switch {
		case reason != "":
			c.Left = append(c.Left, LeftMark{ref, "it is released: " + reason})
		case end == nil:
			c.Items = append(c.Items, CleanupItem{Ref: ref, Pod: pod,
				Change: "delete it: its ReplicaSet is gone, and its Deployment has all replicas"})
			return
		case pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == release.Hash && !workload.ControlledByDeployment(pod):
			patch, changes = end, removed(end.Annotations) // its ReplicaSet has adopted it
		default:
			patch, changes = end, append(changes, "restore it to ReplicaSet "+release.ReplicaSet)
		}
	}
	if workload.Gated(pod) {
		patch.Spec = &workload.PodSpecPatch{SchedulingGates: workload.WithoutCapacityGate(pod)}
		changes = append(changes, "remove gate "+spot.CapacityGate)
	}
	if _, marked := pod.Annotations[spot.DeletionCostAnnotation]; marked {
		cost := rebalance.Cost{Pod: &snapshot.Pod{Pod: pod}}.Patch()
		maps.Copy(patch.Annotations, cost.Annotations)
		changes = append(changes, removed(cost.Annotations)...)
	}
	if len(changes) > 0 {
		c.Items = append(c.Items, CleanupItem{Ref: ref, Pod: pod, Patch: patch, Change: strings.Join(changes, ", ")})
	}
}

// addNodes adds the changes of nodes, and the taints of other clients. A controller with the zero
// Settings would make the same changes. The snapshot has no workloads, so the plan sets no taint
// for them.
func (c *Cleanup) addNodes(nodes []*v1.Node, signals []providers.Signal, now time.Time) {
	for _, node := range nodes {
		ref, taints := Ref{APIVersion: "v1", Kind: "Node", Name: node.Name}, node.Spec.Taints
		s := &snapshot.Snapshot{Now: now, Nodes: []*snapshot.Node{{Node: node}}}
		marks, _, _ := interruption.Plan(s, interruption.Settings{Signals: signals})
		for _, mark := range marks {
			changes := removed(mark.Annotations)
			if mark.Taints != nil {
				taints, changes = mark.Taints, append(changes, "remove taint "+spot.InterruptionTaint)
			}
			c.Items = append(c.Items, CleanupItem{Ref: ref, Mark: &mark, Change: strings.Join(changes, ", ")})
		}
		for _, taint := range taints {
			if taint.Key == spot.InterruptionTaint {
				c.Left = append(c.Left, LeftMark{ref, "another client set taint " + taint.ToString()})
			}
		}
	}
}

// removed describes the removal of annotations.
func removed(annotations map[string]*string) (changes []string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		changes = append(changes, "remove annotation "+key)
	}
	return changes
}
