package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// HoursPerMonth converts prices per hour to prices per month.
const HoursPerMonth = 730

// Class is whether a workload can run on spot.
type Class string

// The classes, best first.
const (
	// ReadyForSpot means that the replicas beyond the floor can run on spot if the workload opts
	// in.
	ReadyForSpot Class = "Now"
	// NeedsChange means that something should change first.
	NeedsChange Class = "WithChange"
	// NotForSpot means that no replica should run on spot.
	NotForSpot Class = "No"
)

var classes = []Class{ReadyForSpot, NeedsChange, NotForSpot}

// AssessedWorkload is the answer for one workload.
type AssessedWorkload struct {
	Ref   `json:",inline"`
	Class Class `json:"class"`
	// OptedIn reports whether its pods name the scheduler already.
	OptedIn bool `json:"optedIn"`
	// Reasons lists what should change, or why the workload should not run on spot. Changes lists
	// the former again, with the order of change and opt-in.
	Reasons []string         `json:"reasons,omitempty"`
	Changes []WorkloadChange `json:"changes,omitempty"`
	Desired int              `json:"desired"`
	// Floor is the suggested floor: the floor that the policy gives the workload. FloorSource is
	// its setting and the source of the setting.
	Floor       int    `json:"floor"`
	FloorSource string `json:"floorSource"`
	// Ready counts its ready replicas. WithoutSpot counts the ready replicas that a loss of all
	// spot nodes leaves today. WithoutSpotThen counts the replicas that it leaves with the policy.
	Ready           int `json:"ready"`
	WithoutSpot     int `json:"withoutSpot"`
	WithoutSpotThen int `json:"withoutSpotThen"`
	// Now and Then are the costs of its replicas in US dollars per month, today and with the
	// policy. Both are nil if one is unknown.
	Now  *float64 `json:"usdPerMonth,omitempty"`
	Then *float64 `json:"usdPerMonthThen,omitempty"`
	// Patch makes the workload opt in. It is nil if that is not necessary, not possible by a patch,
	// or not advisable.
	Patch *Patch `json:"patch,omitempty"`

	retries bool // a Job that creates lost pods again
}

// WorkloadChange is something that should change.
type WorkloadChange struct {
	Text string `json:"text"`
	// BeforeOptIn reports whether the workload should not opt in before the change.
	BeforeOptIn bool `json:"beforeOptIn"`
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
	// Namespace is the namespace of the workloads; "" for all except kube-system. The caller sets
	// it.
	Namespace     string `json:"namespace,omitempty"`
	SpotNodes     int    `json:"spotNodes"`
	OnDemandNodes int    `json:"onDemandNodes"`
	// Workloads is in the order of class, then of savings, the largest first.
	Workloads []AssessedWorkload `json:"items"`
	// Classes counts the workloads by class.
	Classes map[Class]int `json:"classes"`
	// Outages counts the workloads without a ready replica after a loss of all spot nodes today.
	// OutagesThen counts them with the policy: their floor is 0, or they do not opt in. Jobs that
	// retry do not count.
	Outages     int `json:"outages"`
	OutagesThen int `json:"outagesThen"`
	// Now and Then are the costs of the workloads with known costs in US dollars per month, today
	// and with the policy. UnknownCosts counts the other workloads.
	Now          float64 `json:"usdPerMonth"`
	Then         float64 `json:"usdPerMonthThen"`
	UnknownCosts int     `json:"unknownCosts"`
	// Nodes is the cost of the nodes with a price in US dollars per month.
	Nodes float64 `json:"nodesUsdPerMonth"`
	// Prices, Ignored and Unpriced are as in Savings.
	Prices   string         `json:"prices"`
	Ignored  []string       `json:"ignored,omitempty"`
	Unpriced map[string]int `json:"unpriced,omitempty"`
	// UnknownOwners counts the pods whose owner is unknown. They are in no workload.
	UnknownOwners int `json:"unknownOwners,omitempty"`
	// Missing lists the kinds that a dump does not have. The caller sets it.
	Missing []string `json:"missing,omitempty"`
}

