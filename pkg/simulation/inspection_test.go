package simulation_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

func TestObstacles(t *testing.T) {
	for name, test := range map[string]struct {
		cluster string
		pod     string
		want    []string // by node name
	}{
		"room, and the pod's own node": {"node a spot m/a cpu=1\nnode b spot m/a cpu=1\nnode c spot m/a cpu=1\njob other 1 b\njob x 1 a", "x-0",
			[]string{"a []", `b ["insufficient cpu"]`, "c []"}},
		"taints":                  {"node a spot m/a taint=t\nnode b spot m/a cordoned\nnode c spot m/a taint=u\njob x 1 - tolerates=t", "x-0", []string{"a []", `b ["taint node.kubernetes.io/unschedulable"]`, `c ["taint u"]`}},
		"a zone, pods":            {"node a spot m/a pods=0\nnode b spot m/b\njob x 1 - zone=a", "x-0", []string{`a ["insufficient pods"]`, `b ["not in the pod's node selector or affinity"]`}},
		"a volume":                {"node a spot m/a\nnode b spot m/b\nstatefulset x 1 - volume=b", "x-0", []string{`a ["out of reach of the pod's volume"]`, "b []"}},
		"a port":                  {"node a spot m/a\nnode b spot m/a\njob other 1 a port=80\njob x 1 - port=80", "x-0", []string{`a ["host port in use"]`, "b []"}},
		"anti-affinity":           {"node a spot m/a\nnode b spot m/b\ndeployment x 2 a - anti=topology.kubernetes.io/zone", "x-1", []string{`a ["the pod's anti-affinity to other pods"]`, "b []"}},
		"anti-affinity to itself": {"node a spot m/a\nnode b spot m/b\ndeployment x 1 a anti=topology.kubernetes.io/zone", "x-0", []string{"a []", "b []"}},
		"affinity":                {"node a spot m/a\nnode b spot m/b\njob other 1 b\ndeployment x 1 - near=other/topology.kubernetes.io/zone", "x-0", []string{`a ["the pod's affinity to other pods"]`, "b []"}},
		"spread":                  {"node a spot m/a\nnode b spot m/b\ndeployment x 2 a - spread=topology.kubernetes.io/zone", "x-1", []string{`a ["the pod's topology spread"]`, "b []"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			s := w.Snapshot()
			inspection := simulation.NewInspection(s, clustertest.Find(t, s, test.pod))
			var got []string
			for _, node := range s.Nodes {
				got = append(got, fmt.Sprintf("%s %q", node.Name, inspection.Obstacles(node)))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("obstacles (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFitsAnyNode(t *testing.T) {
	const nodes = "node a spot m/a cpu=2\nnode b spot m/b taint=t\n"
	for name, test := range map[string]struct {
		cluster string
		want    bool // for x-0
	}{
		"anywhere":                      {"job x 1 -", true},
		"a zone":                        {"job x 1 - zone=a", true},
		"a zone without nodes":          {"job x 1 - zone=c", false},
		"a taint":                       {"job x 1 - zone=b", false},
		"a taint it tolerates":          {"job x 1 - zone=b tolerates=t", true},
		"a volume":                      {"statefulset x 1 - volume=b", false},
		"no room at present":            {"job other 2 a a\njob x 1 - zone=a", true},
		"a cordoned node":               {"node c spot m/c cordoned taint=node.kubernetes.io/unschedulable\njob x 1 - zone=c", true},
		"more than the node's capacity": {"node c spot m/c cpu=0\njob x 1 - zone=c", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(nodes + test.cluster)
			s := w.Snapshot()
			fits := simulation.FitsAnyNode(s.Nodes)
			for range 2 { // the second result is cached
				if got := fits(clustertest.Find(t, s, "x-0")); got != test.want {
					t.Errorf("%t, want %t", got, test.want)
				}
			}
		})
	}
}
