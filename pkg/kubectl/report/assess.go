package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// HoursPerMonth converts prices per hour to prices per month.
const HoursPerMonth = 730

// Mode is how workloads opt in.
type Mode string

// The modes: the pods name our scheduler, or they keep their scheduler and have spot.OptInLabel.
const (
	ModeOwn           Mode = "own"
	ModeKeepScheduler Mode = "keep-scheduler"
)

// Class is whether a workload can run on spot.
type Class string

// The classes, in the order in which they are shown. A workload has the last one that applies,
// except that OptedIn and Infrastructure precede all.
const (
	// ReadyForSpot means that the replicas beyond the floor can run on spot if the workload opts
	// in.
	ReadyForSpot Class = "Now"
	// NeedsChange means that something should change before it opts in.
	NeedsChange Class = "WithChange"
	// StaysOnDemand means that the floor is all of its replicas. If it opts in, all run on
	// on-demand.
	StaysOnDemand Class = "OnDemand"
	// OptedIn means that its pods name the scheduler already, or opt in and keep theirs.
	OptedIn Class = "OptedIn"
	// Infrastructure means that placement or autoscaling of pods depends on it.
	Infrastructure Class = "Infrastructure"
	// NotForSpot means that no replica should run on spot.
	NotForSpot Class = "No"
	// NotChecked means that the input lacks what the answer depends on.
	NotChecked Class = "Unchecked"
)

// AssessedWorkload is the answer for one workload.
type AssessedWorkload struct {
	Ref   `json:",inline"`
	Class Class `json:"class"`
	// Reasons lists what should change, why the workload should not run on spot, or what the input
	// lacks.
	Reasons []string `json:"reasons,omitempty"`
	// Offers lists what the workload could have in addition.
	Offers  []Offer `json:"offers,omitempty"`
	Desired int     `json:"desired"`
	// Floor is the suggested floor: the floor of the policy, or a higher floor, which the Patch
	// sets. FloorSource is its setting and the source of the setting, or what requires the floor.
	Floor       int    `json:"floor"`
	FloorSource string `json:"floorSource"`
	// Ready counts its ready replicas. UnknownNodes counts its replicas on nodes that the input
	// lacks.
	Ready        int `json:"ready"`
	UnknownNodes int `json:"unknownNodes,omitempty"`
	// WithoutSpot counts the ready replicas that a loss of all spot nodes leaves today.
	// WithoutSpotThen counts the replicas that it leaves with the policy, and EffectThen is its
	// effect. They are nil or empty if the capacity type of a replica's node is unknown.
	WithoutSpot     *int       `json:"withoutSpot,omitempty"`
	WithoutSpotThen *int       `json:"withoutSpotThen,omitempty"`
	EffectThen      LossEffect `json:"effectThen,omitempty"`
	// Now and Then are the costs of its replicas in US dollars per month, today and with the
	// policy. Both are nil if one is unknown.
	Now  *float64 `json:"usdPerMonth,omitempty"`
	Then *float64 `json:"usdPerMonthThen,omitempty"`
	// Patch makes the workload opt in. It is nil if that is not necessary, not possible by a patch,
	// not advisable or without a gain. If the class is WithChange, the change comes first.
	Patch *Patch `json:"patch,omitempty"`

	retries bool // a Job that creates lost pods again
}

// Offer is something that a workload could have in addition, and its price.
type Offer struct {
	Text string `json:"text"`
	// Cost is the additional cost in US dollars per month; nil if it is unknown.
	Cost *float64 `json:"usdPerMonth,omitempty"`
}

// String returns the offer with its price.
func (o Offer) String() string {
	if o.Cost == nil {
		return o.Text + " (cost unknown)"
	}
	return fmt.Sprintf("%s (%s USD a month)", o.Text, dollars(*o.Cost))
}

// Patch is a strategic merge patch of an object.
type Patch struct {
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Patch     json.RawMessage `json:"patch"`
}

