package pricing

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Price is the price of one instance type, in US dollars per hour.
type Price struct {
	InstanceType string `json:"instanceType"`
	// Zone is the zone of the price; "" applies to all zones without a row of their own.
	Zone     string   `json:"zone,omitempty"`
	Spot     *float64 `json:"spot,omitempty"`
	OnDemand *float64 `json:"onDemand,omitempty"`
}

// Prices is a price list. It is safe for concurrent use.
type Prices struct {
	prices map[priced]*float64
	// From describes the source of the list to the user.
	From string
}

// priced is what has a price in a list. zone is "" for all zones.
type priced struct {
	instanceType, zone string
	capacity           decision.CapacityType
}

// BuiltIn returns the list prices of Types, and the average saving of spot.
func BuiltIn() *Prices {
	var rows []Price
	for name, t := range Types {
		onDemand, spot := t.Price(decision.OnDemand.String()), t.Price(decision.Spot.String())
		rows = append(rows, Price{InstanceType: name, OnDemand: &onDemand, Spot: &spot})
	}
	return New(rows, "AWS list prices of us-east-1, spot by its average saving")
}

// New returns a list with the given rows, which must have different types or zones. from describes
// the source of the list to the user.
func New(rows []Price, from string) *Prices {
	p := &Prices{prices: map[priced]*float64{}, From: from}
	for _, row := range rows {
		p.prices[priced{row.InstanceType, row.Zone, decision.Spot}] = row.Spot
		p.prices[priced{row.InstanceType, row.Zone, decision.OnDemand}] = row.OnDemand
	}
	return p
}

// lookUp returns the price in the zone, or else the price for all zones; nil if there is none.
func (p *Prices) lookUp(instanceType, zone string, capacity decision.CapacityType) *float64 {
	return cmp.Or(p.prices[priced{instanceType, zone, capacity}], p.prices[priced{instanceType, "", capacity}])
}

// ReadFile reads a price list from a file, as Read does. Without a file it returns BuiltIn.
func ReadFile(file string) (*Prices, error) {
	if file == "" {
		return BuiltIn(), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("price list: %w", err)
	}
	return Read(data, file)
}

// Read reads a price list. If the name of the file ends in .csv, it is CSV with a header of
// the names instanceType, zone, spot and onDemand. Otherwise it is YAML: a list of objects with
// those fields. zone, spot and onDemand are optional. The error lists every invalid row, with the
// field, its value and the expected value.
func Read(data []byte, file string) (*Prices, error) {
	rows, err := decodePrices(data, file)
	if err != nil {
		return nil, fmt.Errorf("price list %s: %w", file, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("price list %s: it has no rows", file)
	}
	var errs []error
	seen := map[decision.Pool]int{}
	for i := range rows {
		row := &rows[i]
		addError := func(field string, value any, expected string) {
			errs = append(errs, fmt.Errorf("row %d: %s: invalid value %q: expected %s", i+1, field, fmt.Sprint(value), expected))
		}
		if row.InstanceType == "" {
			addError("instanceType", "", "the name of an instance type")
		}
		if row.Spot == nil && row.OnDemand == nil {
			addError("spot, onDemand", "", "at least one price")
		}
		for field, price := range map[string]*float64{"spot": row.Spot, "onDemand": row.OnDemand} {
			if price != nil && (*price < 0 || math.IsNaN(*price) || math.IsInf(*price, 0)) {
				addError(field, *price, "US dollars per hour, 0 or more")
			}
		}
		key := decision.Pool{InstanceType: row.InstanceType, Zone: row.Zone}
		if first, again := seen[key]; again {
			addError("instanceType, zone", row.InstanceType+" "+row.Zone, fmt.Sprintf("a different pair than in row %d", first))
		}
		seen[key] = i + 1
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("price list %s:\n%w", file, errors.Join(errs...))
	}
	return New(rows, file), nil
}

func decodePrices(data []byte, file string) ([]Price, error) {
	if !strings.EqualFold(filepath.Ext(file), ".csv") {
		var rows []Price
		return rows, yaml.UnmarshalStrict(data, &rows)
	}
	reader := csv.NewReader(bytes.NewReader(data))
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("expected a header: %w", err)
	}
	var rows []Price
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		var row Price
		for i, name := range header {
			if err := row.set(strings.TrimSpace(name), strings.TrimSpace(record[i])); err != nil {
				return nil, fmt.Errorf("row %d: %w", len(rows)+1, err)
			}
		}
		rows = append(rows, row)
	}
}

