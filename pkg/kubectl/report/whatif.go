package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// allSpot is the loss of all spot nodes. The other losses are pool=TYPE/ZONE, the spot nodes of one
// instance type in one zone; zone=ZONE, all nodes of a zone; and node=NAME.
const allSpot = "all-spot"

// CheckLoss returns an error with the expected form if a text is no loss.
func CheckLoss(text string) error {
	form, value, given := strings.Cut(text, "=")
	instanceType, zone, _ := strings.Cut(value, "/")
	switch {
	case text == allSpot, (form == "zone" || form == "node") && value != "":
		return nil
	case form == "pool" && given && decision.NewPool(instanceType, zone) == (decision.Pool{}):
		return fmt.Errorf("invalid value %q: expected pool=TYPE/ZONE, such as pool=m5.xlarge/us-east-1a", text)
	case form == "pool" && given:
		return nil
	}
	return fmt.Errorf("invalid value %q: expected all-spot, pool=TYPE/ZONE, zone=ZONE or node=NAME", text)
}

func lossesOf(n *snapshot.Node) []string {
	losses := []string{"node=" + n.Name}
	if n.Facts.Zone != "" {
		losses = append(losses, "zone="+n.Facts.Zone)
	}
	if n.Facts.Capacity.Type == decision.Spot {
		losses = append(losses, allSpot)
		if pool := definedPool(n); pool != "" {
			losses = append(losses, "pool="+pool)
		}
	}
	return losses
}

// LossChoices returns the losses that include a node of the cluster, and all-spot.
func (v *View) LossChoices() []string {
	choices := []string{allSpot}
	for _, n := range v.Snapshot.Nodes {
		choices = append(choices, lossesOf(n)...)
	}
	slices.Sort(choices)
	return slices.Compact(choices)
}

// LossEffect is the effect of a loss on a workload.
type LossEffect string

// The effects, worst first.
const (
	// LossToZero means that no replica remains.
	LossToZero LossEffect = "ToZero"
	// LossToZeroAllowed means that no replica remains, and that the policy allows it: the floor is
	// 0.
	LossToZeroAllowed LossEffect = "ToZeroAllowed"
	// LossBelowFloor means that fewer replicas than the floor remain.
	LossBelowFloor LossEffect = "BelowFloor"
	// LossBelowDisruptionBudget means that at least the floor remains, but fewer replicas than a
	// PodDisruptionBudget requires.
	LossBelowDisruptionBudget LossEffect = "BelowDisruptionBudget"
	// LossKeepsFloor means that at least the floor remains.
	LossKeepsFloor LossEffect = "KeepsFloor"
)

var lossEffects = []LossEffect{LossToZero, LossBelowFloor, LossBelowDisruptionBudget, LossToZeroAllowed, LossKeepsFloor}

// AtLeast reports whether the effect is as bad as another one, or worse.
func (e LossEffect) AtLeast(other LossEffect) bool {
	return slices.Index(lossEffects, e) <= slices.Index(lossEffects, other)
}

// effectOf returns the effect of a loss that leaves so many replicas of a workload with this floor,
// if its PodDisruptionBudgets require so many. hasFloor reports whether the policy applies to it.
func effectOf(left, floor, required int, hasFloor bool) LossEffect {
	switch {
	case left == 0 && floor == 0 && hasFloor:
		return LossToZeroAllowed
	case left == 0:
		return LossToZero
	case left < floor:
		return LossBelowFloor
	case left < required:
		return LossBelowDisruptionBudget
	}
	return LossKeepsFloor
}

// AffectedWorkload is a workload that loses replicas.
type AffectedWorkload struct {
	Ref `json:",inline"`
	// Desired is its replica count. Floor is 0 if its pods have another schedulerName.
	Desired int `json:"desired"`
	Floor   int `json:"floor"`
	// Before counts its replicas on nodes. After counts the replicas that remain at the moment of
	// the loss, before any is recreated.
	Before int `json:"before"`
	After  int `json:"after"`
	// Recoverable counts the lost replicas for which the remaining nodes have room under the
	// policy.
	Recoverable int        `json:"recoverable"`
	Effect      LossEffect `json:"effect"`

	// NoFloor reports that its pods have another schedulerName.
	NoFloor bool `json:"-"`
	lost    []*snapshot.Pod
}

// WhatIf is the result of a hypothetical loss of nodes or change of the policy.
type WhatIf struct {
	Lose []string `json:"lose,omitempty"`
	// Nodes and Pods count the losses. Workloads lists the affected workloads, in the order
	// of effect (the worst is first), namespace, kind and name.
	Nodes     int                `json:"nodesLost"`
	Pods      int                `json:"podsLost"`
	Workloads []AffectedWorkload `json:"workloads"`
	// Policy is the file of the other policy, which also applies to Workloads. Changes lists the
	// workloads that it changes.
	Policy  string   `json:"policy,omitempty"`
	Changes []Change `json:"policyChanges"`
}

