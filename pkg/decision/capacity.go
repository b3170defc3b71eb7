package decision

import (
	"slices"
	"time"
)

// CapacityType says how a node's capacity was bought.
type CapacityType int8

const (
	// OnDemand capacity stays until its owner gives it back.
	OnDemand CapacityType = iota
	// Spot capacity can be reclaimed by the cloud at short notice.
	Spot
)

// String returns the value that the capacity label has for t.
func (t CapacityType) String() string {
	if t == Spot {
		return "spot"
	}
	return "on-demand"
}

// CapacityLabelKey is the project's own node label. Where it has a value it alone decides: "spot" or "on-demand". Any other value is a
// mistake, and counts as spot like a contradiction: the cautious reading.
const CapacityLabelKey = "node.kubernetes.io/capacity"

// CapacityLabel says which values of one node label mean spot and which mean on-demand.
type CapacityLabel struct {
	Key string
	// Spot and OnDemand are the values that decide; every other value says nothing.
	Spot, OnDemand []string
	// SpotUnless, where not nil, makes every value spot that is neither in it nor in OnDemand (labels whose mere presence means spot).
	SpotUnless []string
}

// BuiltinCapacityLabels returns what provisioners are known to set, each row with its source. The project's own label is not
// among them: it outranks them all.
func BuiltinCapacityLabels() []CapacityLabel {
	return []CapacityLabel{
		// Karpenter and EKS Auto Mode: karpenter pkg/apis/v1/labels.go.
		{Key: "karpenter.sh/capacity-type", Spot: []string{"spot"}, OnDemand: []string{"on-demand", "reserved"}},
		// EKS managed node groups: EKS user guide, "Managed node groups".
		{Key: "eks.amazonaws.com/capacityType", Spot: []string{"SPOT"}, OnDemand: []string{"ON_DEMAND", "CAPACITY_BLOCK"}},
		// GKE: cluster-autoscaler's gce price model; GKE docs on Spot VMs.
		{Key: "cloud.google.com/gke-spot", Spot: []string{"true"}},
		{Key: "cloud.google.com/gke-preemptible", Spot: []string{"true"}},
		{Key: "cloud.google.com/gke-provisioning", Spot: []string{"spot", "preemptible"}, OnDemand: []string{"standard"}},
		// AKS: "Add an Azure Spot node pool".
		{Key: "kubernetes.azure.com/scalesetpriority", Spot: []string{"spot"}, OnDemand: []string{"regular"}},
		// ACK: cloud controller manager's node labels.
		{Key: "node.alibabacloud.com/spot-strategy", Spot: []string{"SpotWithPriceLimit", "SpotAsPriceGo"}, OnDemand: []string{"NoSpot"}},
		// OKE: "Using preemptible capacity".
		{Key: "oci.oraclecloud.com/oke-is-preemptible", Spot: []string{"true"}},
		// Cluster API: the machine controller sets it, with any value, on interruptible machines.
		{Key: "cluster.x-k8s.io/interruptible", SpotUnless: []string{}},
		// OpenShift: the machine API sets it, with any value, on spot machines.
		{Key: "machine.openshift.io/interruptible-instance", SpotUnless: []string{}},
		// Spot Ocean: the label says od on on-demand nodes, and nothing certain otherwise.
		{Key: "spotinst.io/node-lifecycle", OnDemand: []string{"od"}},
		// CAST AI: any value but false means spot; spot-fallback marks the on-demand node that stands in for one.
		{Key: "scheduling.cast.ai/spot", SpotUnless: []string{"false"}},
		{Key: "scheduling.cast.ai/spot-fallback", OnDemand: []string{"true"}},
	}
}

// Source says what a node's capacity type was read from.
type Source int8

const (
	// FromLabel: the project's own label.
	FromLabel Source = iota
	// FromAlias: one or more aliases that agree.
	FromAlias
	// FromContradiction: aliases that disagree, or a value of the project's own label that there is not; the node counts as spot,
	// the cautious reading.
	FromContradiction
	// FromDefault: no label says anything; Policy.UnlabeledNodes decides.
	FromDefault
	// Settling: no label says anything yet, other nodes carry one, and the node is younger than Policy.LabelGrace. Its label may
	// still arrive, so it counts as spot: it takes no pod of a floor, and what it takes uses up budget.
	Settling
)

