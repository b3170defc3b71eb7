// Package report answers what an operator asks of a cluster: how its workloads stand, what its nodes are, why a pod is where it is or waits,
// who would go down with which nodes, and what spot saves. Every answer is a value made from one cluster.Snapshot, and comes from the core
// that the scheduler decides by (package decision): nothing is decided here.
//
// The values are what `-o json` prints; the names of their fields are an interface.
package report

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// View is a cluster as one policy sees it. Its methods do not change it, and must not be called concurrently.
type View struct {
	Snapshot *cluster.Snapshot
	// Policy and Signals are what the Snapshot was read with; Profile is the scheduler name of the pods that the policy speaks of.
	Policy  *decision.Policy
	Signals []kube.Signal
	Profile string
	// Owners looks up what pods belong to.
	Owners *kube.Owners
	// Wanted has a pod of each workload of the profile that wants some (survey.Wanted), or is scaled to 0: workloads without any pod are known
	// by it.
	Wanted []*v1.Pod
	// NoNodes: nodes could not be read.
	NoNodes bool
}

// Ref names an object.
type Ref struct {
	// APIVersion is that of Kind.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// String names the object as kubectl does: deployment/web.
func (r Ref) String() string { return strings.ToLower(r.Kind) + "/" + r.Name }

func compareRefs(a, b Ref) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// refOf names a workload.
func refOf(w *cluster.Workload) Ref {
	return Ref{APIVersion: w.APIVersion, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}
}

// standing is where the live pods of a workload are.
type standing struct {
	decision.Standing
	// waiting have no node; astray are bound to one that does not exist.
	waiting, astray []*cluster.Pod
	// misplaced are the pods of Standing.Misplaced.
	misplaced []*cluster.Pod
	// inPool counts those on spot by what is reclaimed together.
	inPool map[string]int
	// exempt: the own selector or affinity of its newest pods admits nothing but spot, and the policy allows that.
	exempt bool
}

func standingOf(w *cluster.Workload) standing {
	s := standing{Standing: w.Standing(), inPool: map[string]int{}}
	for _, at := range s.Misplaced {
		s.misplaced = append(s.misplaced, w.Revisions[at.Revision].Pods[at.Replica])
	}
	for _, r := range w.Revisions {
		for _, p := range r.Pods {
			s.exempt = w.Settings.Exempts(&p.Subject.Pod)
			switch {
			case p.Spec.NodeName == "":
				s.waiting = append(s.waiting, p)
			case p.Node == nil:
				s.astray = append(s.astray, p)
			case p.Node.Facts.Capacity.Type == decision.Spot:
				s.inPool[poolName(p.Node)]++
			}
		}
	}
	return s
}

// largestPool returns the spot pool with most of the pods, the first by name of several; "" if none is on spot.
func (s *standing) largestPool() (name string, pods int) {
	names := make([]string, 0, len(s.inPool))
	for pool := range s.inPool {
		names = append(names, pool)
	}
	slices.Sort(names)
	for _, pool := range names {
		if s.inPool[pool] > pods {
			name, pods = pool, s.inPool[pool]
		}
	}
	return name, pods
}

// poolName names what a spot node is reclaimed with: its pool as TYPE/ZONE, or itself where its labels do not say.
func poolName(n *cluster.Node) string {
	if n.Facts.Pool == (decision.Pool{}) {
		return "node " + n.Name
	}
	return n.Facts.Pool.InstanceType + "/" + n.Facts.Pool.Zone
}
