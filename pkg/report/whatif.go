package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// allSpot is all spot nodes as ParseLoss reads them, and lossForms all that it reads.
const (
	allSpot   = "all-spot"
	lossForms = "all-spot, pool=TYPE/ZONE, zone=ZONE or node=NAME"
)

// Loss is a set of nodes that go at once.
type Loss struct {
	// Text is how it was given.
	Text    string
	matches func(*cluster.Node) bool
}

// ParseLoss reads which nodes are lost: "all-spot"; "pool=TYPE/ZONE", the spot nodes of one instance type in one zone; "zone=ZONE", all nodes
// there; "node=NAME". The error says what was expected.
func ParseLoss(text string) (Loss, error) {
	spot := func(n *cluster.Node) bool { return n.Facts.Capacity.Type == decision.Spot }
	key, value, given := strings.Cut(text, "=")
	loss := Loss{Text: text}
	switch {
	case text == allSpot:
		loss.matches = spot
	case key == "pool" && given:
		instanceType, zone, ok := strings.Cut(value, "/")
		pool := decision.NewPool(instanceType, zone)
		if !ok || pool == (decision.Pool{}) {
			return loss, fmt.Errorf("invalid value %q: expected pool=TYPE/ZONE, such as pool=m5.xlarge/us-east-1a", text)
		}
		loss.matches = func(n *cluster.Node) bool { return spot(n) && n.Facts.Pool == pool }
	case key == "zone" && value != "":
		loss.matches = func(n *cluster.Node) bool { return n.Labels[v1.LabelTopologyZone] == value }
	case key == "node" && value != "":
		loss.matches = func(n *cluster.Node) bool { return n.Name == value }
	default:
		return loss, fmt.Errorf("invalid value %q: expected %s", text, lossForms)
	}
	return loss, nil
}

// LossChoices returns what ParseLoss would read that some node of the cluster matches: all-spot, then pools, zones and nodes by name.
func (v *View) LossChoices() []string {
	var pools, zones, nodes []string
	choices := []string{allSpot}
	for _, n := range v.Snapshot.Nodes {
		nodes = append(nodes, "node="+n.Name)
		if zone := n.Labels[v1.LabelTopologyZone]; zone != "" {
			zones = append(zones, "zone="+zone)
		}
		if n.Facts.Capacity.Type == decision.Spot && n.Facts.Pool != (decision.Pool{}) {
			pools = append(pools, "pool="+poolName(n))
		}
	}
	for _, list := range [][]string{pools, zones, nodes} {
		slices.Sort(list)
		choices = append(choices, slices.Compact(list)...)
	}
	return choices
}

// Fall says what a loss does to a workload.
type Fall string

// The falls, worst first.
const (
	// ToZero: no replica is left.
	ToZero Fall = "ToZero"
	// UnderFloor: fewer are left than its floor.
	UnderFloor Fall = "BelowFloor"
	// Keeps: at least its floor is left.
	Keeps Fall = "KeepsFloor"
)

var falls = []Fall{ToZero, UnderFloor, Keeps}

// Lost is what a workload loses.
type Lost struct {
	Ref `json:",inline"`
	// Desired is its replica count; Floor is 0 for one whose pods name another scheduler.
	Desired int `json:"desired"`
	Floor   int `json:"floor"`
	// Before counts its replicas that stand on nodes, After those that are left at the moment of the loss, before any is made anew.
	Before int  `json:"before"`
	After  int  `json:"after"`
	Falls  Fall `json:"falls"`
}

// WhatIf is what would happen if nodes were lost, or the policy were another one.
type WhatIf struct {
	Lose []string `json:"lose,omitempty"`
	// Nodes and Pods count what is lost; Workloads lose some of it: the worst first, then by namespace, kind and name.
	Nodes     int    `json:"nodesLost"`
	Pods      int    `json:"podsLost"`
	Workloads []Lost `json:"workloads"`
	// Policy names the file of the other policy, by which Workloads were judged too; Changes are the workloads that it changes.
	Policy  string   `json:"policy,omitempty"`
	Changes []Change `json:"policyChanges"`
}

