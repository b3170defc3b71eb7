package interruption_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// TestDrain checks which nodes count as draining, and for which pods a move is requested. Pods that
// the draining client does not evict are moved only if the time at which the node is terminated is
// known, and by that time.
func TestDrain(t *testing.T) {
	const both = "web-0 drain, web-1 drain"
	const karpenter, autoscaler = "karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"
	const protects, terminates = "karpenter.sh/do-not-disrupt", "karpenter.sh/nodeclaim-termination-timestamp"
	protect := func(value string) func(*world) {
		return func(w *world) {
			w.pods[0].Annotations = map[string]string{protects: value}
			w.pods[0].Status.StartTime = at(-time.Minute)
		}
	}
	tolerate := func(key string) func(*world) {
		return func(w *world) {
			w.pods[0].Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}}
		}
	}
	inAnHour := start.Add(time.Hour).UTC().Format(time.RFC3339)
	for name, test := range map[string]struct {
		pod, node func(*world)
		taint     string
		want      string
	}{
		"nothing":                      {},
		"Karpenter":                    {taint: karpenter, want: both},
		"the cluster autoscaler":       {taint: autoscaler, want: both},
		"being deleted":                {node: func(w *world) { w.node.DeletionTimestamp, w.node.Finalizers = at(0), []string{"x"} }, want: both},
		"cordoned":                     {node: func(w *world) { w.node.Spec.Unschedulable = true }},
		"cordoned, and Cordons is set": {node: func(w *world) { w.settings.Drain.Cordons = true; w.node.Spec.Unschedulable = true }, want: both},
		"no assistance":                {taint: karpenter, node: func(w *world) { w.settings.Drain.Assist = false }},
		"cordoned, no assistance": {node: func(w *world) {
			w.settings.Drain.Assist = false
			w.settings.Drain.Cordons = true
			w.node.Spec.Unschedulable = true
		}},
		"another namespace": {taint: karpenter, node: func(w *world) { w.settings.Selects = func(string) bool { return false } }},
		"terminating":       {taint: karpenter, pod: func(w *world) { w.pods[0].DeletionTimestamp = &metav1.Time{Time: start} }, want: "web-1 drain"},
		"reclaimed as well": {taint: karpenter, node: func(w *world) { w.taint(own, "by-hand", nil) }, want: "web-0 interruption +120, web-1 interruption +120"},

		"protected":            {pod: protect("true"), taint: karpenter, want: "web-1 drain"},
		"protected for longer": {pod: protect("2m"), taint: karpenter, want: "web-1 drain"},
		"no longer protected":  {pod: protect("1m"), taint: karpenter, want: both},
		"not protected":        {pod: protect("false"), taint: karpenter, want: both},
		"an annotation of another client": {pod: func(w *world) {
			w.pods[0].Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
		}, taint: karpenter, want: both},
		"protected from another client":                          {pod: protect("true"), taint: autoscaler, want: both},
		"protected from one of two":                              {pod: protect("true"), taint: karpenter, node: func(w *world) { w.taint(autoscaler, "1", nil) }, want: both},
		"protected, and also cordoned":                           {pod: protect("true"), taint: karpenter, node: func(w *world) { w.settings.Drain.Cordons = true; w.node.Spec.Unschedulable = true }, want: both},
		"protected, the taint is missing yet":                    {pod: protect("true"), node: func(w *world) { w.node.DeletionTimestamp, w.node.Finalizers = at(0), []string{"x"} }, want: "web-1 drain"},
		"tolerates the taint":                                    {pod: tolerate(karpenter), taint: karpenter, want: "web-1 drain"},
		"tolerates every taint":                                  {pod: tolerate(""), taint: karpenter, want: "web-1 drain"},
		"tolerates another taint":                                {pod: tolerate(autoscaler), taint: karpenter, want: both},
		"tolerates a taint of a client that evicts nevertheless": {pod: tolerate(autoscaler), taint: autoscaler, want: both},
		"terminated in an hour": {pod: protect("true"), taint: karpenter, node: func(w *world) { w.annotate(terminates, inAnHour) },
			want: "web-0 drain +3600, web-1 drain"},
		"tolerates the taint, terminated in an hour": {pod: tolerate(karpenter), taint: karpenter, node: func(w *world) { w.annotate(terminates, inAnHour) },
			want: "web-0 drain +3600, web-1 drain"},
		"terminated at an unknown time": {pod: protect("true"), taint: karpenter, node: func(w *world) { w.annotate(terminates, "soon") }, want: "web-1 drain"},
		"the owner of the node is terminated in an hour": {pod: protect("true"), taint: karpenter, node: func(w *world) {
			w.settings.Owner = func(*v1.Node) metav1.Object {
				return &metav1.ObjectMeta{Annotations: map[string]string{terminates: inAnHour}}
			}
		}, want: "web-0 drain +3600, web-1 drain"},
		"terminated in an hour, the owner lacks the annotation": {pod: protect("true"), taint: karpenter, node: func(w *world) {
			w.annotate(terminates, inAnHour)
			w.settings.Owner = func(*v1.Node) metav1.Object { return &metav1.ObjectMeta{} }
		}, want: "web-0 drain +3600, web-1 drain"},
		"terminated, but not drained": {pod: protect("true"), node: func(w *world) { w.annotate(terminates, inAnHour) }},
		"released before it was protected": {pod: func(w *world) {
			protect("true")(w)
			w.pods[0].Release = &snapshot.Release{Reason: string(migration.Drain), At: w.now}
		}, taint: karpenter, want: both},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settings.Drain.Assist = true
			if test.pod != nil {
				test.pod(w)
			}
			if test.taint != "" {
				w.taint(test.taint, "", nil)
			}
			if test.node != nil {
				test.node(w)
			}
			if got := w.round(0); !sameMoves(got, test.want) {
				t.Errorf("moves %q, want %q", got, test.want)
			}
		})
	}
}

