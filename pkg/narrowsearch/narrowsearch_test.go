package narrowsearch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/narrowsearch"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// stockProfile implements the method of a profile that Enable uses.
type stockProfile struct {
	framework.Framework
	percentage *int32
}

func (p stockProfile) PercentageOfNodesToScore() *int32 { return p.percentage }

// TestEnable checks that a second search runs if and only if the first one was narrow and
// found no feasible node. The result of the last search is returned.
func TestEnable(t *testing.T) {
	refusedBy := func(plugin string) error {
		return &framework.FitError{Pod: &v1.Pod{}, Diagnosis: framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus(), UnschedulablePlugins: sets.New(plugin)}}
	}
	unfit, refused, outage := refusedBy(replicasafety.Name), refusedBy("Coscheduling"), errors.New("outage")
	type search struct {
		narrow bool
		err    error
	}
	cases := map[string]struct {
		searches []search
		want     error
	}{
		"found among few":           {[]search{{true, nil}}, nil},
		"found among all":           {[]search{{false, nil}}, nil},
		"none among few, then one":  {[]search{{true, unfit}, {false, nil}}, nil},
		"none at all":               {[]search{{true, unfit}, {false, unfit}}, unfit},
		"none among all":            {[]search{{false, unfit}}, unfit},
		"outage":                    {[]search{{true, outage}}, outage},
		"refused before any search": {[]search{{true, refused}}, refused},
		"none, then an outage":      {[]search{{true, unfit}, {false, outage}}, outage},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			did := 0
			sched := &scheduler.Scheduler{SchedulePod: func(_ context.Context, _ framework.Framework, cycle fwk.CycleState, _ *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
				if did == len(test.searches) {
					t.Fatalf("search %d, want %d", did+1, len(test.searches))
				}
				was := test.searches[did]
				did++
				if was.narrow {
					searchNodes(cycle)
				}
				return scheduler.ScheduleResult{EvaluatedNodes: did}, was.err
			}}
			narrowsearch.Enable(sched, nil)
			result, err := sched.SchedulePod(t.Context(), stockProfile{}, framework.NewCycleState(), nil)
			if !errors.Is(err, test.want) || result.EvaluatedNodes != len(test.searches) {
				t.Errorf("the result is that of search %d with error %v; want %d and %v", result.EvaluatedNodes, err, len(test.searches), test.want)
			}
		})
	}
}

// If percentageOfNodesToScore is set, for all profiles or for one, the search is not narrow.
func TestPercentageOfNodesToScore(t *testing.T) {
	cases := map[string]struct {
		all, one *int32
		want     placement.Scope
	}{
		"not set":              {nil, nil, placement.FewNodes},
		"zero means not set":   {ptr.To[int32](0), nil, placement.FewNodes},
		"set for all":          {ptr.To[int32](100), nil, placement.AllNodes},
		"set for the profile":  {nil, ptr.To[int32](5), placement.AllNodes},
		"zero for the profile": {ptr.To[int32](100), ptr.To[int32](0), placement.FewNodes},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			sched := &scheduler.Scheduler{SchedulePod: func(_ context.Context, _ framework.Framework, cycle fwk.CycleState, _ *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
				if got := searchNodes(cycle); got != test.want {
					t.Errorf("the search covers %q nodes, want %q", got, test.want)
				}
				return scheduler.ScheduleResult{}, nil
			}}
			narrowsearch.Enable(sched, test.all)
			if _, err := sched.SchedulePod(t.Context(), stockProfile{percentage: test.one}, framework.NewCycleState(), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// searchNodes simulates ReplicaSafety in a search of a cluster with 200 nodes.
func searchNodes(cycle fwk.CycleState) placement.Scope {
	nodes := make([]fwk.NodeInfo, 200)
	for i := range nodes {
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)},
			Status:     v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("110")}},
		})
		nodes[i] = info
	}
	counter := placement.NewCounter(&node.Reader{Policy: &decision.Policy{}})
	counter.Update(nodes, time.Now())
	state := placement.NewState(&workload.Subject{}, decision.WorkloadSettings{}, decision.WaitTime{}, counter)
	state.Pod = &v1.Pod{}
	_, scope := state.Search(cycle)
	return scope
}
