package node_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node/nodetest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Every way in which a node is removed, observed at every state or only at the first and the last.
// The scheduler and the controller have their own tests of the same removals.
func TestRemovals(t *testing.T) {
	reader := &node.Reader{Signals: providers.Signals()}
	for name, removal := range nodetest.Removals(at) {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
		states := removal.States(n, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
		for how, looks := range removal.Observations(states) {
			t.Run(name+", "+how, func(t *testing.T) {
				var loss node.LossDetector
				losses := 0
				for i, state := range states {
					now := at.Add(time.Duration(i) * time.Second)
					if i > 0 {
						before := states[i-1].Node
						event, ok := reader.DeletionEvent(before, now)
						if state.Node != nil {
							event, ok = reader.UpdateEvent(before, state.Node, now)
						}
						if ok {
							loss.Record(event)
						}
					}
					switch {
					case !slices.Contains(looks, i):
					case state.Node == nil:
						if loss.ObserveDeletion(now) {
							losses++
						}
					default:
						occupied := false
						for _, pod := range state.Pods {
							occupied = occupied || workload.Occupies(pod, state.Node)
						}
						change, _ := loss.Observe(state.Node, reader.Disruption(state.Node, now), occupied, now)
						losses += change
					}
				}
				want := removal.WantLost || removal.Doubtful && how != "every state"
				if got := losses > 0; got != want || losses > 1 {
					t.Errorf("counted as lost %d times, want lost: %t", losses, want)
				}
			})
		}
	}
}

// A drained node that disappears counts as lost within the longest notice. A node that an operator
// cordoned and drained does not.
func TestEmptiedNode(t *testing.T) {
	cases := map[string]struct {
		disruption node.Disruption
		cordoned   bool
		after      time.Duration
		want       bool
	}{
		"deleted in time":          {node.DeletedFirst, false, 5 * time.Minute, true},
		"deleted late":             {node.DeletedFirst, false, 5*time.Minute + 1, false},
		"cordoned and deleted":     {node.DeletedFirst, true, 0, false},
		"unreachable in time":      {node.Unreachable, false, 5 * time.Minute, true},
		"unreachable late":         {node.Unreachable, false, 5*time.Minute + 1, false},
		"reclaimed late":           {node.Reclaimed, false, time.Hour, true},
		"reclaimed and cordoned":   {node.Reclaimed, true, time.Hour, true},
		"removed by an autoscaler": {node.Voluntary, false, 0, false},
		"no signal":                {node.NotDisrupted, false, 0, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var loss node.LossDetector
			loss.Observe(&v1.Node{}, node.NotDisrupted, true, at.Add(-time.Minute))
			loss.Observe(&v1.Node{}, node.NotDisrupted, false, at)
			loss.Record(node.Event{Disruption: test.disruption, Cordoned: test.cordoned})
			if got := loss.ObserveDeletion(at.Add(test.after)); got != test.want {
				t.Errorf("ObserveDeletion = %t, want %t", got, test.want)
			}
		})
	}
}

