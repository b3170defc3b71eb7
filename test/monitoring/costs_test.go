package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The price lists of TestCosts. OpenCost and kubectl spot have the same prices. They are multiples
// of 1/1024, so that their sums are exact in any order: Prometheus adds the costs of OpenCost's
// nodes itself. The controller then has only on-demand prices.
const (
	ownPrices      = "instanceType,zone,spot,onDemand\nm5.xlarge,,0.0571,0.1837\nm5.xlarge,zone-b,0.0613,\nc5.xlarge,,0.0471,0.1619\n"
	openCostPrices = "instanceType,zone,spot,onDemand\nm5.xlarge,,0.0625,0.1875\nc5.xlarge,,0.046875,0.171875\n"
	onDemandPrices = "instanceType,onDemand\nm5.xlarge,0.1875\nc5.xlarge,0.171875\n"
)

// openCost are the costs of nodes according to openCostPrices, by the prefix of their names.
var openCost = map[string]float64{"spot-m": 0.0625, "spot-c": 0.046875, "od-m": 0.1875, "od-c": 0.171875, "unknown": 0, "annotated": 0.25}

// TestCosts compares the panels of costs with kubectl spot savings at the same moment, to the last
// digit: with the built-in prices, with a price list, and with OpenCost. It compares again after
// the nodes have changed. OpenCost does not run: an HTTP server serves its metric.
func TestCosts(t *testing.T) {
	cp, err := lab.Start(t.Context(), lab.Options{})
	live.Must(t, err)
	t.Cleanup(func() { live.Must(t, cp.Stop()) })
	live.Must(t, cp.CreateNodes(t.Context(),
		costNode("spot-m-1", lab.Spot, "m5.xlarge", "zone-a"), costNode("spot-m-2", lab.Spot, "m5.xlarge", "zone-b"),
		costNode("spot-c", lab.Spot, "c5.xlarge", "zone-a"), costNode("od-m", lab.OnDemand, "m5.xlarge", "zone-a"),
		costNode("od-c", lab.OnDemand, "c5.xlarge", "zone-b"), costNode("unknown-1", lab.Spot, "x.large", "zone-a"),
		costNode("unknown-2", lab.OnDemand, "x.large", "zone-a"), costNode("annotated", lab.OnDemand, "y.large", "zone-a")))
	client, err := kubernetes.NewForConfig(cp.Config())
	live.Must(t, err)
	exporter := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		nodes, err := client.CoreV1().Nodes().List(request.Context(), metav1.ListOptions{})
		if err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
		for i := range nodes.Items {
			name := nodes.Items[i].Name
			for prefix, cost := range openCost {
				if strings.HasPrefix(name, prefix) {
					fmt.Fprintf(response, "node_total_hourly_cost{instance=%q,node=%q} %v\n", name, name, cost)
				}
			}
		}
	}))
	t.Cleanup(exporter.Close)
	sources := []*source{
		{name: "built-in prices"},
		{name: "price list", controller: ownPrices, kubectl: ownPrices},
		{name: "OpenCost", controller: onDemandPrices, kubectl: openCostPrices, openCost: strings.TrimPrefix(exporter.URL, "http://")},
	}
	for _, s := range sources {
		s.start(t, cp)
	}
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) { s.compare(t, cp, 2) })
	}
	live.Must(t, cp.CreateNodes(t.Context(), costNode("spot-c-new", lab.Spot, "c5.xlarge", "zone-b"), costNode("unknown-new", lab.Spot, "x.large", "zone-b")))
	for _, s := range sources {
		t.Run(s.name+" after new nodes", func(t *testing.T) { s.compare(t, cp, 3) })
	}
}

// costNode returns a node whose price is in no annotation, except that of the node "annotated".
func costNode(name, capacity, instanceType, zone string) lab.NodeSpec {
	n := lab.NodeSpec{Name: name, InstanceType: instanceType, Zone: zone, Labels: map[string]string{lab.CapacityLabel: capacity}}
	if name == "annotated" {
		n.Annotations = map[string]string{spot.PriceAnnotation: fmt.Sprint(openCost[name])}
	}
	return n
}

// source is a source of prices, with a controller and a Prometheus of its own.
type source struct {
	name string
	// controller and kubectl are price lists; empty means the built-in prices. openCost is the
	// address of the exporter; empty means none.
	controller, kubectl, openCost string
	prometheus                    promv1.API
}