// set sets the field with the name of a CSV column.
func (p *Price) set(name, value string) error {
	text := map[string]*string{"instanceType": &p.InstanceType, "zone": &p.Zone}[name]
	price := map[string]**float64{"spot": &p.Spot, "onDemand": &p.OnDemand}[name]
	switch {
	case text != nil:
		*text = value
	case price == nil:
		return fmt.Errorf("header: invalid value %q: expected instanceType, zone, spot or onDemand", name)
	case value != "":
		usd, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%s: invalid value %q: expected US dollars per hour", name, value)
		}
		*price = &usd
	}
	return nil
}

// Cost is the cost of a node in US dollars per hour.
type Cost struct {
	// Now is the current cost. OnDemand is the cost of the node if it were on-demand.
	Now, OnDemand float64
	// Spot is the cost of the node if it were spot; 0 if the list has no spot price.
	Spot float64
}

// Cost returns the cost of a node of a capacity type; nil if it is unknown. onDemand is the cost of
// the node if it were on-demand, which may be known although the current cost is not; nil if it is
// unknown. The annotations of the node take precedence over the list. ignored describes annotations
// that are not a valid price.
func (p *Prices) Cost(node *v1.Node, capacity decision.CapacityType) (cost *Cost, onDemand *float64, ignored []string) {
	instanceType, zone := node.Labels[v1.LabelInstanceTypeStable], node.Labels[v1.LabelTopologyZone]
	annotated := func(key string) *float64 {
		text, given := node.Annotations[key]
		if !given {
			return nil
		}
		price, err := strconv.ParseFloat(text, 64)
		if err != nil || !(price >= 0) || math.IsInf(price, 0) {
			const invalid = "node %s: annotation %s: invalid value %q: expected US dollars per hour, 0 or more"
			ignored = append(ignored, fmt.Sprintf(invalid, node.Name, key, text))
			return nil
		}
		return &price
	}
	now := cmp.Or(annotated(spot.PriceAnnotation), p.lookUp(instanceType, zone, capacity))
	onDemand = cmp.Or(annotated(spot.OnDemandPriceAnnotation), p.lookUp(instanceType, zone, decision.OnDemand))
	if capacity == decision.OnDemand { // each price may replace the other
		now, onDemand = cmp.Or(now, onDemand), cmp.Or(onDemand, now)
	}
	if now == nil || onDemand == nil {
		return nil, onDemand, ignored
	}
	return &Cost{Now: *now, OnDemand: *onDemand, Spot: ptr.Deref(p.lookUp(instanceType, zone, decision.Spot), 0)}, onDemand, ignored
}

// Total is the cost of nodes of one capacity type in US dollars per hour.
type Total struct {
	// Nodes counts all nodes. Unpriced counts the nodes with an unknown cost, which are in no sum.
	Nodes, Unpriced int
	// Now is the current cost. OnDemand is the cost if the nodes were on-demand.
	Now, OnDemand float64
}

// Totals are the totals of both capacity types. The same nodes, added in the same order, result in
// the same sums to the last digit.
type Totals struct{ Spot, OnDemand Total }

// Add adds a node; a nil cost is unknown.
func (t *Totals) Add(capacity decision.CapacityType, cost *Cost) {
	of := &t.OnDemand
	if capacity == decision.Spot {
		of = &t.Spot
	}
	of.Nodes++
	if cost == nil {
		of.Unpriced++
		return
	}
	of.Now += cost.Now
	of.OnDemand += cost.OnDemand
}
