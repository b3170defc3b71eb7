package node

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// announcements returns the announcements on a node at now, without their signals.
func announcements(r *Reader, node *v1.Node, capacity decision.CapacityType) []Announcement {
	all := r.Announcements(node, capacity, now)
	for i := range all {
		if s := all[i].Signal; s != nil && s.String() != all[i].Name {
			all[i].Name += " with signal " + s.String()
		}
		all[i].Signal = nil
	}
	return all
}

func TestAnnounced(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	cases := map[string]struct {
		node     func(*v1.Node)
		capacity decision.CapacityType
		want     []Announcement
	}{
		"nothing": {func(*v1.Node) {}, decision.Spot, nil},
		"a taint": {withTaint("aws-node-termination-handler/spot-itn", "x"), decision.Spot,
			[]Announcement{{Name: "taint aws-node-termination-handler/spot-itn", Class: decision.Reclaim, Notice: 2 * time.Minute, Timed: true}}},
		"a taint with its time": {func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/disrupted", TimeAdded: &metav1.Time{Time: ago(time.Minute)}}}
		}, decision.OnDemand, []Announcement{{Name: "taint karpenter.sh/disrupted", Class: decision.Drain, Since: ago(time.Minute)}}},
		"a condition": {withCondition("InstanceExpired", v1.ConditionTrue, ago(time.Second)), decision.Spot,
			[]Announcement{{Name: "condition InstanceExpired=True", Class: decision.Reclaim, Since: ago(time.Second), Notice: 5 * time.Minute, Timed: true}}},
		"a label": {withLabel("autoscaling.cast.ai/draining", "spot-prediction"), decision.Spot,
			[]Announcement{{Name: "label autoscaling.cast.ai/draining=spot-prediction", Class: decision.Drain}}},
		"several signals, in the order of the table, then deletion and unreachable kubelet": {func(n *v1.Node) {
			n.DeletionTimestamp = &metav1.Time{Time: ago(time.Second)}
			withCondition(v1.NodeReady, v1.ConditionUnknown, ago(time.Minute))(n)
			withTaint("karpenter.sh/disrupted", "")(n)
			withTaint(spot.InterruptionTaint, "by-hand")(n)
		}, decision.Spot, []Announcement{
			{Name: "taint " + spot.InterruptionTaint, Class: decision.Reclaim},
			{Name: "taint karpenter.sh/disrupted", Class: decision.Drain},
			{Name: Deletion, Class: decision.Drain, Since: ago(time.Second)},
			{Name: UnreachableKubelet, Class: decision.Reclaim, Since: ago(50 * time.Second), Timed: true},
		}},
		"unreachable, an on-demand node": {withCondition(v1.NodeReady, v1.ConditionUnknown, ago(time.Hour)), decision.OnDemand, nil},
		"unreachable for 9 s":            {withCondition(v1.NodeReady, v1.ConditionUnknown, ago(9*time.Second)), decision.Spot, nil},
		"unreachable for 10 s": {withCondition(v1.NodeReady, v1.ConditionUnknown, ago(10*time.Second)), decision.Spot,
			[]Announcement{{Name: UnreachableKubelet, Class: decision.Reclaim, Since: now, Timed: true}}},
	}
	reader := &Reader{Signals: providers.Signals(), NotReadyAfter: 10 * time.Second}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(nil)
			test.node(node)
			if diff := cmp.Diff(test.want, announcements(reader, node, test.capacity)); diff != "" {
				t.Errorf("Announced (-want +got):\n%s", diff)
			}
		})
	}
}

// Announced and Read return the same class for any combination of signals.
func TestAnnouncedAgreesWithRead(t *testing.T) {
	reader := &Reader{Policy: builtin, Signals: providers.Signals(), NotReadyAfter: time.Minute}
	rapid.Check(t, func(t *rapid.T) {
		node := nodeWith(maps.Clone(rapid.SampledFrom([]map[string]string{spotNodeLabels, onDemandLabels}).Draw(t, "labels")))
		for _, s := range rapid.SliceOfN(rapid.SampledFrom(reader.Signals), 0, 3).Draw(t, "signals") {
			switch s.Kind {
			case providers.TaintSignal:
				withTaint(s.Key, s.Value)(node)
			case providers.ConditionSignal:
				withCondition(v1.NodeConditionType(s.Key), v1.ConditionStatus(s.Value), now)(node)
				node.Status.Conditions[len(node.Status.Conditions)-1].Message = s.Mentions
			case providers.LabelSignal:
				withLabel(s.Key, s.Value)(node)
			}
		}
		if rapid.Bool().Draw(t, "deleted") {
			node.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if rapid.Bool().Draw(t, "unreachable") {
			withCondition(v1.NodeReady, v1.ConditionUnknown, now.Add(-time.Duration(rapid.IntRange(50, 70).Draw(t, "for"))*time.Second))(node)
		}
		facts, _ := reader.Read(node, now)
		class := decision.NoSignal
		for _, a := range reader.Announcements(node, facts.Capacity.Type, now) {
			class = max(class, a.Class)
		}
		if class != facts.Signal {
			t.Fatalf("largest class of Announced = %s, Signal of Read = %s", class, facts.Signal)
		}
	})
}