// SimulateLoss returns the result of losing all nodes of the losses at once. It returns an error if
// a loss includes no node.
func (v *View) SimulateLoss(losses []string) (*WhatIf, error) {
	result := &WhatIf{Lose: losses, Changes: []Change{}}
	choices := v.LossChoices()
	for _, loss := range losses {
		if !slices.Contains(choices, loss) {
			form, _, _ := strings.Cut(loss, "=")
			ofForm := slices.DeleteFunc(choices, func(choice string) bool { return !strings.HasPrefix(choice, form+"=") })
			return nil, fmt.Errorf("--lose %s: no node matches; possible values: %s", loss, cmp.Or(SomeOf(ofForm), "none"))
		}
	}
	lost := slices.DeleteFunc(slices.Clone(v.Snapshot.Nodes), func(n *snapshot.Node) bool {
		return !slices.ContainsFunc(lossesOf(n), func(loss string) bool { return slices.Contains(losses, loss) })
	})
	result.Nodes = len(lost)
	result.Workloads, result.Pods = v.affectedBy(lost...)
	v.recover(result.Workloads, lost)
	return result, nil
}

// recover sets the numbers of recoverable pods. The first workloads, which lose most, get room
// first.
func (v *View) recover(workloads []AffectedWorkload, lost []*snapshot.Node) {
	for _, n := range lost {
		facts := n.Facts
		defer func() { n.Facts = facts }()
		n.Facts.Signal = decision.Reclaim // a Room uses no node that is about to be reclaimed
	}
	room := simulation.NewRoom(v.Snapshot)
	for i := range workloads {
		w := &workloads[i]
		for _, p := range w.lost {
			if w.Kind == "Pod" {
				break // nothing creates a bare pod again
			}
			if to, _ := room.Replace(p, decision.Unassigned); to != nil {
				w.Recoverable++
			}
		}
	}
}

// affectedBy returns the workloads with a live pod on the lost nodes, and the number of such pods.
func (v *View) affectedBy(nodes ...*snapshot.Node) (all []AffectedWorkload, count int) {
	all = []AffectedWorkload{}
	lost := map[*snapshot.Workload][]*snapshot.Pod{}
	for _, n := range nodes {
		for _, p := range n.Pods {
			if p.Workload != nil && p.Live() && v.Includes(p.Namespace) {
				lost[p.Workload] = append(lost[p.Workload], p)
			}
		}
	}
	left := func(w *snapshot.Workload, _ int) int {
		return w.CountPods(func(p *snapshot.Pod) bool { return p.Node != nil }) - len(lost[w])
	}
	for w, pods := range lost {
		count += len(pods)
		l := AffectedWorkload{Ref: refOf(w), Desired: w.Desired, Floor: w.Floor, After: left(w, 0), NoFloor: !w.InScope, lost: pods}
		l.Before = l.After + len(pods)
		required, _ := v.requiredByBudget(w, left)
		l.Effect = effectOf(l.After, l.Floor, required, w.InScope)
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b AffectedWorkload) int {
		return cmp.Or(cmp.Compare(slices.Index(lossEffects, a.Effect), slices.Index(lossEffects, b.Effect)), compareRefs(a.Ref, b.Ref))
	})
	return all, count
}

// Change is the effect of another policy on a workload.
type Change struct {
	Ref     `json:",inline"`
	Desired int `json:"desired"`
	// FloorNow and FloorThen are its floors under the two policies.
	FloorNow  int `json:"floorNow"`
	FloorThen int `json:"floorThen"`
	// OnDemandThen is the number of replicas on nodes that are on-demand under the other policy.
	OnDemandThen int `json:"onDemandThen"`
	// FloorDeficit is the number of replicas that would then be missing on on-demand: the
	// controller would move them, or they would wait. AdditionalSpot is the number of additional
	// replicas that could move to spot.
	FloorDeficit   int `json:"floorDeficit"`
	AdditionalSpot int `json:"moreOnSpot"`
}

// Changes returns the workloads for which the policy of then, a View of the same cluster, makes a
// difference: by missing replicas in descending order, then by namespace, kind and name.
func (v *View) Changes(then *View) []Change {
	all := []Change{}
	now := map[Ref]Status{}
	current, _ := v.Statuses()
	for _, s := range current {
		now[s.Ref] = s
	}
	changed, _ := then.Statuses()
	for _, s := range changed {
		before, known := now[s.Ref]
		if !known || s.NoFloor || before.Floor == s.Floor && *before.OnDemand == *s.OnDemand {
			continue
		}
		all = append(all, Change{
			Ref: s.Ref, Desired: s.Desired, FloorNow: before.Floor, FloorThen: s.Floor, OnDemandThen: *s.OnDemand, FloorDeficit: s.deficit,
			AdditionalSpot: max(0, s.surplus-before.surplus), // the surplus under the current policy is not a change
		})
	}
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.FloorDeficit, a.FloorDeficit), compareRefs(a.Ref, b.Ref))
	})
	return all
}
