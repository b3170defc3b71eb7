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

// CapacityLabelKey is the project's own node label. If its value is "spot" or "on-demand", it alone decides. Any other value is unknown:
// see Policy.UnknownLabels.
const CapacityLabelKey = "node.kubernetes.io/capacity"

// CapacityLabel says which values of one node label mean spot and which mean on-demand.
type CapacityLabel struct {
	Key string
	// Spot and OnDemand are the values that decide. Every other value says nothing, or is unknown if the row has values for both.
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
	// FromContradiction: aliases that disagree, or an unknown value of a capacity label and no known value of another one; the node
	// counts as spot, the cautious reading.
	FromContradiction
	// FromDefault: no label says anything; Policy.UnlabeledNodes decides.
	FromDefault
	// Settling: no label says anything yet, other nodes carry or carried one, and the node is younger than Policy.LabelGrace. Its label
	// may still arrive, so it counts as spot: it takes no pod of a floor, and what it takes uses up budget.
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

// Capacity returns the capacity type of a node with these labels and this age. othersLabeled says whether any node of the cluster carries
// or ever carried a capacity label (Capacity.Labeled); without one, labels are not used here and there is none to wait for.
func (p *Policy) Capacity(labels map[string]string, age time.Duration, othersLabeled bool) Capacity {
	own := labels[CapacityLabelKey]
	if t, ok := ownLabelSays(own); ok {
		return Capacity{t, FromLabel}
	}
	unknown := own != ""
	var spot, onDemand bool
	for i := range p.CapacityLabels {
		row := &p.CapacityLabels[i]
		value, ok := labels[row.Key]
		if !ok {
			continue
		}
		if t, ok := row.says(value); ok {
			spot, onDemand = spot || t == Spot, onDemand || t == OnDemand
		} else {
			unknown = unknown || row.unknown(value)
		}
	}
	switch {
	case spot && onDemand:
		return Capacity{Spot, FromContradiction}
	case spot:
		return Capacity{Spot, FromAlias}
	case onDemand:
		return Capacity{OnDemand, FromAlias}
	case unknown:
		return Capacity{Spot, FromContradiction}
	case othersLabeled && age < p.LabelGrace:
		return Capacity{Spot, Settling}
	}
	return Capacity{p.UnlabeledNodes, FromDefault}
}

// UnknownLabels returns the keys of the capacity labels that have an unknown value on a node with these labels: the project's own label
// first, then the aliases in the order of the table. Autoscalers make up such values for pods that exclude a known one. Of the aliases only
// those are meant whose row lists values for both capacity types, because a label of which the row lists one type may have any other value.
func (p *Policy) UnknownLabels(labels map[string]string) (keys []string) {
	if own := labels[CapacityLabelKey]; own != "" {
		if _, known := ownLabelSays(own); !known {
			keys = append(keys, CapacityLabelKey)
		}
	}
	for i := range p.CapacityLabels {
		row := &p.CapacityLabels[i]
		value, ok := labels[row.Key]
		if !ok || !row.unknown(value) || slices.Contains(keys, row.Key) {
			continue
		}
		if _, known := p.LabelSays(row.Key, value); !known { // another row of the same label may list it
			keys = append(keys, row.Key)
		}
	}
	return keys
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

// ValuesOf returns the values of the node label of this key that stand for capacity, and whether instead the mere presence of the label does. It
// returns neither if all values but some do: that cannot be said of one node selector.
func (p *Policy) ValuesOf(key string, capacity CapacityType) (values []string, byPresence bool) {
	if key == CapacityLabelKey {
		return []string{capacity.String()}, false
	}
	for i := range p.CapacityLabels {
		row := &p.CapacityLabels[i]
		switch {
		case row.Key != key:
		case capacity == OnDemand:
			values = append(values, row.OnDemand...)
		case row.SpotUnless != nil:
			return nil, p.PresenceSaysSpot(key)
		default:
			values = append(values, row.Spot...)
		}
	}
	return values, false
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

// unknown reports whether a value that is not empty is none of those that the row lists, although it lists some for both capacity types.
func (row *CapacityLabel) unknown(value string) bool {
	if value == "" || len(row.Spot) == 0 || len(row.OnDemand) == 0 {
		return false
	}
	_, says := row.says(value)
	return !says
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

// SpreadPool identifies the nodes among which siblings are counted as being in one pool, for the pool cap and for the spread over pools. It
// is the one rule for this. On-demand nodes are not reclaimed with the spot nodes of their Pool, so they are apart from them. Nodes without a
// Pool share one with the other such nodes of their zone; no cap applies to them.
type SpreadPool struct {
	Capacity CapacityType
	Pool     Pool
	Zone     string
}

// SpreadPool returns the pool that siblings on the node are counted in, given the node's zone: its label, which a node without a Pool may
// have too.
func (n Node) SpreadPool(zone string) SpreadPool {
	return SpreadPool{Capacity: n.Capacity.Type, Pool: n.Pool, Zone: zone}
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
