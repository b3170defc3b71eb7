package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// profile has the part of a profile that is read here.
type profile struct{ framework.Framework }

func (profile) PercentageOfNodesToScore() *int32 { return nil }

// TestSearchNarrowly: there is a second search if, and only if, the first one looked at few nodes and found none that fits; what it brings
// is the result.
func TestSearchNarrowly(t *testing.T) {
	unfit, outage := &framework.FitError{}, errors.New("outage")
	type search struct {
		narrow bool
		err    error
	}
	cases := map[string]struct {
		searches []search
		want     error
	}{
		"found among few":          {[]search{{true, nil}}, nil},
		"found among all":          {[]search{{false, nil}}, nil},
		"none among few, then one": {[]search{{true, unfit}, {false, nil}}, nil},
		"none at all":              {[]search{{true, unfit}, {false, unfit}}, unfit},
		"none among all":           {[]search{{false, unfit}}, unfit},
		"outage":                   {[]search{{true, outage}}, outage},
		"none, then an outage":     {[]search{{true, unfit}, {false, outage}}, outage},
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
					markNarrow(t, cycle)
				}
				return scheduler.ScheduleResult{EvaluatedNodes: did}, was.err
			}}
			searchNarrowly(sched, nil)
			result, err := sched.SchedulePod(t.Context(), profile{}, framework.NewCycleState(), nil)
			if !errors.Is(err, test.want) || result.EvaluatedNodes != len(test.searches) {
				t.Errorf("the result is that of search %d with error %v; want %d and %v", result.EvaluatedNodes, err, len(test.searches), test.want)
			}
		})
	}
}

// markNarrow has ReplicaSafety's part of a search look at few nodes, as in a cluster of 200.
func markNarrow(t *testing.T, cycle fwk.CycleState) {
	nodes := make([]fwk.NodeInfo, 200)
	for i := range nodes {
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)},
			Status:     v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("110")}},
		})
		nodes[i] = info
	}
	counter := placement.NewCounter(&kube.NodeReader{Policy: &decision.Policy{}})
	counter.Update(nodes, time.Now())
	state := placement.NewState(&kube.Subject{}, decision.Settings{}, decision.Waiting{}, counter)
	if _, scope := state.Search(klog.Background(), cycle, &v1.Pod{}); scope != placement.FewNodes {
		t.Fatalf("the search looks at %q nodes, want few", scope)
	}
}