// A node whose notice was withdrawn is no longer Lost. If the node is interrupted again, it is Lost
// again, but Observe and ObserveDeletion report only the first loss.
func TestWithdrawnNotice(t *testing.T) {
	var loss node.LossDetector
	observe := func(disruption node.Disruption, occupied bool, now time.Time) func() bool {
		return func() bool {
			change, _ := loss.Observe(&v1.Node{}, disruption, occupied, now)
			return change > 0
		}
	}
	type result struct{ first, lost bool }
	for i, step := range []struct {
		act  func() bool
		want result
	}{
		{observe(node.NotDisrupted, true, at), result{false, false}},
		{observe(node.Reclaimed, true, at), result{true, true}},
		{observe(node.Reclaimed, false, at.Add(time.Hour)), result{false, true}},
		{observe(node.NotDisrupted, true, at), result{false, false}},
		{observe(node.Voluntary, true, at), result{false, false}},
		{observe(node.NotDisrupted, true, at), result{false, false}},
		{func() bool { return loss.ObserveDeletion(at) }, result{false, true}},
	} {
		if got := (result{step.act(), loss.Lost()}); got != step.want {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
}

// A cordoned node whose kubelet is silent counts as lost. The loss is withdrawn if the same Node is
// ready again in time, and then the Node may be lost once more.
func TestReboot(t *testing.T) {
	const minute = time.Minute
	type step struct {
		after      time.Duration
		kubelet    v1.ConditionStatus
		cordoned   bool
		disruption node.Disruption
		want       int
	}
	ready := func(after time.Duration, cordoned bool, want int) step {
		return step{after, v1.ConditionTrue, cordoned, node.NotDisrupted, want}
	}
	silent := func(after time.Duration, cordoned bool, want int) step {
		return step{after, v1.ConditionUnknown, cordoned, node.Unreachable, want}
	}
	// The kubelet reports that the node shuts down, as a drain or as a reclaim.
	ends := func(after time.Duration, disruption node.Disruption, want int) step {
		return step{after, v1.ConditionFalse, true, disruption, want}
	}
	for name, test := range map[string]struct {
		steps []step
		gone  bool // it is deleted with pods then
	}{
		"cordoned before":                   {steps: []step{ready(0, true, 0), silent(minute, true, 1), silent(2*minute, true, 0), ready(3*minute, true, -1)}},
		"uncordoned when it returns":        {steps: []step{ready(0, true, 0), silent(minute, true, 1), ready(3*minute, false, -1)}},
		"ready again at the last moment":    {steps: []step{ready(0, true, 0), silent(minute, true, 1), ready(11*minute, true, -1)}},
		"ready again too late":              {steps: []step{ready(0, true, 0), silent(minute, true, 1), ready(11*minute+1, true, 0)}},
		"two reboots":                       {steps: []step{ready(0, true, 0), silent(minute, true, 1), ready(2*minute, true, -1), silent(3*minute, true, 1), ready(4*minute, true, -1)}},
		"lost after a reboot":               {steps: []step{ready(0, true, 0), silent(minute, true, 1), ready(2*minute, false, -1), silent(3*minute, false, 1), ready(4*minute, false, 0)}},
		"deleted after a reboot":            {steps: []step{ready(0, true, 0), silent(minute, true, 1), ready(2*minute, true, -1)}, gone: true},
		"cordoned too late":                 {steps: []step{ready(0, false, 0), silent(minute, true, 1), ready(2*minute, true, 0)}},
		"not cordoned":                      {steps: []step{ready(0, false, 0), silent(minute, false, 1), ready(2*minute, false, 0)}},
		"cordoned at the first observation": {steps: []step{silent(0, true, 1), ready(minute, true, -1)}},
		"lost before":                       {steps: []step{{0, v1.ConditionTrue, false, node.Reclaimed, 1}, ready(minute, true, 0), silent(2*minute, true, 0), ready(3*minute, true, 0)}},
		"cordoned with a reclaim signal":    {steps: []step{{0, v1.ConditionTrue, true, node.Reclaimed, 1}, silent(minute, true, 0), ready(2*minute, true, 0)}},
		"still unreachable by its Lease": {steps: []step{ready(0, true, 0), {minute, v1.ConditionTrue, true, node.Unreachable, 1},
			{2 * minute, v1.ConditionTrue, true, node.Unreachable, 0}, ready(3*minute, true, -1)}},
		"graceful shutdown, a drain":   {steps: []step{ready(0, true, 0), ends(minute, node.Voluntary, 0), silent(2*minute, true, 1), ready(3*minute, true, -1)}},
		"graceful shutdown, a reclaim": {steps: []step{ready(0, true, 0), ends(minute, node.Reclaimed, 1), silent(2*minute, true, 0), ready(3*minute, true, -1)}},
	} {
		t.Run(name, func(t *testing.T) {
			var loss node.LossDetector
			var counted time.Time
			for i, step := range test.steps {
				now := at.Add(step.after)
				n := &v1.Node{Spec: v1.NodeSpec{Unschedulable: step.cordoned}}
				n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: step.kubelet}}
				change, since := loss.Observe(n, step.disruption, true, now)
				if change != step.want || change < 0 && (!since.Equal(counted) || loss.Lost()) {
					t.Errorf("step %d: %d losses, counted at %s, lost: %t; want %d, counted at %s", i, change, since, loss.Lost(), step.want, counted)
				}
				if change > 0 {
					counted = since
				}
			}
			if test.gone && (!loss.ObserveDeletion(at.Add(time.Hour)) || !loss.Lost()) {
				t.Error("its deletion does not count as a loss")
			}
		})
	}
}

