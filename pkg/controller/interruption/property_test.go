package interruption_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// write applies a mark as the API server does.
func write(node *v1.Node, m interruption.Mark) *v1.Node {
	node = node.DeepCopy()
	if m.Taints != nil {
		node.Spec.Taints = slices.Clone(m.Taints)
	}
	for key, value := range m.Annotations {
		if value == nil {
			delete(node.Annotations, key)
		} else {
			node.Annotations[key] = *value
		}
	}
	return node
}

// olderThanAllSignals reports whether a deadline is before the start of every signal in the node's
// state.
func olderThanAllSignals(node *v1.Node, deadline time.Time) bool {
	var state struct {
		Starts map[string]time.Time `json:"starts"`
	}
	if json.Unmarshal([]byte(node.Annotations[spot.InterruptionStateAnnotation]), &state) != nil {
		return false
	}
	for _, start := range state.Starts {
		if !deadline.Before(start) {
			return false
		}
	}
	return len(state.Starts) > 0
}

// TestAnyHistoryOfANode checks random histories of a node. Each change is written once, and the
// fields of other clients stay unchanged. A deadline never moves to a later time, unless it is
// older than every signal. No two taints have the same key and effect. After all signals are
// withdrawn, no mark of the controller remains.
func TestAnyHistoryOfANode(t *testing.T) {
	keys := []string{awsReclaim, awsAdvisory, maintenance, "cloud.google.com/impending-node-termination", "karpenter.sh/disrupted", "example.com/dedicated"}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.pods[0].Workload.KeepsScheduler = rapid.Bool().Draw(rt, "keeps its scheduler")
		byHand := false
		step := func() {
			before := w.node
			text, existed := before.Annotations[spot.InterruptionDeadlineAnnotation]
			marks, moves, _ := interruption.Plan(w.snapshot(), w.settings)
			for _, m := range marks {
				w.node = write(w.node, m)
			}
			if again, _, _ := interruption.Plan(w.snapshot(), w.settings); len(again) > 0 {
				rt.Fatalf("a second plan contains another mark: %+v", again)
			}
			if diff := cmp.Diff(foreign(before), foreign(w.node)); diff != "" {
				rt.Fatalf("taints of others (-before +after):\n%s", diff)
			}
			if byHand && !slices.ContainsFunc(w.node.Spec.Taints, func(t v1.Taint) bool { return t.Key == own && t.Value == "by-hand" }) {
				rt.Fatal("a taint that was set by hand is gone")
			}
			unique := map[string]bool{}
			for _, taint := range w.node.Spec.Taints {
				if id := taint.Key + string(taint.Effect); unique[id] {
					rt.Fatalf("two taints %s", id)
				} else {
					unique[id] = true
				}
			}
			if at, err := time.Parse(time.RFC3339, text); existed && err == nil && !olderThanAllSignals(w.node, at) {
				for _, m := range moves {
					if m.Deadline.After(at) {
						rt.Fatalf("deadline %s after the previous one, %s", m.Deadline, text)
					}
				}
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 8).Draw(rt, "what") {
			case 0, 1:
				key := rapid.SampledFrom(keys).Draw(rt, "key")
				w.untaint(key)
				w.taint(key, "x", at(time.Duration(rapid.IntRange(-200, 200).Draw(rt, "added"))*time.Second))
			case 2:
				w.untaint(rapid.SampledFrom(keys).Draw(rt, "key"))
			case 3:
				w.untaint(own)
				w.taint(own, "by-hand", nil)
				byHand = true
			case 4:
				w.untaint(own)
				byHand = false
			case 5:
				w.node = w.node.DeepCopy()
				w.annotate(spot.InterruptionDeadlineAnnotation, rapid.SampledFrom([]string{"soon", deadline(time.Minute), deadline(time.Hour)}).Draw(rt, "deadline"))
			case 6:
				w.node = w.node.DeepCopy()
				w.ready(rapid.SampledFrom([]v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown}).Draw(rt, "ready"))
			case 7:
				w.node = w.node.DeepCopy()
				w.annotate(spot.InterruptionStateAnnotation, rapid.SampledFrom([]string{"", "{", `{"taint":5}`}).Draw(rt, "state"))
			case 8:
				w.node = w.node.DeepCopy()
				w.node.Status.Conditions = append(w.node.Status.Conditions, v1.NodeCondition{Type: "DrainInProgress", Status: v1.ConditionTrue})
			}
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 600).Draw(rt, "later")) * time.Second)
			step()
		}
		for _, key := range append(keys, own) {
			w.untaint(key)
		}
		byHand = false
		w.ready(v1.ConditionTrue)
		step()
		w.now = w.now.Add(3 * time.Hour) // the longest pause
		step()
		if text, ok := w.node.Annotations[spot.InterruptionStateAnnotation]; ok {
			rt.Fatalf("state %s remains", text)
		}
		if len(w.node.Spec.Taints) > 0 {
			rt.Fatalf("taints remain: %v", w.node.Spec.Taints)
		}
	})
}

// Later versions read the state on nodes, so the names of its JSON fields must not change.
func TestStateOnTheNode(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		want   map[string]any
	}{
		"reclaim": {func(w *world) { w.taint(awsReclaim, "x", at(-20*time.Second)) }, map[string]any{
			"class": "reclaim", "taint": "spot-itn", "deadline": deadline(100 * time.Second),
			"starts": map[string]any{"taint " + awsReclaim: deadline(-20 * time.Second)},
		}},
		"reclaim, with a start in the future": {func(w *world) { w.taint(awsReclaim, "x", at(20*time.Second)) }, map[string]any{
			"class": "reclaim", "taint": "spot-itn", "deadline": deadline(2 * time.Minute),
			"starts":       map[string]any{"taint " + awsReclaim: deadline(0)},
			"futureStarts": map[string]any{"taint " + awsReclaim: deadline(20 * time.Second)},
		}},
		"advisory": {func(w *world) { w.taint(awsAdvisory, "x", nil) }, map[string]any{
			"class": "advisory", "taint": "rebalance-recommendation", "advisorySince": deadline(0),
		}},
		"drain": {func(w *world) {
			w.settings.Drain.Assist = true
			w.taint("karpenter.sh/disrupted", "", nil)
			w.pods[0].Release = &snapshot.Release{Reason: string(migration.Drain)}
		}, map[string]any{"released": []any{"web-0-uid"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w)
			w.round(0)
			var got any
			if err := json.Unmarshal([]byte(w.node.Annotations[spot.InterruptionStateAnnotation]), &got); err != nil {
				t.Fatal(err)
			}
			clustertest.Equal(t, "state", any(test.want), got)
		})
	}
}
