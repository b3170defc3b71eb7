package round

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// A signal that only spot nodes get, on a node that no label marks as spot, is reported once. It is
// reported again if it vanished meanwhile, or if its effect changes.
func TestSpotNotices(t *testing.T) {
	recorder := events.NewFakeRecorder(9)
	d := defects{recorder: recorder}
	for i, step := range []struct {
		taint    string
		capacity decision.Capacity
		want     string // a part of the event; "" for none
	}{
		{"", decision.Capacity{Source: decision.FromDefault}, ""},
		{"aws-node-termination-handler/spot-itn", decision.Capacity{Type: decision.Spot, Source: decision.FromSignal}, "counts as spot (signal)"},
		{"aws-node-termination-handler/spot-itn", decision.Capacity{Type: decision.Spot, Source: decision.FromSignal}, ""},
		{"aws-node-termination-handler/spot-itn", decision.Capacity{Source: decision.FromLabel}, "counts as on-demand"},
		{"aws-node-termination-handler/spot-itn", decision.Capacity{Source: decision.FromLabel}, ""},
		{"aws-node-termination-handler/spot-itn", decision.Capacity{Type: decision.Spot, Source: decision.FromLabel}, ""},
		{"aws-node-termination-handler/spot-itn", decision.Capacity{Source: decision.FromAlias}, "counts as on-demand"},
		{"aws-node-termination-handler/asg-lifecycle-termination", decision.Capacity{Source: decision.FromAlias}, ""},
	} {
		n := clustertest.NewNode("n", "", "m/a")
		if step.taint != "" {
			n.Spec.Taints = []v1.Taint{{Key: step.taint, Effect: v1.TaintEffectNoSchedule}}
		}
		s := &snapshot.Snapshot{Nodes: []*snapshot.Node{{Node: n, Facts: decision.Node{Capacity: step.capacity}}}}
		d.observe(s, providers.Signals(), nil)
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if (got != "") != (step.want != "") || !strings.Contains(got, step.want) || got != "" && !strings.HasPrefix(got, "Warning UnexpectedSpotNotice ") {
			t.Errorf("step %d: event %q, want %q", i, got, step.want)
		}
	}
}