// Assess answers which workloads can run on spot, what that needs, and what it changes. Workloads
// of kube-system are only included if system is set. The policy need not be installed: workloads of
// other schedulers get the floor that they would have if they opted in.
func (v *View) Assess(prices *pricing.Prices, system bool) *Assessment {
	priced, _ := v.price(prices)
	savings := v.Savings(prices)
	a := &Assessment{
		SpotNodes: savings.SpotNodes, OnDemandNodes: savings.OnDemandNodes, Workloads: []AssessedWorkload{}, Classes: map[Class]int{},
		Nodes: savings.Now * HoursPerMonth, Prices: savings.Prices, Ignored: savings.Ignored, Unpriced: savings.Unpriced,
	}
	assessor := v.newAssessor()
	for _, p := range v.Snapshot.Pods {
		if p.Workload == nil && p.Live() && workload.PolicyApplies(p.Pod) && included(p.Namespace, system) {
			a.UnknownOwners++
		}
	}
	for _, w := range v.Snapshot.Workloads {
		newest := newestWithPods(w)
		if newest == nil || w.Desired == 0 || !included(w.Namespace, system) {
			continue
		}
		one := assessor.assess(w, newest)
		one.Now, one.Then = costOf(w, &one, priced)
		a.add(&one)
	}
	slices.SortStableFunc(a.Workloads, func(a, b AssessedWorkload) int {
		return cmp.Or(cmp.Compare(slices.Index(classes, a.Class), slices.Index(classes, b.Class)), cmp.Compare(b.saving(), a.saving()))
	})
	return a
}

func included(namespace string, system bool) bool {
	return system || namespace != metav1.NamespaceSystem
}

// newestWithPods returns the newest revision that has pods; nil if none has.
func newestWithPods(w *snapshot.Workload) *snapshot.Revision {
	for _, r := range slices.Backward(w.Revisions) {
		if len(r.Pods) > 0 {
			return r
		}
	}
	return nil
}

// add adds a workload and counts it.
func (a *Assessment) add(w *AssessedWorkload) {
	a.Workloads = append(a.Workloads, *w)
	a.Classes[w.Class]++
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
	a.Now += *w.Now
	a.Then += *w.Then
}

// Outage reports whether a loss of all spot nodes that leaves so many replicas is an outage. A loss
// of pods only delays a Job that retries.
func (w *AssessedWorkload) Outage(left int) bool { return w.Ready > 0 && left == 0 && !w.retries }

// saving returns what the policy saves; 0 if it is unknown.
func (w *AssessedWorkload) saving() float64 {
	if w.Now == nil {
		return 0
	}
	return *w.Now - *w.Then
}

// Hold reports whether something should change before the workload opts in.
func (w *AssessedWorkload) Hold() bool {
	return slices.ContainsFunc(w.Changes, func(c WorkloadChange) bool { return c.BeforeOptIn })
}

// assessor assesses the workloads of one View.
type assessor struct {
	*View
	spot     []*snapshot.Node
	fitsSpot func(*snapshot.Pod) bool
	optIn    string // the JSON of the fields of a pod that opts in
}

func (v *View) newAssessor() *assessor {
	spot, fits := v.spotNodes()
	optIn, _ := json.Marshal(map[string]string{"schedulerName": v.Profile}) // a map of strings always has a JSON form
	return &assessor{View: v, spot: spot, fitsSpot: fits, optIn: string(optIn)}
}

// assess assesses a workload without its costs. newest is its newest revision with pods.
func (a *assessor) assess(w *snapshot.Workload, newest *snapshot.Revision) AssessedWorkload {
	p := newest.Pods[0]
	subject := &p.Subject.Pod
	settings, origins, _ := a.Policy.Explain(subject)
	result := AssessedWorkload{
		Ref: refOf(w), OptedIn: w.InProfile, Desired: w.Desired, Floor: settings.Floor(w.Desired),
		FloorSource: fmt.Sprintf("minOnDemand %s from %s", settings.MinOnDemand,
			origins.Sources["minOnDemand"]), retries: subject.Workload.Batch == decision.Retriable,
	}
	for p := range podsOf(w) {
		if _, ready := p.Ready(); !ready {
			continue
		}
		result.Ready++
		if p.Node.Facts.Capacity.Type == decision.OnDemand {
			result.WithoutSpot++
		}
	}
	c := &candidate{assessor: a, w: w, p: p, subject: subject, settings: settings, result: &result}
	c.findReasons()
	c.findChanges()
	c.setPatch()
	switch {
	case len(result.Reasons) > 0:
		result.Class, result.Changes = NotForSpot, nil
	case len(result.Changes) > 0:
		result.Class = NeedsChange
		for _, change := range result.Changes {
			result.Reasons = append(result.Reasons, change.Text)
		}
	default:
		result.Class = ReadyForSpot
	}
	result.WithoutSpotThen = result.Floor
	if result.keepsPlace() {
		result.WithoutSpotThen = result.WithoutSpot
	}
	return result
}