// sameMoves compares moves without regard to their order.
func sameMoves(a, b string) bool {
	sorted := func(moves string) []string {
		list := strings.Split(moves, ", ")
		slices.Sort(list)
		return list
	}
	return slices.Equal(sorted(a), sorted(b))
}

// A restored pod is not released again for the same drain, also not by another controller process.
func TestAssistsOnce(t *testing.T) {
	w := newWorld(t)
	w.settings.Drain.Assist, w.settings.Drain.Cordons = true, true
	w.node.Spec.Unschedulable = true
	expect := func(after time.Duration, want string) {
		t.Helper()
		if got := w.round(after); got != want {
			t.Errorf("%s after the start: moves %q, want %q", w.now.Sub(start), got, want)
		}
	}
	release := func() { w.pods[0].Release = &snapshot.Release{Reason: string(migration.Drain), At: w.now} }
	expect(0, "web-0 drain, web-1 drain")
	release()
	expect(time.Minute, "web-0 drain, web-1 drain")
	w.pods[0].Release = nil
	expect(time.Minute, "web-1 drain")
	expect(time.Minute, "web-1 drain")
	w.node.Spec.Unschedulable = false
	expect(time.Minute, "")
	if text, ok := w.node.Annotations[spot.InterruptionStateAnnotation]; ok {
		t.Errorf("the annotation %s is %s after the drain", spot.InterruptionStateAnnotation, text)
	}
	w.node.Spec.Unschedulable = true
	expect(time.Hour, "web-0 drain, web-1 drain")
}