// The controller's own taint is not a notice of the cloud. Every other taint with the same key is.
func TestOwnMark(t *testing.T) {
	taint := v1.Taint{Key: spot.InterruptionTaint, Value: "x", Effect: v1.TaintEffectNoSchedule}
	unreachable, soft, evicting, empty := taint, taint, taint, taint
	unreachable.Value, soft.Effect, evicting.Effect, empty.Value = node.UnreachableReason, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute, ""
	for name, test := range map[string]struct {
		state  string
		taints []v1.Taint

		wantSignal     decision.SignalClass
		wantDisruption node.Disruption
	}{
		"advisory":                            {`{"class":"advisory","taint":"x"}`, []v1.Taint{soft}, decision.Advisory, node.NotDisrupted},
		"advisory, of an earlier version":     {`{"class":"advisory","taint":"x"}`, []v1.Taint{taint}, decision.Advisory, node.NotDisrupted},
		"drain":                               {`{"class":"drain","taint":"x"}`, []v1.Taint{taint}, decision.Drain, node.NotDisrupted},
		"reclaim":                             {`{"class":"reclaim","taint":"x"}`, []v1.Taint{taint}, decision.Reclaim, node.NotDisrupted},
		"unreachable":                         {`{"class":"reclaim","taint":"not-ready"}`, []v1.Taint{unreachable}, decision.Reclaim, node.Unreachable},
		"reachable again":                     {`{"class":"reclaim","taint":"not-ready"}`, nil, decision.NoSignal, node.NotDisrupted},
		"unreachable, taint of another actor": {``, []v1.Taint{unreachable}, decision.Reclaim, node.Reclaimed},
		"taint of another actor":              {`{"class":"advisory","taint":"y"}`, []v1.Taint{taint}, decision.Reclaim, node.Reclaimed},
		"soft taint of another actor":         {`{"class":"advisory","taint":"y"}`, []v1.Taint{soft}, decision.Reclaim, node.Reclaimed},
		"another effect":                      {`{"class":"advisory","taint":"x"}`, []v1.Taint{evicting}, decision.Reclaim, node.Reclaimed},
		"two taints":                          {`{"class":"advisory","taint":"x"}`, []v1.Taint{soft, evicting}, decision.Reclaim, node.Reclaimed},
		"the taint is missing":                {`{"class":"advisory","taint":"x"}`, nil, decision.NoSignal, node.NotDisrupted},
		"no taint of its own":                 {`{"class":"advisory"}`, []v1.Taint{empty}, decision.Reclaim, node.Reclaimed},
		"does not parse":                      {`{`, []v1.Taint{taint}, decision.Reclaim, node.Reclaimed},
	} {
		t.Run(name, func(t *testing.T) {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{spot.InterruptionStateAnnotation: test.state}}}
			n.Spec.Taints = test.taints
			reader := &node.Reader{Policy: &decision.Policy{}, Signals: providers.Signals()}
			if got, _ := reader.Read(n, at); got.Signal != test.wantSignal {
				t.Errorf("Signal = %s, want %s", got.Signal, test.wantSignal)
			}
			if got := reader.Disruption(n, at); got != test.wantDisruption {
				t.Errorf("Disruption = %d, want %d", got, test.wantDisruption)
			}
		})
	}
}

// The list of events is bounded and retains the latest event.
func TestNodeEventsAreBounded(t *testing.T) {
	const limit = 10_000
	var events node.Events
	for range 3 * limit {
		events.Add(node.Event{Name: "old"})
	}
	events.Add(node.Event{Name: "latest"})
	list := events.Take()
	if len(list) > limit || list[len(list)-1].Name != "latest" || len(events.Take()) > 0 {
		t.Errorf("%d events, the last of %s; want at most %d, the last of latest, and none afterwards", len(list), list[len(list)-1].Name, limit)
	}
}

// If a Node was deleted and recreated while the watch was interrupted, the event describes the last
// state of the old Node.
func TestNodeRecreated(t *testing.T) {
	reader := &node.Reader{Signals: providers.Signals()}
	before := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "old"}}
	after := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "new", DeletionTimestamp: &metav1.Time{Time: at}}}
	if event, ok := reader.UpdateEvent(before, after, at); ok {
		t.Errorf("event %+v, want none", event)
	}
	before.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/disrupted"}}
	if event, ok := reader.UpdateEvent(before, after, at); !ok || event != (node.Event{Name: "n", UID: "old", Disruption: node.Voluntary}) {
		t.Errorf("event %+v, %t; want a Voluntary disruption of the old Node", event, ok)
	}
}