// keepsPlace reports whether the policy changes nothing for the workload: it should not opt in,
// because some of its replicas would then run on spot, or it cannot.
func (w *AssessedWorkload) keepsPlace() bool {
	return w.Class == NotForSpot && (w.Floor < w.Desired || w.Patch == nil && !w.OptedIn)
}

// candidate is a workload that is being assessed.
type candidate struct {
	*assessor
	w        *snapshot.Workload
	p        *snapshot.Pod // of the newest revision
	subject  *decision.Pod
	settings decision.WorkloadSettings
	result   *AssessedWorkload
}

func (c *candidate) reason(format string, args ...any) {
	c.result.Reasons = append(c.result.Reasons, fmt.Sprintf(format, args...))
}

func (c *candidate) change(before bool, format string, args ...any) {
	c.result.Changes = append(c.result.Changes, WorkloadChange{fmt.Sprintf(format, args...), before})
}

// findReasons finds why no replica should run on spot.
func (c *candidate) findReasons() {
	if c.w.Kind == "Pod" {
		c.reason("no controller creates the pod again if its node is lost")
	}
	if local := localVolumes(c.p); len(local) > 0 {
		c.reason("its data is on one node: PersistentVolume %s", strings.Join(local, ", "))
	}
	if paths := hostPaths(c.p.Pod); len(paths) > 0 && c.w.Desired == 1 {
		c.reason("a single replica has data on its node: hostPath volume %s", strings.Join(paths, ", "))
	}
	for _, budget := range c.Snapshot.BudgetsOf(c.p) {
		if setting, blocks := blocksAlways(budget, c.w.Desired); blocks {
			c.reason("PodDisruptionBudget %s blocks every eviction: %s", budget.Name, setting)
		}
	}
	if c.result.Floor == c.w.Desired && (c.w.Desired > 1 || c.subject.Workload.Batch == decision.NotRetriable) {
		c.reason("its floor is all of its replicas: %s", c.result.FloorSource)
	}
}

// findChanges finds what should change before, or when, the replicas beyond the floor run on spot.
func (c *candidate) findChanges() {
	name := c.p.Spec.SchedulerName
	if name != "" && name != v1.DefaultSchedulerName && name != c.Profile {
		c.change(true, "its pods name the scheduler %s: check that they do not need it", name)
	}
	if c.w.Desired == 1 && c.result.Floor == 1 {
		c.change(false, "run a second replica: a single replica stays on on-demand")
	}
	switch {
	case c.subject.OnlyOnDemand:
		c.change(false, "remove the node selector or node affinity that requires on-demand")
	case c.subject.OnlySpot && c.result.Floor > 0:
		c.change(true, "remove the node selector or node affinity that requires spot: it contradicts the floor")
	case len(c.spot) > 0 && !c.fitsSpot(c.p):
		node := c.spot[0]
		c.change(false, "its pods fit no spot node. On %s: %s", node.Name,
			strings.Join(simulation.NewInspection(c.Snapshot, c.p).Obstacles(node), ", "))
	}
	if paths := hostPaths(c.p.Pod); len(paths) > 0 {
		c.change(true, "check that the data of hostPath volume %s may be lost", strings.Join(paths, ", "))
	}
	c.findBudgetChanges()
}

