package costs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

const list = "instanceType,zone,spot,onDemand\nm,,0.1,0.3\nm,b,0.2,\nnospot,,,0.5\nfree,,0,0\n"

// newCollector returns a collector of nodes, which are described as NAME CAPACITY TYPE/ZONE
// [ANNOTATION=VALUE].
func newCollector(t testing.TB, synced bool, lines ...string) *Collector {
	t.Helper()
	prices, err := pricing.Read([]byte(list), "prices.csv")
	if err != nil {
		t.Fatal(err)
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, line := range lines {
		words := strings.Fields(line)
		instanceType, zone, _ := strings.Cut(words[2], "/")
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Annotations: map[string]string{}, Labels: map[string]string{
			spot.CapacityLabel: words[1], v1.LabelInstanceTypeStable: instanceType, v1.LabelTopologyZone: zone,
		}}}
		for _, annotation := range words[3:] {
			key, value, _ := strings.Cut(annotation, "=")
			n.Annotations[key] = value
		}
		if err := indexer.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	channel := make(chan struct{})
	if synced {
		close(channel)
	}
	return NewCollector(corelisters.NewNodeLister(indexer), channel, prices, func(n *v1.Node, _ time.Time) decision.CapacityType {
		if n.Labels[spot.CapacityLabel] == "spot" {
			return decision.Spot
		}
		return decision.OnDemand
	})
}

// scraped returns the values of the collector's metrics, one per line, without comments.
func scraped(t *testing.T, c *Collector) string {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, family := range families {
		for _, m := range family.Metric {
			text += strings.TrimPrefix(family.GetName(), "spot_aware_scheduler_")
			for _, label := range m.Label {
				text += " " + label.GetValue()
			}
			text += fmt.Sprintf(" %v\n", m.Gauge.GetValue())
		}
	}
	return text
}

func TestCosts(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []string
		want  string
	}{
		"no nodes": {nil, `
hourly_cost_usd on-demand 0
hourly_cost_usd spot 0
hourly_on_demand_cost_usd on-demand 0
hourly_on_demand_cost_usd spot 0
unpriced_nodes on-demand 0
unpriced_nodes spot 0
`},
		// Nodes with an unknown price are in no sum: neither price is known (d), only the on-demand
		// price (e), or only the spot price (h). A price of 0 is known. The price in a zone and
		// annotations replace the price of the type.
		"all kinds": {[]string{
			"a spot m/a", "b spot m/b", "c on-demand m/a", "d on-demand unknown/a", "e spot nospot/a", "f spot free/a",
			"g on-demand unknown/a " + spot.PriceAnnotation + "=4", "h spot unknown/a " + spot.PriceAnnotation + "=4",
			"i on-demand m/a " + spot.PriceAnnotation + "=cheap",
		}, `
hourly_cost_usd on-demand 4.6
hourly_cost_usd spot 0.30000000000000004
hourly_on_demand_cost_usd on-demand 4.6
hourly_on_demand_cost_usd spot 0.6
node_hourly_on_demand_cost_usd on-demand c 0.3
node_hourly_on_demand_cost_usd on-demand d NaN
node_hourly_on_demand_cost_usd on-demand g 4
node_hourly_on_demand_cost_usd on-demand i 0.3
node_hourly_on_demand_cost_usd spot a 0.3
node_hourly_on_demand_cost_usd spot b 0.3
node_hourly_on_demand_cost_usd spot e 0.5
node_hourly_on_demand_cost_usd spot f 0
node_hourly_on_demand_cost_usd spot h NaN
unpriced_nodes on-demand 1
unpriced_nodes spot 2
`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := "\n" + scraped(t, newCollector(t, true, test.nodes...)); got != test.want {
				t.Errorf("metrics:%s\nwant:%s", got, test.want)
			}
		})
	}
}

// Before all nodes are known, the sums would be too small.
func TestNothingBeforeSync(t *testing.T) {
	if got := scraped(t, newCollector(t, false, "a spot m/a")); got != "" {
		t.Errorf("metrics: %s, want none", got)
	}
}

// BenchmarkScrape measures a scrape of 5,000 nodes.
func BenchmarkScrape(b *testing.B) {
	var nodes []string
	for i := range 5000 {
		nodes = append(nodes, fmt.Sprintf("node-%04d %s m/a", i*7919%5000, []string{"spot", "on-demand"}[i%2]))
	}
	c := newCollector(b, true, nodes...)
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(c)
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