// TestTaintForOtherSchedulers: another scheduler sees only taints and cordons. The taint repeats
// other signals of a drain as long as they last, and only while pods keep their scheduler.
func TestTaintForOtherSchedulers(t *testing.T) {
	condition := func(name string) func(*world) {
		return func(w *world) {
			w.node.Status.Conditions = append(w.node.Status.Conditions, v1.NodeCondition{Type: v1.NodeConditionType(name), Status: v1.ConditionTrue})
		}
	}
	drained := condition("DrainInProgress")
	custom := func(kind providers.SignalKind) func(*world) {
		return func(w *world) {
			w.settings.Signals = append(slices.Clone(w.settings.Signals),
				providers.Signal{Kind: kind, Key: "example.com/maintenance", Value: "soon", Class: decision.Drain})
			w.node.Labels["example.com/maintenance"] = "soon"
			w.annotate("example.com/maintenance", "soon")
		}
	}
	for name, test := range map[string]struct {
		change func(*world)
		own    bool // our scheduler places the pods
		want   string
	}{
		"nothing":                    {change: func(*world) {}},
		"a condition":                {change: drained, want: "DrainInProgress:NoSchedule state"},
		"a condition, our scheduler": {change: drained, own: true},
		"a label":                    {change: custom(providers.LabelSignal), want: "maintenance:NoSchedule state"},
		"an annotation":              {change: custom(providers.AnnotationSignal), want: "maintenance:NoSchedule state"},
		"deleted":                    {change: func(w *world) { w.node.DeletionTimestamp, w.node.Finalizers = at(0), []string{"x"} }, want: "deletion:NoSchedule state"},
		"a taint":                    {change: func(w *world) { w.taint("karpenter.sh/disrupted", "", nil) }},
		"a condition and a taint":    {change: func(w *world) { drained(w); w.taint("ToBeDeletedByClusterAutoscaler", "1", nil) }},
		"a taint that only prefers": {change: func(w *world) {
			w.node.Spec.Taints = []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: v1.TaintEffectPreferNoSchedule}}
		}, want: "ToBeDeletedByClusterAutoscaler:NoSchedule state"},
		"a condition, cordoned":         {change: func(w *world) { drained(w); w.node.Spec.Unschedulable = true }},
		"a condition, tainted by hand":  {change: func(w *world) { w.settings.Interruption.Enabled = false; drained(w); w.taint(own, "mine", nil) }, want: "mine:NoSchedule"},
		"a condition of maintenance":    {change: func(w *world) { w.settings.Interruption.Advisory.Enabled = false; condition("MaintenancePlanned")(w) }},
		"reclaimed, and it is disabled": {change: func(w *world) { w.settings.Interruption.Enabled = false; w.event("Preempt Scheduled", 0) }, want: "VMEventScheduled:NoSchedule state"},
		"unreachable, no pod moves": {change: func(w *world) {
			w.ready(v1.ConditionUnknown)
			w.now, w.pods = start.Add(time.Hour), w.pods[:1]
			w.pods[0].OwnerReferences = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.other.Status.Conditions[0].Status = v1.ConditionTrue
			w.pods[0].Workload.KeepsScheduler = !test.own
			test.change(w)
			w.round(0)
			if got := w.marks(); got != test.want || len(w.events) > 0 {
				t.Errorf("marks %q and events %v, want %q and none", got, w.events, test.want)
			}
			if facts, _ := (&node.Reader{Policy: &decision.Policy{}, Signals: w.settings.Signals}).Read(w.node, w.now); strings.HasSuffix(test.want, "state") &&
				name != "reclaimed, and it is disabled" && facts.Signal != decision.Drain {
				t.Errorf("the node has a signal of the class %s, want drain: the taint only repeats the signal", facts.Signal)
			}
			if !strings.HasSuffix(test.want, "state") || w.node.DeletionTimestamp != nil {
				return
			}
			w.node.Status.Conditions, w.node.Labels = w.node.Status.Conditions[:1], map[string]string{}
			delete(w.node.Annotations, "example.com/maintenance")
			w.untaint("ToBeDeletedByClusterAutoscaler")
			w.round(time.Minute)
			if got := w.marks(); got != "" || len(w.events) > 0 {
				t.Errorf("marks %q and events %v after the end of the signal, want none", got, w.events)
			}
		})
	}
}

// TestDrainThenReclaim: a reclaim after a drain gets its own marks.
func TestDrainThenReclaim(t *testing.T) {
	w := newWorld(t)
	w.pods[0].Workload.KeepsScheduler = true
	w.node.Status.Conditions = append(w.node.Status.Conditions, v1.NodeCondition{Type: "DrainInProgress", Status: v1.ConditionTrue})
	w.round(0)
	w.taint(awsReclaim, "x", nil)
	w.round(time.Second)
	if got, want := w.marks(), "spot-itn:NoSchedule +121 state"; got != want || !slices.Equal(w.events, []string{spot.ReasonInterruption}) {
		t.Errorf("marks %q and events %v, want %q", got, w.events, want)
	}
	w.untaint(awsReclaim)
	w.round(time.Second)
	if got, want := w.marks(), "DrainInProgress:NoSchedule state"; got != want || !slices.Equal(w.events, []string{spot.ReasonInterruption, spot.ReasonInterruptionOver}) {
		t.Errorf("marks %q and events %v, want %q", got, w.events, want)
	}
}

// A pod that a pause has restored is released again for the same drain after the pause.
func TestDrainAfterPause(t *testing.T) {
	w := newWorld(t)
	w.settings.Drain.Assist, w.settings.Drain.Cordons = true, true
	w.node.Spec.Unschedulable = true
	paused := false
	w.settings.Paused = clustertest.Paused(func(c safety.Cause) bool { return paused && c == safety.Drain })
	w.round(0)
	w.pods[0].Release = &snapshot.Release{Reason: string(migration.Drain), At: w.now}
	w.round(time.Second)
	w.pods[0].Release, paused = nil, true
	w.round(time.Second)
	paused = false
	if got, want := w.round(time.Second), "web-0 drain, web-1 drain"; got != want {
		t.Errorf("after the pause: moves %q, want %q", got, want)
	}
}