func (s *source) start(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	dir := t.TempDir()
	options := lab.ControllerOptions{}
	if s.controller != "" {
		prices := filepath.Join(dir, "prices.csv")
		live.Must(t, os.WriteFile(prices, []byte(s.controller), 0o600))
		options.Edit = func(config map[string]any) { config["costs"] = map[string]any{"priceFile": prices} }
	}
	controller, err := cp.StartController(t.Context(), options)
	live.Must(t, err)
	rules := filepath.Join(dir, "rules.yaml")
	groups, _ := alertsOf(t, overlay)
	writeRules(t, rules, groups)
	s.prometheus, err = Scrape(t.Context(), cp, time.Second, More{Rules: rules, OpenCost: s.openCost}, controller)
	live.Must(t, err)
}

// savings has the fields of kubectl spot savings -o json that the panels show.
type savings struct {
	Now         float64        `json:"usdPerHour"`
	Spot        float64        `json:"usdPerHourSpot"`
	OnDemand    float64        `json:"usdPerHourOnDemand"`
	AllOnDemand float64        `json:"usdPerHourAllOnDemand"`
	Saved       float64        `json:"savingsUsdPerHour"`
	Unpriced    map[string]int `json:"unpriced"`
}

// compare waits until all panels of costs show the same figures as kubectl spot.
func (s *source) compare(t *testing.T, cp *lab.ControlPlane, unpriced float64) {
	want := s.savings(t, cp)
	n := 0.0
	for _, nodes := range want.Unpriced {
		n += float64(nodes)
	}
	if want.Spot == 0 || want.OnDemand == 0 || want.Saved <= 0 || n != unpriced {
		t.Fatalf("kubectl spot savings: %+v, want costs of both capacity types, savings, and %v nodes with an unknown price", want, unpriced)
	}
	panels := map[string]map[string]float64{ // by title and legend
		"Cost per hour":                                {"cost": want.Now},
		"Cost if all were on-demand":                   {"cost": want.AllOnDemand},
		"Saved per hour":                               {"saved": want.Saved},
		"Saved share":                                  {"saved": want.Saved / want.AllOnDemand},
		"Nodes with an unknown price":                  {"nodes": unpriced},
		"Cost per hour by capacity type":               {"spot": want.Spot, "on-demand": want.OnDemand},
		"Saved per hour by spot":                       {"saved": want.Saved},
		"Nodes with an unknown price by capacity type": {"spot": unpriced - 1, "on-demand": 1},
	}
	d := dashboardOf(t)
	if err := live.Until(t.Context(), live.Soon, func() error {
		var problems []error
		for title, figures := range panels {
			i := slices.IndexFunc(d.Panels, func(p Panel) bool { return p.Title == title })
			if i < 0 {
				t.Fatalf("the dashboard has no panel %q", title)
			}
			target := d.Panels[i].Targets[0]
			found, _, err := s.prometheus.Query(t.Context(), target.Query(nil), time.Now())
			if err != nil {
				return err
			}
			got := map[string]float64{}
			for _, sample := range found.(model.Vector) {
				labels := map[string]string{}
				for name, value := range sample.Metric {
					labels[string(name)] = string(value)
				}
				got[target.Legend(labels)] = float64(sample.Value)
			}
			if fmt.Sprint(got) != fmt.Sprint(figures) { // the shortest text that identifies each number
				problems = append(problems, fmt.Errorf("panel %q shows %v, want %v", title, got, figures))
			}
		}
		return errors.Join(problems...)
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d panels show what kubectl spot savings shows: %+v", len(panels), want)
}

// savings runs kubectl spot savings.
func (s *source) savings(t *testing.T, cp *lab.ControlPlane) (result savings) {
	t.Helper()
	args := []string{"savings", "--output=json", "--kubeconfig=" + cp.Kubeconfig, "--scheduler-config=" + filepath.Join(cp.Root, "config", "scheduler-config.yaml")}
	if s.kubectl != "" {
		prices := filepath.Join(t.TempDir(), "prices.csv")
		live.Must(t, os.WriteFile(prices, []byte(s.kubectl), 0o600))
		args = append(args, "--prices="+prices)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(cp.Root, "bin", "kubectl-spot"), args...).Output()
	var exit *exec.ExitError
	if missingPrices := errors.As(err, &exit) && exit.ExitCode() == 3; err != nil && !missingPrices {
		t.Fatalf("kubectl spot savings: %v", err)
	}
	live.Must(t, json.Unmarshal(out, &result))
	return result
}