// String names the source in one lower-case word.
func (s Source) String() string {
	return [...]string{"label", "alias", "contradiction", "default", "settling"}[s]
}

// Capacity is a node's capacity type and where it was read from.
type Capacity struct {
	Type   CapacityType
	Source Source
}

// Labeled reports whether a label, rather than a default, decided.
func (c Capacity) Labeled() bool { return c.Source <= FromContradiction }

// Capacity returns the capacity type of a node with these labels and this age. othersLabeled says whether any node of the
// cluster carries a capacity label (Capacity.Labeled); without one, labels are not used here and there is none to wait for.
func (p *Policy) Capacity(labels map[string]string, age time.Duration, othersLabeled bool) Capacity {
	if value := labels[CapacityLabelKey]; value != "" {
		if t, ok := ownLabelSays(value); ok {
			return Capacity{t, FromLabel}
		}
		return Capacity{Spot, FromContradiction}
	}
	var spot, onDemand bool
	for i := range p.CapacityLabels {
		row := &p.CapacityLabels[i]
		if value, ok := labels[row.Key]; ok {
			if t, ok := row.says(value); ok {
				spot, onDemand = spot || t == Spot, onDemand || t == OnDemand
			}
		}
	}
	switch {
	case spot && onDemand:
		return Capacity{Spot, FromContradiction}
	case spot:
		return Capacity{Spot, FromAlias}
	case onDemand:
		return Capacity{OnDemand, FromAlias}
	case othersLabeled && age < p.LabelGrace:
		return Capacity{Spot, Settling}
	}
	return Capacity{p.UnlabeledNodes, FromDefault}
}

// LabelSays returns the capacity type that a node label of this key and value stands for; false if it stands for none.
func (p *Policy) LabelSays(key, value string) (CapacityType, bool) {
	if key == CapacityLabelKey {
		return ownLabelSays(value)
	}
	for i := range p.CapacityLabels {
		if row := &p.CapacityLabels[i]; row.Key == key {
			if t, ok := row.says(value); ok {
				return t, true
			}
		}
	}
	return OnDemand, false
}

// PresenceSaysSpot reports whether a node label of this key is set on spot nodes only, so that its mere presence decides.
func (p *Policy) PresenceSaysSpot(key string) bool {
	found := false
	for i := range p.CapacityLabels {
		if row := &p.CapacityLabels[i]; row.Key == key {
			if len(row.OnDemand) > 0 || len(row.SpotUnless) > 0 {
				return false
			}
			found = true
		}
	}
	return found
}

func ownLabelSays(value string) (CapacityType, bool) {
	switch value {
	case "spot":
		return Spot, true
	case "on-demand":
		return OnDemand, true
	}
	return OnDemand, false
}

func (row *CapacityLabel) says(value string) (CapacityType, bool) {
	switch {
	case slices.Contains(row.OnDemand, value):
		return OnDemand, true
	case slices.Contains(row.Spot, value), row.SpotUnless != nil && !slices.Contains(row.SpotUnless, value):
		return Spot, true
	}
	return OnDemand, false
}

// Pool names the nodes that are reclaimed together: those of one instance type in one zone. The zero Pool belongs to nodes
// without both labels: it is no pool at all, and no cap applies to it.
type Pool struct {
	InstanceType, Zone string
}

// NewPool returns the pool of a node, the zero Pool unless it has both an instance type and a zone.
func NewPool(instanceType, zone string) Pool {
	if instanceType == "" || zone == "" {
		return Pool{}
	}
	return Pool{InstanceType: instanceType, Zone: zone}
}

// SignalClass says what a node's interruption signals, taken together, ask for. A larger class outranks a smaller one.
type SignalClass int8

const (
	// NoSignal: nothing is known to happen to the node.
	NoSignal SignalClass = iota
	// Advisory: the node may go. It is scored last.
	Advisory
	// Drain: somebody else already removes its pods. It takes no new ones.
	Drain
	// Reclaim: the node goes at a deadline. It takes no new pods.
	Reclaim
)

// String returns the class as configuration spells it, in lower case; "none" for NoSignal.
func (c SignalClass) String() string {
	return [...]string{"none", "advisory", "drain", "reclaim"}[c]
}