// Assessment is the answer for a cluster.
type Assessment struct {
	// Cluster names the cluster or the dump, and Namespace the namespace of the workloads; "" for
	// all except kube-system. The caller sets both.
	Cluster    string `json:"cluster"`
	Namespace  string `json:"namespace,omitempty"`
	NodePrices `json:",inline"`
	// Mode is how workloads opt in: "own" or "keep-scheduler".
	Mode Mode `json:"mode"`
	// Workloads is in the order of class, then of savings, the largest first.
	Workloads []AssessedWorkload `json:"items"`
	// Classes counts the workloads by class.
	Classes map[Class]int `json:"classes"`
	// Outages counts the workloads without a ready replica after a loss of all spot nodes today.
	// OutagesThen counts them with the policy: their floor is 0, or they do not opt in. Jobs that
	// retry do not count. Workloads with replicas on unknown nodes count in UnknownOutages.
	Outages        int `json:"outages"`
	OutagesThen    int `json:"outagesThen"`
	UnknownOutages int `json:"unknownOutages,omitempty"`
	// Now and Then are the costs of the workloads with known costs in US dollars per month, today
	// and with the policy; nil if no cost is known. UnknownCosts counts the other workloads.
	Now          *float64 `json:"usdPerMonth,omitempty"`
	Then         *float64 `json:"usdPerMonthThen,omitempty"`
	UnknownCosts int      `json:"unknownCosts"`
	// Nodes is the cost of the nodes with a price in US dollars per month; nil if none has one.
	Nodes *float64 `json:"nodesUsdPerMonth,omitempty"`
	// UnknownOwners counts the pods whose owner is unknown. They are in no workload.
	UnknownOwners int `json:"unknownOwners,omitempty"`
	// Missing and Unused are as in lister.Objects. The caller sets them.
	Missing []string `json:"missing,omitempty"`
	Unused  []string `json:"unused,omitempty"`
}

// Assess answers which workloads can run on spot, what that needs, and what it changes. Workloads
// of kube-system are only included if system is set. The policy need not be installed: workloads of
// other schedulers get the floor that they would have if they opted in. Less input never gives a
// workload a better class, because what is not known counts as NotChecked.
func (v *View) Assess(prices *pricing.Prices, system bool) *Assessment {
	savings, priced := v.nodeCosts(prices)
	a := &Assessment{
		NodePrices: savings.NodePrices, Mode: cmp.Or(v.Mode, ModeOwn), Workloads: []AssessedWorkload{}, Classes: map[Class]int{},
	}
	if len(priced) > 0 {
		a.Nodes = new(savings.Now * HoursPerMonth)
	}
	spot, onDemand := append(v.nodesOf(decision.Spot), v.SpotPools...), v.nodesOf(decision.OnDemand)
	base := candidate{
		View: v, priced: priced, spot: spot, onDemand: onDemand,
		fitsSpot: simulation.FitsAnyNode(spot), fitsOnDemand: simulation.FitsAnyNode(onDemand),
		hidden: gating.HiddenNode(v.Policy, v.Gating.Labels, v.Snapshot.Nodes), doubts: v.doubts(),
	}
	included := func(namespace string) bool { return system || namespace != metav1.NamespaceSystem }
	for _, p := range v.Snapshot.Pods {
		if p.Workload == nil && p.Live() && workload.PolicyApplies(p.Pod) && included(p.Namespace) {
			a.UnknownOwners++
		}
	}
	for _, w := range v.Snapshot.Workloads {
		if pods := w.Pods(); len(pods) > 0 && w.Desired > 0 && included(w.Namespace) {
			c := base
			c.assess(w, pods)
			a.add(&c.AssessedWorkload)
		}
	}
	order := func(w *AssessedWorkload) int {
		return slices.IndexFunc(classes, func(c classTexts) bool { return c.Class == w.Class })
	}
	saving := func(w *AssessedWorkload) float64 { return ptr.Deref(w.Now, 0) - ptr.Deref(w.Then, 0) }
	slices.SortStableFunc(a.Workloads, func(a, b AssessedWorkload) int {
		return cmp.Or(cmp.Compare(order(&a), order(&b)), cmp.Compare(saving(&b), saving(&a)))
	})
	return a
}