// setPatch sets the patch, or adds the change that replaces it.
func (c *candidate) setPatch() {
	if len(c.result.Reasons) > 0 && c.result.Floor < c.w.Desired || c.w.Kind == "Pod" || c.w.InProfile {
		return
	}
	ref := c.result.Ref
	patch := &Patch{Kind: strings.ToLower(ref.Kind), Namespace: ref.Namespace, Name: ref.Name,
		Patch: json.RawMessage(`{"spec":{"template":{"spec":` + c.optIn + `}}}`)}
	controller := c.Controller(ref.APIVersion, ref.Kind, ref.Namespace, ref.Name)
	switch kind := groupKind(ref.APIVersion, ref.Kind); {
	case controller != nil && kind == "Job.batch" && groupKind(controller.APIVersion, controller.Kind) == "CronJob.batch":
		patch.Kind, patch.Name = "cronjob", controller.Name
		patch.Patch = json.RawMessage(`{"spec":{"jobTemplate":` + string(patch.Patch) + `}}`)
	case controller != nil:
		c.change(true, "set schedulerName in %s %s, which controls it", controller.Kind, controller.Name)
		return
	case kind == "Job.batch":
		c.change(true, "set schedulerName in the manifest, and create the Job again: its pod template cannot change")
		return
	case kind == "Deployment.apps", kind == "StatefulSet.apps":
	case kind == "ReplicaSet.apps", kind == "ReplicationController":
		c.change(false, "delete its pods after it opted in: a %s does not replace them", ref.Kind)
	default:
		if by := metav1.GetControllerOfNoCopy(c.p); by.Kind != workload.RevisionOf(c.p.Pod).Kind { // it did not create the pod from its template
			c.change(true, "set schedulerName in the pods that %s %s controls", by.Kind, by.Name)
			return
		}
		c.change(true, "set schedulerName in the pod template of %s %s", ref.Kind, ref.Name)
		return
	}
	c.result.Patch = patch
}

// groupKind returns a kind with its group, such as Deployment.apps.
func groupKind(apiVersion, kind string) string {
	return schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind().String()
}

// localVolumes returns the volumes of a pod that are on one node.
func localVolumes(p *snapshot.Pod) (names []string) {
	for _, volume := range p.Volumes {
		if volume.Spec.Local != nil || volume.Spec.HostPath != nil {
			names = append(names, volume.Name)
		}
	}
	return names
}

// hostPaths returns the names of the hostPath volumes of a pod.
func hostPaths(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].HostPath != nil {
			names = append(names, pod.Spec.Volumes[i].Name)
		}
	}
	return names
}

// costOf returns the costs of the replicas of a workload per month, today and with the policy, as
// in View.Savings. Both are nil if one is unknown. Only replicas on nodes cost something.
func costOf(w *snapshot.Workload, assessed *AssessedWorkload, priced map[*snapshot.Node]*pricing.Cost) (now, then *float64) {
	var current, later float64
	floorLeft := assessed.Floor
	replicas := onDemandFirst(w)
	for _, p := range replicas {
		c := priced[p.Node]
		if c == nil {
			return nil, nil
		}
		s := share(p) * HoursPerMonth
		current += s * c.Now
		onDemand, spot := c.OnDemand, c.Spot
		if p.Node.Facts.Capacity.Type == decision.Spot {
			spot = c.Now
		} else {
			onDemand = c.Now
		}
		inFloor := floorLeft > 0
		if subject := &p.Subject.Pod.Workload; subject.Ordered {
			inFloor = subject.Ordinal < assessed.Floor
		}
		floorLeft--
		switch {
		case assessed.keepsPlace():
			later += s * c.Now
		case inFloor:
			later += s * onDemand
		case spot == 0: // the list has no spot price
			return nil, nil
		default:
			later += s * spot
		}
	}
	return &current, &later
}

// onDemandFirst returns the replicas of a workload that are on nodes: those on on-demand first.
func onDemandFirst(w *snapshot.Workload) []*snapshot.Pod {
	all := slices.DeleteFunc(slices.Collect(podsOf(w)), func(p *snapshot.Pod) bool { return p.Node == nil })
	slices.SortStableFunc(all, func(a, b *snapshot.Pod) int {
		return cmp.Compare(a.Node.Facts.Capacity.Type, b.Node.Facts.Capacity.Type)
	})
	return all
}
