// Package report answers an operator's questions about a cluster: the state of its workloads, the
// facts of its nodes, why a pod is on its node or waits, which replicas would be lost with which
// nodes, what spot saves, and which workloads could run on spot. Every answer is a value made from
// one snapshot.Snapshot. Package report makes no decisions of its own: it uses package decision, as
// the scheduler does.
//
// The values are what `-o json` prints; the names of their fields are an interface.
package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// View is a cluster under one policy. Its methods are not safe for concurrent use.
type View struct {
	Snapshot *snapshot.Snapshot
	// Policy, Signals and Scope are the ones with which the Snapshot was read. Gating and
	// Interruption are sections of the controller's configuration.
	Policy       *decision.Policy
	Signals      []providers.Signal
	Scope        workload.Scope
	Gating       controller.Gating
	Interruption controller.Interruption
	// Namespace limits the workloads of answers, although the Snapshot has other pods; "" means
	// all.
	Namespace string
	// Pools are the pools from which an autoscaler adds nodes; nil for none.
	Pools *workload.Pools
	// Owners finds the owners of pods.
	Owners *workload.Owners
	// TemplatePods has one pod of each workload, made from its pod template
	// (lister.Objects.TemplatePods). It represents the newest template, and workloads without any
	// pod.
	TemplatePods []*v1.Pod
	// Pause is the pause of the controller that is in effect; nil if there is none.
	Pause *safety.Pause
	// ForcedBreaker is as in interruption.Settings.
	ForcedBreaker *bool
	// NodesUnknown reports whether nodes could not be read.
	NodesUnknown bool
	// Rebalancer is the state of the controller, by which Statuses knows what a workload waits for;
	// nil if it is unknown.
	Rebalancer *lister.Controller
	// Mode is how workloads opt in; "" is ModeOwn. Only Assess uses it.
	Mode Mode
	// DisruptionBudgetsUnknown reports whether PodDisruptionBudgets could not be read, or a dump
	// has none. SpotPools has spot nodes that do not exist, one for each pool to come
	// (NewSpotPool). Only Assess uses both.
	DisruptionBudgetsUnknown bool
	SpotPools                []*snapshot.Node
	// Object returns a workload's own object or a namespace (lister.Objects.Object); nil if objects
	// are unknown.
	Object func(apiVersion, kind, namespace, name string) metav1.Object

	selected map[*policyv1.PodDisruptionBudget][]*snapshot.Workload // cached by requiredByBudget
}

// Ref names an object.
type Ref struct {
	// APIVersion is the API version of Kind.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Role distinguishes the groups of pods that the object controls; see workload.OwnerKey.
	Role string `json:"role,omitempty"`
}

// String returns the name in the form of kubectl, with the role: deployment/web, raycluster/train
// (head).
func (r Ref) String() string {
	name := strings.ToLower(r.Kind) + "/" + r.Name
	if r.Role != "" {
		name += " (" + r.Role + ")"
	}
	return name
}

func compareRefs(a, b Ref) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name),
		strings.Compare(a.Role, b.Role), strings.Compare(a.APIVersion, b.APIVersion))
}

func refOf(w *snapshot.Workload) Ref {
	return Ref{APIVersion: w.APIVersion, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, Role: w.Key.Role}
}

// Includes reports whether answers contain workloads of a namespace.
func (v *View) Includes(namespace string) bool { return v.Namespace == "" || v.Namespace == namespace }

func (v *View) nodesOf(capacity decision.CapacityType) []*snapshot.Node {
	return slices.DeleteFunc(slices.Clone(v.Snapshot.Nodes), func(n *snapshot.Node) bool { return n.Facts.Capacity.Type != capacity })
}

type placement struct {
	decision.FloorStatus
	// waiting pods have no node. Pods onMissingNode are bound to a node that does not exist.
	waiting, onMissingNode []*snapshot.Pod
	// inPool counts the pods on spot by poolName.
	inPool map[string]int
	// exempt reports whether the node selector or affinity of the newest pods admits only spot, and
	// the policy permits that.
	exempt bool
}

func placementOf(w *snapshot.Workload) placement {
	s := placement{FloorStatus: w.FloorStatus(), inPool: map[string]int{}}
	for _, p := range w.Pods() {
		s.exempt = w.Settings.Exempts(&p.Subject.Pod)
		switch {
		case p.Spec.NodeName == "":
			s.waiting = append(s.waiting, p)
		case p.Node == nil:
			s.onMissingNode = append(s.onMissingNode, p)
		case p.Node.Facts.Capacity.Type == decision.Spot:
			s.inPool[poolName(p.Node)]++
		}
	}
	return s
}

// largestPool returns the spot pool that most of the pods run on. Of several such pools it returns
// the first by name. It returns "" if no pod runs on spot.
func (s *placement) largestPool() (name string, pods int) {
	for _, pool := range slices.Sorted(maps.Keys(s.inPool)) {
		if s.inPool[pool] > pods {
			name, pods = pool, s.inPool[pool]
		}
	}
	return name, pods
}

func distributionOf(pods []*snapshot.Pod) (d decision.Distribution) {
	for _, p := range pods {
		if p.Node != nil {
			d.Add(p.Node.Facts, 1)
		}
	}
	return d
}

// definedPool returns the name of the pool of a node as TYPE/ZONE; "" if its labels do not define
// a pool.
func definedPool(n *snapshot.Node) string {
	if n.Facts.Pool == (decision.Pool{}) {
		return ""
	}
	return n.Facts.Pool.InstanceType + "/" + n.Facts.Pool.Zone
}

// poolName is like definedPool, with the node's name for a node without a pool.
func poolName(n *snapshot.Node) string { return cmp.Or(definedPool(n), "node "+n.Name) }