// Lose returns what happens when all nodes of the losses go at once. A loss that no node matches is an error.
func (v *View) Lose(losses []Loss) (*WhatIf, error) {
	result := &WhatIf{Changes: []Change{}}
	lost := map[*cluster.Node]bool{}
	var pods []*cluster.Pod
	for _, loss := range losses {
		result.Lose = append(result.Lose, loss.Text)
		found := false
		for _, n := range v.Snapshot.Nodes {
			if loss.matches(n) {
				found = true
				if !lost[n] {
					lost[n], pods = true, append(pods, n.Pods...)
				}
			}
		}
		if !found && loss.Text != allSpot { // which is nobody, where there is none
			return nil, fmt.Errorf("--lose %s: no node is of it; there are %s", loss.Text, v.choicesLike(loss.Text))
		}
	}
	result.Nodes = len(lost)
	result.Workloads, result.Pods = v.lose(func(n *cluster.Node) bool { return lost[n] }, pods)
	return result, nil
}

// choicesLike returns some of the choices of the same form.
func (v *View) choicesLike(text string) string {
	const most = 10
	form, _, _ := strings.Cut(text, "=")
	var like []string
	for _, choice := range v.LossChoices() {
		if strings.HasPrefix(choice, form+"=") {
			like = append(like, choice)
		}
	}
	switch {
	case len(like) == 0:
		return "no such nodes at all"
	case len(like) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(like[:most], ", "), len(like)-most)
	}
	return strings.Join(like, ", ")
}

// lose returns the workloads that have a live pod among pods, which are all that stand on the lost nodes, and how many such pods there are.
func (v *View) lose(lost func(*cluster.Node) bool, pods []*cluster.Pod) (all []Lost, gone int) {
	all = []Lost{}
	seen := map[*cluster.Workload]bool{}
	for _, p := range pods {
		if p.Workload == nil || !p.Live() {
			continue
		}
		gone++
		w := p.Workload
		if seen[w] {
			continue
		}
		seen[w] = true
		l := Lost{Ref: refOf(w), Desired: w.Desired, Floor: w.Floor, Falls: Keeps}
		for _, r := range w.Revisions {
			for _, p := range r.Pods {
				if p.Node == nil {
					continue
				}
				l.Before++
				if !lost(p.Node) {
					l.After++
				}
			}
		}
		switch {
		case l.After == 0:
			l.Falls = ToZero
		case l.After < l.Floor:
			l.Falls = UnderFloor
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Lost) int {
		return cmp.Or(cmp.Compare(slices.Index(falls, a.Falls), slices.Index(falls, b.Falls)), compareRefs(a.Ref, b.Ref))
	})
	return all, gone
}

// Change is what another policy means for a workload.
type Change struct {
	Ref     `json:",inline"`
	Desired int `json:"desired"`
	// FloorNow and FloorThen are its floors under the two policies.
	FloorNow  int `json:"floorNow"`
	FloorThen int `json:"floorThen"`
	// OnDemandThen is how many replicas stand on what the other policy takes for on-demand.
	OnDemandThen int `json:"onDemandThen"`
	// Lacks is how many it would lack there: the controller would move them, or they would wait. Frees is how many more could go to spot.
	Lacks int `json:"lacks"`
	Frees int `json:"frees"`
}

// Changes returns the workloads of which the policy of then, a View of the same cluster, says something else: those that would lack most
// first, then by namespace, kind and name.
func (v *View) Changes(then *View) []Change {
	all := []Change{}
	now := map[Ref]*cluster.Workload{}
	for _, w := range v.Snapshot.Workloads {
		if w.Ours {
			now[refOf(w)] = w
		}
	}
	pods := map[Ref]bool{} // of the workloads that have some
	for _, w := range then.Snapshot.Workloads {
		pods[refOf(w)] = true
		before := now[refOf(w)]
		if before == nil || !w.Ours {
			continue
		}
		was, is := standingOf(before), standingOf(w)
		if before.Floor == w.Floor && was.OnDemand == is.OnDemand {
			continue
		}
		c := Change{Ref: refOf(w), Desired: w.Desired, FloorNow: before.Floor, FloorThen: w.Floor, OnDemandThen: is.OnDemand}
		c.Lacks = is.FloorDeficit
		// What it has beyond its floor already is no news.
		c.Frees = max(0, is.Surplus-was.Surplus)
		all = append(all, c)
	}
	for _, pod := range then.Wanted {
		before, known := v.wantedStatus(pod)
		after, _ := then.wantedStatus(pod)
		if known && !pods[before.Ref] && before.Floor != after.Floor {
			all = append(all, Change{Ref: before.Ref, Desired: after.Desired, FloorNow: before.Floor, FloorThen: after.Floor})
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return cmp.Or(cmp.Compare(b.Lacks, a.Lacks), compareRefs(a.Ref, b.Ref)) })
	return all
}