func (a *Assessment) add(w *AssessedWorkload) {
	a.Workloads = append(a.Workloads, *w)
	a.Classes[w.Class]++
	if w.WithoutSpot == nil {
		a.UnknownOutages++
	}
	if w.Outage(w.WithoutSpot) {
		a.Outages++
	}
	if w.Outage(w.WithoutSpotThen) {
		a.OutagesThen++
	}
	if w.Now == nil {
		a.UnknownCosts++
		return
	}
	a.Now, a.Then = new(ptr.Deref(a.Now, 0)+*w.Now), new(ptr.Deref(a.Then, 0)+*w.Then)
}

// Outage reports whether a loss of all spot nodes that leaves so many replicas is an outage. A loss
// of pods only delays a Job that retries. nil is no known outage.
func (w *AssessedWorkload) Outage(left *int) bool {
	return w.Ready > 0 && left != nil && *left == 0 && !w.retries
}

// keepsPlace reports whether the workload does not opt in, so that the policy changes nothing.
func (w *AssessedWorkload) keepsPlace() bool {
	return w.Class == NotForSpot || w.Class == NotChecked || w.Class == Infrastructure
}

// assess assesses a workload. pods are its live pods.
func (c *candidate) assess(w *snapshot.Workload, pods []*snapshot.Pod) {
	c.w, c.pods = w, pods
	c.p = pods[len(pods)-1].Revision.Pods[0] // of the newest revision with pods
	c.subject = &c.p.Subject.Pod
	settings, origins, _ := c.Policy.Explain(c.subject)
	c.settings = settings
	c.AssessedWorkload = AssessedWorkload{
		Ref: refOf(w), Desired: w.Desired, Floor: settings.Floor(w.Desired),
		FloorSource:  fmt.Sprintf("minOnDemand %s from %s", settings.MinOnDemand, origins.Sources["minOnDemand"]),
		Ready:        w.CountPods(func(p *snapshot.Pod) bool { _, ready := workload.Ready(p.Pod); return ready }),
		UnknownNodes: w.CountPods(func(p *snapshot.Pod) bool { return p.Spec.NodeName != "" && p.Node == nil }),
		retries:      c.subject.Workload.Batch == decision.Retriable,
	}
	if c.UnknownNodes == 0 {
		c.WithoutSpot = new(w.CountPods(readyOnDemand))
	}
	c.raiseFloor()
	c.classify()
	c.WithoutSpotThen = &c.Floor
	if c.keepsPlace() {
		c.WithoutSpotThen = c.WithoutSpot
	}
	if c.WithoutSpotThen != nil {
		c.EffectThen = effectOf(*c.WithoutSpotThen, 0, c.byBudget, !c.keepsPlace())
	}
	c.Now, c.Then = c.costs()
	c.findOffers()
}

// costs returns the costs of the replicas of a workload per month, today and with its floor, as in
// View.Savings. Both are nil if one is unknown. Only replicas on nodes cost something.
func (c *candidate) costs() (now, then *float64) {
	var current, later float64
	left := c.Floor
	if c.UnknownNodes > 0 {
		return nil, nil
	}
	pods := slices.DeleteFunc(slices.Clone(c.pods), func(p *snapshot.Pod) bool { return p.Node == nil })
	slices.SortStableFunc(pods, func(a, b *snapshot.Pod) int { // the floor is first on on-demand
		return cmp.Compare(a.Node.Facts.Capacity.Type, b.Node.Facts.Capacity.Type)
	})
	for _, p := range pods {
		cost, ok := costOf(p, c.priced)
		if !ok {
			return nil, nil
		}
		current += cost.Now
		if p.Node.Facts.Capacity.Type == decision.Spot {
			cost.Spot = cost.Now
		} else {
			cost.OnDemand = cost.Now
		}
		inFloor := left > 0
		if subject := &p.Subject.Pod.Workload; subject.Ordered {
			inFloor = subject.Ordinal < c.Floor
		}
		left--
		switch {
		case c.keepsPlace():
			later += cost.Now
		case inFloor:
			later += cost.OnDemand
		case cost.Spot == 0: // the list has no spot price
			return nil, nil
		default:
			later += cost.Spot
		}
	}
	return &current, &later
}
