package simulation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

func TestDemand(t *testing.T) {
	const nodes = "node a on-demand m/x\nnode b on-demand m/x\nnode c on-demand m/y\n"
	cases := map[string]struct {
		cluster string
		// places and moves contain words POD>NODE, or POD> for no node. The Demand is that of
		// web-0.
		places, then string
		// want contains the nodes that accept the pod.
		want string
	}{
		"any node":                      {nodes + "deployment web 1 -", "", "", "a b c"},
		"requests do not matter":        {nodes + "deployment web 1 - cpu=99", "", "", "a b c"},
		"in the zone of its volume":     {nodes + "statefulset web 1 - volume=y", "", "", "c"},
		"node selector":                 {nodes + "deployment web 1 - zone=x", "", "", "a b"},
		"only open nodes":               {nodes + "node d on-demand m/y cordoned\nnode e on-demand m/y notready\ndeployment web 1 -", "", "", "a b c"},
		"a taint":                       {nodes + "node d on-demand m/y taint=k\ndeployment web 1 -", "", "", "a b c"},
		"a taint, tolerated":            {nodes + "node d on-demand m/y taint=k\ndeployment web 1 - tolerates=k", "", "", "a b c d"},
		"a port":                        {nodes + "deployment web 2 - a port=80", "", "", "b c"},
		"a port that is released":       {nodes + "deployment web 3 - a b port=80", "web-1>", "web-2>c", "a b"},
		"a port of a pod that moves in": {nodes + "deployment web 2 - - port=80", "web-1>c", "", "a b"},

		"anti-affinity":                              {nodes + "deployment web 2 - a anti=kubernetes.io/hostname", "", "", "b c"},
		"anti-affinity by zone":                      {nodes + "deployment web 2 - a anti=topology.kubernetes.io/zone", "", "", "c"},
		"anti-affinity, a pod is removed":            {nodes + "deployment web 2 - a anti=topology.kubernetes.io/zone", "web-1>", "", "a b c"},
		"anti-affinity, a pod would be removed":      {nodes + "deployment web 2 - a anti=topology.kubernetes.io/zone", "", "web-1>", "a b c"},
		"anti-affinity, a pod moves within the zone": {nodes + "deployment web 2 - a anti=topology.kubernetes.io/zone", "", "web-1>b", "c"},
		"anti-affinity, a pod moves in":              {nodes + "deployment web 2 - - anti=topology.kubernetes.io/zone", "web-1>c", "", "a b"},
		"affinity":                                   {nodes + "deployment app 1 a\ndeployment web 1 - near=app/kubernetes.io/hostname", "", "", "a"},
		"affinity to a pod that moves":               {nodes + "deployment app 1 a\ndeployment web 1 - near=app/kubernetes.io/hostname", "", "app-0>c", "c"},
		"spread":                                     {nodes + "deployment web 2 - c spread=topology.kubernetes.io/zone", "", "", "a b"},
		"spread, a pod is removed":                   {nodes + "deployment web 2 - c spread=topology.kubernetes.io/zone", "web-1>", "", "a b c"},
		"spread, another pod moves":                  {nodes + "deployment web 3 - a c spread=topology.kubernetes.io/zone", "", "web-1>c", "a b"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			s := w.Snapshot()
			read := func(words string) map[*snapshot.Pod]*snapshot.Node {
				places := map[*snapshot.Pod]*snapshot.Node{}
				for _, word := range strings.Fields(words) {
					pod, to, _ := strings.Cut(word, ">")
					p := clustertest.Find(t, s, pod)
					places[p] = nil
					for _, node := range s.Nodes {
						if node.Name == to {
							places[p] = node
						}
					}
				}
				return places
			}
			demand := simulation.NewDemand(s, clustertest.Find(t, s, "web-0"), read(test.places))
			// The second round proves that the first leaves no traces.
			for range 2 {
				var got []string
				for _, node := range s.Nodes {
					if demand.Fits(node, read(test.then)) {
						got = append(got, node.Name)
					}
				}
				if diff := cmp.Diff(strings.Fields(test.want), got); diff != "" {
					t.Errorf("nodes (-want +got):\n%s", diff)
				}
			}
		})
	}
}
