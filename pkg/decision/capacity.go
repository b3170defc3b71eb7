package decision

import (
	"slices"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// CapacityType is the purchase option of a node's capacity.
type CapacityType int8

const (
	// OnDemand capacity is available until the user releases it.
	OnDemand CapacityType = iota
	// Spot capacity can be reclaimed by the cloud provider at short notice.
	Spot
)

// String returns the value of the capacity label for t.
func (t CapacityType) String() string { return [...]string{OnDemand: "on-demand", Spot: "spot"}[t] }

// CapacityLabel lists the values of a node label that mean spot or on-demand.
type CapacityLabel struct {
	Key string
	// Spot and OnDemand are the values with a meaning. Any other value is ignored if only one of
	// the lists is set, and unknown if both are set.
	Spot, OnDemand []string
	// SpotUnless, if not nil, makes every value mean spot that is in neither SpotUnless nor
	// OnDemand. It is for labels whose mere presence means spot.
	SpotUnless []string
}

var ownLabel = CapacityLabel{Key: spot.CapacityLabel, Spot: []string{Spot.String()}, OnDemand: []string{OnDemand.String()}}

// CapacitySource is the origin of a node's capacity type.
type CapacitySource int8

const (
	// FromLabel is the project's own label.
	FromLabel CapacitySource = iota
	// FromAlias means one or more aliases that agree.
	FromAlias
	// FromContradiction means aliases that disagree, or an unknown value of a capacity label
	// without a known value of another one. The node counts as spot, which is the cautious reading.
	FromContradiction
	// FromDefault means that the node has no capacity label; Policy.UnlabeledNodes decides.
	FromDefault
	// Settling means that the node has no capacity label yet, and is younger than
	// Policy.LabelGrace. Its label may still arrive, so the node counts as spot: no pod of a floor
	// may run on it, and other pods on it use budget.
	Settling
	// FromSignal means that the node has no capacity label, but an interruption signal that only
	// spot nodes get.
	FromSignal
)

// String returns the source as one lower-case word.
func (s CapacitySource) String() string {
	return [...]string{"label", "alias", "contradiction", "default", "settling", "signal"}[s]
}

// Capacity is the capacity type of a node and its source.
type Capacity struct {
	Type   CapacityType
	Source CapacitySource
}

// IsSpot reports whether the node is spot, and not only because it may still receive its label.
func (c Capacity) IsSpot() bool { return c.Type == Spot && c.Source != Settling }

// Labeled reports whether a label, not a default, decided.
func (c Capacity) Labeled() bool { return c.Source <= FromContradiction }

// Capacity returns the capacity type of a node with these labels and this age.
func (p *Policy) Capacity(labels map[string]string, age time.Duration) Capacity {
	own := labels[spot.CapacityLabel]
	if t, ok := ownLabel.meaning(own); ok {
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
		if t, ok := row.meaning(value); ok {
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
	case age < p.LabelGrace:
		return Capacity{Spot, Settling}
	}
	return Capacity{p.UnlabeledNodes, FromDefault}
}

// UnknownLabels returns the keys of the capacity labels that have an unknown value on a node with
// these labels: the project's own label first, then the aliases in the order of the table.
// Autoscalers invent such values for pods that exclude a known one. An alias counts only if its row
// lists values for both capacity types, because a label whose row lists one type may have any other
// value.
func (p *Policy) UnknownLabels(labels map[string]string) (keys []string) {
	if ownLabel.unknown(labels[spot.CapacityLabel]) {
		keys = append(keys, spot.CapacityLabel)
	}
	for i := range p.CapacityLabels {
		row := &p.CapacityLabels[i]
		value, ok := labels[row.Key]
		if !ok || !row.unknown(value) || slices.Contains(keys, row.Key) {
			continue
		}
		if _, known := p.LabelMeaning(row.Key, value); !known { // another row of the same label may list it
			keys = append(keys, row.Key)
		}
	}
	return keys
}

// LabelMeaning returns the capacity type that the node label key=value means; false if it means
// none.
func (p *Policy) LabelMeaning(key, value string) (CapacityType, bool) {
	if key == spot.CapacityLabel {
		return ownLabel.meaning(value)
	}
	for i := range p.CapacityLabels {
		if row := &p.CapacityLabels[i]; row.Key == key {
			if t, ok := row.meaning(value); ok {
				return t, true
			}
		}
	}
	return OnDemand, false
}

// ValuesOf returns the values of the node label key that mean capacity. byPresence reports that the
// presence of the label, with any value, means it. Both results are zero if every value except some
// means it: a node selector cannot express that.
func (p *Policy) ValuesOf(key string, capacity CapacityType) (values []string, byPresence bool) {
	if key == spot.CapacityLabel {
		return []string{capacity.String()}, false
	}
	for i := range p.CapacityLabels {
		row := &p.CapacityLabels[i]
		switch {
		case row.Key != key:
		case capacity == OnDemand:
			values = append(values, row.OnDemand...)
		case row.SpotUnless != nil:
			return nil, p.PresenceMeansSpot(key)
		default:
			values = append(values, row.Spot...)
		}
	}
	return values, false
}

// CapacityKeys returns the keys of the capacity labels other than the project's own one, in the
// order of the table.
func (p *Policy) CapacityKeys() (keys []string) {
	for i := range p.CapacityLabels {
		if key := p.CapacityLabels[i].Key; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// PresenceMeansSpot reports whether only spot nodes have the node label key, so that its presence
// means spot.
func (p *Policy) PresenceMeansSpot(key string) bool {
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

func (row *CapacityLabel) meaning(value string) (CapacityType, bool) {
	switch {
	case slices.Contains(row.OnDemand, value):
		return OnDemand, true
	case slices.Contains(row.Spot, value), row.SpotUnless != nil && !slices.Contains(row.SpotUnless, value):
		return Spot, true
	}
	return OnDemand, false
}

// unknown reports whether value is not empty and not in the row, although the row lists values for
// both capacity types.
func (row *CapacityLabel) unknown(value string) bool {
	if value == "" || len(row.Spot) == 0 || len(row.OnDemand) == 0 {
		return false
	}
	_, known := row.meaning(value)
	return !known
}

// Pool identifies nodes that are reclaimed together: the nodes of one instance type in one zone.
// The zero Pool is the value for nodes without both labels: they are in no pool, and no cap
// applies.
type Pool struct {
	InstanceType, Zone string
}

// MarshalText returns p as a key of a JSON object.
func (p Pool) MarshalText() ([]byte, error) { return []byte(p.InstanceType + "/" + p.Zone), nil }

// UnmarshalText reads the result of MarshalText. Values of labels contain no slash.
func (p *Pool) UnmarshalText(text []byte) error {
	p.InstanceType, p.Zone, _ = strings.Cut(string(text), "/")
	return nil
}

// NewPool returns the pool of a node: the zero Pool unless both instance type and zone are known.
func NewPool(instanceType, zone string) Pool {
	if instanceType == "" || zone == "" {
		return Pool{}
	}
	return Pool{InstanceType: instanceType, Zone: zone}
}

// SpreadPool identifies the group of nodes in which siblings count as being in the same pool, both
// for the pool cap and for the spread over pools. On-demand nodes are not reclaimed together with
// the spot nodes of their Pool, so they form a separate group. The nodes of a zone without a Pool
// share one group; no cap applies to them.
type SpreadPool struct {
	Capacity CapacityType
	Pool     Pool
	Zone     string
}

// SpreadPool returns the group in which siblings on the node are counted.
func (n Node) SpreadPool() SpreadPool {
	return SpreadPool{Capacity: n.Capacity.Type, Pool: n.Pool, Zone: n.Zone}
}

// SignalClass is the combined class of a node's interruption signals. A larger class outranks a
// smaller one.
type SignalClass int8

const (
	// NoSignal means that no interruption of the node is known.
	NoSignal SignalClass = iota
	// Advisory means that the node may be reclaimed. It gets the lowest scores.
	Advisory
	// Drain means that another actor already evicts its pods. It gets no new pods.
	Drain
	// Reclaim means that the node is reclaimed at a deadline. It gets no new pods.
	Reclaim
)

// String returns the class as the configuration spells it; "none" for NoSignal.
func (c SignalClass) String() string {
	return [...]string{"none", "advisory", "drain", "reclaim"}[c]
}
