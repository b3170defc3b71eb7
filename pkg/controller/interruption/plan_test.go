package interruption_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var start = clustertest.Now

var settings = interruption.Settings{
	Signals: providers.Signals(),
	Interruption: controller.Interruption{
		Enabled: true, DefaultNotice: metav1.Duration{Duration: 2 * time.Minute},
		Advisory: controller.Advisory{Enabled: true, TimeLimit: metav1.Duration{Duration: 30 * time.Minute}, Pause: metav1.Duration{Duration: time.Hour}},
	},
}

const (
	awsReclaim  = "aws-node-termination-handler/spot-itn"
	awsAdvisory = "aws-node-termination-handler/rebalance-recommendation"
	maintenance = "aws-node-termination-handler/scheduled-maintenance"

	googleReclaim = "cloud.google.com/impending-node-termination"
	own           = spot.InterruptionTaint
)

// world is a mock of an API server with a spot node "n", a ready on-demand node, and a clock.
type world struct {
	t        *testing.T
	now      time.Time
	node     *v1.Node
	other    *v1.Node
	pods     []*snapshot.Pod
	settings interruption.Settings
	onDemand bool          // the node is on-demand
	overdue  time.Duration // of the node's Lease
	// wrote counts the applied marks.
	wrote int
	// events has the reasons of all events, and lastNote the note of the last one.
	events   []string
	lastNote string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: start, node: newNode("n", v1.ConditionTrue), other: newNode("other", v1.ConditionTrue), settings: settings}
	w.pods = []*snapshot.Pod{w.pod("web-0", "Deployment"), w.pod("web-1", "Deployment")}
	w.pods[1].Workload, w.pods[1].Revision = w.pods[0].Workload, w.pods[0].Revision
	w.pods[0].Revision.Pods = w.pods
	w.pods[0].Workload.Desired = 2
	return w
}

func newNode(name string, ready v1.ConditionStatus) *v1.Node {
	n := clustertest.NewNode(name, "", "m/a", "annotation=theirs=stays")
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}
	return n
}

func newSpotNode(name string, ready v1.ConditionStatus) *snapshot.Node {
	return &snapshot.Node{Node: newNode(name, ready), Facts: decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}}
}

// pod returns a pod of its own workload that was created an hour ago.
func (w *world) pod(name, kind string) *snapshot.Pod {
	key := workload.OwnerKey{UID: clustertest.UID(name)}
	own := &snapshot.Workload{Key: key, Kind: kind, InScope: true, Desired: 1}
	p := &snapshot.Pod{Workload: own, Revision: &snapshot.Revision{Key: key, Workload: own}, Pod: clustertest.NewPod(name, clustertest.OwnedBy("ReplicaSet", name))}
	own.Revisions = []*snapshot.Revision{p.Revision}
	p.Revision.Pods = []*snapshot.Pod{p}
	return p
}

func (w *world) add(p *snapshot.Pod) *snapshot.Pod { w.pods = append(w.pods, p); return p }

func (w *world) taint(key, value string, added *metav1.Time) {
	w.node.Spec.Taints = append(w.node.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffectNoSchedule, TimeAdded: added})
}

func (w *world) untaint(key string) {
	var taints []v1.Taint
	for _, t := range w.node.Spec.Taints {
		if t.Key != key {
			taints = append(taints, t)
		}
	}
	w.node.Spec.Taints = taints
}

// event sets the condition by which AKS announces an event of the VM.
func (w *world) event(message string, since time.Duration) {
	w.node.Status.Conditions = append(w.node.Status.Conditions, v1.NodeCondition{
		Type: "VMEventScheduled", Status: v1.ConditionTrue, Message: message, LastTransitionTime: *at(since)})
}

// stayers adds pods that stay on a node that is only unreachable, and two pods that do not.
func (w *world) stayers() {
	w.add(w.pod("bare", "Pod")).OwnerReferences = nil
	tolerate := func(name string, tolerations ...v1.Toleration) {
		w.add(w.pod(name, "StatefulSet")).Spec.Tolerations = tolerations
	}
	long := func(key string, seconds ...int64) v1.Toleration {
		toleration := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
		for _, s := range seconds {
			toleration.TolerationSeconds = &s
		}
		return toleration
	}
	tolerate("stays", v1.Toleration{Operator: v1.TolerationOpExists})
	tolerate("stays-longer", long(v1.TaintNodeUnreachable, 301), long(v1.TaintNodeNotReady, 300))
	tolerate("stays-if-not-ready", long(v1.TaintNodeNotReady), long(v1.TaintNodeUnreachable, 300))
	tolerate("five-minutes", long(v1.TaintNodeUnreachable, 300), long(v1.TaintNodeNotReady, 300))
	tolerate("ends-first", long(v1.TaintNodeUnreachable), long("", 60))
}

// earlierAdvisory adds the mark that the controller of an earlier version wrote.
func (w *world) earlierAdvisory() {
	w.taint(own, "rebalance-recommendation", nil)
	w.annotate(spot.InterruptionStateAnnotation, `{"class":"advisory","taint":"rebalance-recommendation","advisorySince":"`+deadline(0)+`"}`)
}

func (w *world) annotate(key, value string) { w.node.Annotations[key] = value }

func (w *world) ready(status v1.ConditionStatus) {
	w.node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(w.now)}}
}

func (w *world) snapshot() *snapshot.Snapshot {
	n := &snapshot.Node{Node: w.node, Facts: decision.Node{Capacity: decision.Capacity{Type: decision.Spot}}, Pods: w.pods}
	if w.onDemand {
		n.Facts.Capacity.Type = decision.OnDemand
	}
	s := &snapshot.Snapshot{Now: w.now, Nodes: []*snapshot.Node{n, {Node: w.other}}, Pods: w.pods}
	if w.overdue > 0 {
		s.Overdue = map[string]time.Time{"n": w.now.Add(-w.overdue)}
	}
	seen := map[workload.OwnerKey]bool{}
	for _, p := range w.pods {
		p.Node = n
		if p.Workload != nil && !seen[p.Workload.Key] {
			seen[p.Workload.Key] = true
			s.Workloads = append(s.Workloads, p.Workload)
		}
	}
	return s
}

// round advances the clock, plans and applies. It returns the moves as "POD REASON", with
// "+SECONDS" from now to the deadline.
func (w *world) round(after time.Duration) string {
	w.t.Helper()
	w.now = w.now.Add(after)
	s := w.snapshot()
	marks, moves, _ := interruption.Plan(s, w.settings)
	for _, m := range marks {
		client := fake.NewClientset(w.node)
		if err := interruption.Apply(w.t.Context(), client, m); err != nil {
			w.t.Fatal(err)
		}
		var err error
		if w.node, err = client.CoreV1().Nodes().Get(w.t.Context(), m.Node.Name, metav1.GetOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.wrote++
		for _, e := range m.Events {
			w.events, w.lastNote = append(w.events, e.Reason), e.Note
		}
	}
	if again, _, _ := interruption.Plan(w.snapshot(), w.settings); len(again) > 0 {
		w.t.Errorf("a second plan contains another mark: %+v", again[0])
	}
	if got := w.node.Annotations["theirs"]; got != "stays" {
		w.t.Errorf("an annotation of another client is %q", got)
	}
	var text []string
	for _, m := range moves {
		line := m.Pod.Name + " " + string(m.Reason)
		if !m.Deadline.IsZero() {
			line += fmt.Sprintf(" %+.0f", m.Deadline.Sub(w.now).Seconds())
		}
		text = append(text, line)
	}
	return strings.Join(text, ", ")
}

// marks returns the controller's marks on the node: the taint's value and the deadline in seconds
// from the start.
func (w *world) marks() string {
	var text []string
	for _, t := range w.node.Spec.Taints {
		if t.Key == own {
			text = append(text, t.ToString()[len(own)+1:])
		}
	}
	if deadline, ok := w.node.Annotations[spot.InterruptionDeadlineAnnotation]; ok {
		if at, err := time.Parse(time.RFC3339, deadline); err == nil {
			deadline = fmt.Sprintf("%+.0f", at.Sub(start).Seconds())
		}
		text = append(text, deadline)
	}
	if _, ok := w.node.Annotations[spot.InterruptionStateAnnotation]; ok {
		text = append(text, "state")
	}
	return strings.Join(text, " ")
}

func at(after time.Duration) *metav1.Time { return &metav1.Time{Time: start.Add(after)} }

func deadline(after time.Duration) string { return start.Add(after).Format(time.RFC3339) }

// TestOneNode plans once for a node: it checks the moves, their deadlines and the marks on the
// node.
func TestOneNode(t *testing.T) {
	both := func(seconds string) string {
		return "web-0 interruption " + seconds + ", web-1 interruption " + seconds
	}
	cases := map[string]struct {
		change     func(*world)
		want       string
		wantMarks  string
		wantEvents []string
	}{
		"nothing":            {func(*world) {}, "", "", nil},
		"AWS":                {func(w *world) { w.taint(awsReclaim, "x", nil) }, both("+120"), "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"seen late":          {func(w *world) { w.taint(awsReclaim, "x", at(-20*time.Second)) }, both("+100"), "spot-itn:NoSchedule +100 state", []string{spot.ReasonInterruption}},
		"seen very late":     {func(w *world) { w.taint(awsReclaim, "x", at(-100*time.Second)) }, both("+20"), "spot-itn:NoSchedule +20 state", []string{spot.ReasonInterruption}},
		"notice over, alive": {func(w *world) { w.taint(awsReclaim, "x", at(-2*time.Minute)) }, both("+120"), "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"notice over, not ready": {func(w *world) { w.taint(awsReclaim, "x", at(-3*time.Minute)); w.ready(v1.ConditionFalse) },
			both("-60"), "spot-itn:NoSchedule -60 state", []string{spot.ReasonInterruption}},
		"notice over, unreachable": {func(w *world) { w.taint(awsReclaim, "x", at(-3*time.Minute)); w.overdue = 45 * time.Second },
			both("-60"), "spot-itn:NoSchedule -60 state", []string{spot.ReasonInterruption}},
		"node's clock ahead": {func(w *world) { w.taint(awsReclaim, "x", at(2*time.Minute)) }, both("+120"), "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"no notice known":    {func(w *world) { w.taint(maintenance, "", nil) }, both("+120"), "scheduled-maintenance:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"two signals, the earlier counts": {func(w *world) {
			w.taint(awsReclaim, "x", nil)
			w.taint("cloud.google.com/impending-node-termination", "", nil)
		}, both("+30"), "spot-itn:NoSchedule +30 state", []string{spot.ReasonInterruption}},
		"a condition with its start": {func(w *world) {
			w.event("Preempt Scheduled", -10*time.Second)
		}, both("+20"), "VMEventScheduled:NoSchedule +20 state", []string{spot.ReasonInterruption}},

		"Azure, another event": {func(w *world) { w.settings.Interruption.Advisory.Enabled = false; w.event("Freeze Scheduled", 0) }, "", "", nil},
		"Azure, another event, with advisory": {func(w *world) { w.event("Freeze Scheduled", 0) },
			"web-0 advisory", "VMEventScheduled:PreferNoSchedule state", []string{spot.ReasonAdvisory}},
		"on-demand: a reclaim signal is advisory": {func(w *world) {
			w.onDemand = true
			w.settings.Interruption.Advisory.Enabled = false
			w.taint(awsReclaim, "x", nil)
			w.event("Preempt Scheduled", 0)
		}, "", "", nil},
		"on-demand: maintenance": {func(w *world) { w.onDemand = true; w.taint(maintenance, "x", nil) },
			both("+120"), "scheduled-maintenance:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"on-demand: by hand": {func(w *world) { w.onDemand = true; w.taint(own, "by-hand", nil) },
			both("+120"), "by-hand:NoSchedule +120 state", []string{spot.ReasonInterruption}},

		"by hand, with a deadline": {func(w *world) {
			w.taint(own, "by-hand", nil)
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(time.Hour))
		},
			both("+3600"), "by-hand:NoSchedule +3600 state", []string{spot.ReasonInterruption}},
		"by hand, without a deadline": {func(w *world) { w.taint(own, "by-hand", nil) }, both("+120"), "by-hand:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"by hand, a deadline long ago": {func(w *world) {
			w.taint(own, "", nil)
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(-time.Hour))
		},
			both("+120"), "NoSchedule +120 state", []string{spot.ReasonInterruption, spot.ReasonInvalidDeadline}},
		"a deadline that is left over": {func(w *world) {
			w.taint(awsReclaim, "x", nil)
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(-21*24*time.Hour))
		}, both("+120"), "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption, spot.ReasonInvalidDeadline}},
		"a deadline before the start of the signal, which was seen late": {func(w *world) {
			w.taint(awsReclaim, "x", at(-50*time.Second))
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(-51*time.Second))
		}, both("+70"), "spot-itn:NoSchedule +70 state", []string{spot.ReasonInterruption, spot.ReasonInvalidDeadline}},
		"a deadline that is past, but not older than the signal": {func(w *world) {
			w.taint(own, "x", at(-time.Hour))
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(-time.Minute))
		}, "web-0 interruption, web-1 interruption", "x:NoSchedule -60 state", []string{spot.ReasonInterruption}},
		"a deadline older than one of two signals": {func(w *world) {
			w.taint(own, "x", at(-time.Hour))
			w.taint(awsReclaim, "x", at(-10*time.Second))
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(-time.Minute))
		}, "web-0 interruption, web-1 interruption", "x:NoSchedule -60 state", []string{spot.ReasonInterruption}},
		"a recorded state of a signal that was repeated": {func(w *world) {
			w.annotate(spot.InterruptionStateAnnotation, `{"class":"reclaim","taint":"VMEventScheduled","deadline":"2026-02-28T12:00:30Z",`+
				`"starts":{"condition VMEventScheduled=True (Preempt)":"2026-02-28T12:00:00Z"}}`)
			w.annotate(spot.InterruptionDeadlineAnnotation, "2026-02-28T12:00:30Z")
			w.event("Preempt Scheduled", -5*time.Second)
		}, both("+25"), "VMEventScheduled:NoSchedule +25 state", nil},
		"an invalid deadline stays, and the default counts": {func(w *world) { w.taint(own, "x", nil); w.annotate(spot.InterruptionDeadlineAnnotation, "in an hour") },
			both("+120"), "x:NoSchedule in an hour state", []string{spot.ReasonInterruption, spot.ReasonInvalidDeadline}},
		"an empty deadline": {func(w *world) { w.taint(awsReclaim, "x", nil); w.annotate(spot.InterruptionDeadlineAnnotation, "") },
			both("+120"), "spot-itn:NoSchedule  state", []string{spot.ReasonInterruption, spot.ReasonInvalidDeadline}},
		"a later deadline, and a signal without a notice": {func(w *world) {
			w.taint(maintenance, "", nil)
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(time.Hour))
		}, both("+3600"), "scheduled-maintenance:NoSchedule +3600 state", []string{spot.ReasonInterruption}},
		"a later deadline, and a signal with a notice": {func(w *world) {
			w.taint(awsReclaim, "x", nil)
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(time.Hour))
		}, both("+120"), "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"an earlier deadline": {func(w *world) {
			w.taint(awsReclaim, "x", nil)
			w.annotate(spot.InterruptionDeadlineAnnotation, deadline(time.Minute))
		}, both("+60"), "spot-itn:NoSchedule +60 state", []string{spot.ReasonInterruption}},
		"a deadline without a signal": {func(w *world) { w.annotate(spot.InterruptionDeadlineAnnotation, deadline(time.Minute)) }, "", "+60", nil},
		"by hand, only preferred": {func(w *world) {
			w.node.Spec.Taints = []v1.Taint{{Key: own, Value: "x", Effect: v1.TaintEffectPreferNoSchedule}}
		}, both("+120"), "x:PreferNoSchedule interruption:NoSchedule +120 state", []string{spot.ReasonInterruption}},

		"drain": {func(w *world) { w.taint("karpenter.sh/disrupted", "", nil) }, "", "", nil},
		"drain, and deleted": {func(w *world) {
			w.node.DeletionTimestamp, w.node.Finalizers = at(0), []string{"karpenter.sh/termination"}
		}, "", "", nil},
		"drain and advisory":                {func(w *world) { w.taint("karpenter.sh/disrupted", "", nil); w.taint(awsAdvisory, "x", nil) }, "", "", nil},
		"drain and reclaim":                 {func(w *world) { w.taint("karpenter.sh/disrupted", "", nil); w.taint(awsReclaim, "x", nil) }, both("+120"), "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"cordoned":                          {func(w *world) { w.node.Spec.Unschedulable = true }, "", "", nil},
		"unreachable for 39 s":              {func(w *world) { w.ready(v1.ConditionUnknown); w.now = start.Add(39 * time.Second) }, "", "", nil},
		"unreachable for 50 s":              {func(w *world) { w.ready(v1.ConditionUnknown); w.now = start.Add(50 * time.Second) }, both("-10"), "not-ready:NoSchedule +40 state", []string{spot.ReasonInterruption}},
		"unreachable, and empty":            {func(w *world) { w.ready(v1.ConditionUnknown); w.now = start.Add(50 * time.Second); w.pods = nil }, "", "", nil},
		"not ready, but alive, for an hour": {func(w *world) { w.ready(v1.ConditionFalse); w.now = start.Add(time.Hour) }, "", "", nil},
		"Lease overdue for 39 s":            {func(w *world) { w.overdue = 39 * time.Second }, "", "", nil},
		"Lease overdue for 50 s":            {func(w *world) { w.overdue = 50 * time.Second }, both("-10"), "not-ready:NoSchedule -10 state", []string{spot.ReasonInterruption}},
		"Lease overdue for 50 s, not ready": {func(w *world) { w.overdue = 50 * time.Second; w.ready(v1.ConditionFalse) },
			both("-10"), "not-ready:NoSchedule -10 state", []string{spot.ReasonInterruption}},
		"Lease overdue for 50 s, on-demand": {func(w *world) { w.onDemand = true; w.overdue = 50 * time.Second }, "", "", nil},
		"unreachable: which pods": {func(w *world) {
			w.ready(v1.ConditionUnknown)
			w.now = start.Add(50 * time.Second)
			w.stayers()
		}, "ends-first interruption -10, five-minutes interruption -10, web-0 interruption -10, web-1 interruption -10",
			"not-ready:NoSchedule +40 state", []string{spot.ReasonInterruption}},
		"unreachable, with nothing but pods that stay": {func(w *world) {
			w.ready(v1.ConditionUnknown)
			w.now = start.Add(50 * time.Second)
			w.pods = nil
			w.stayers()
			w.pods = w.pods[:4]
		}, "", "", nil},
		"reclaimed and unreachable: which pods": {func(w *world) {
			w.ready(v1.ConditionUnknown)
			w.taint(awsReclaim, "x", nil)
			w.now = start.Add(50 * time.Second)
			w.pods = nil
			w.stayers()
		}, "bare interruption -10, ends-first interruption -10, five-minutes interruption -10, stays interruption -10, stays-if-not-ready interruption -10, stays-longer interruption -10",
			"spot-itn:NoSchedule +40 state", []string{spot.ReasonInterruption}},
		"all nodes are unreachable": {func(w *world) { w.ready(v1.ConditionUnknown); w.other = w.node; w.now = start.Add(50 * time.Second) }, "", "", nil},
		"reclaimed and unreachable": {func(w *world) {
			w.taint(awsReclaim, "", nil)
			w.ready(v1.ConditionUnknown)
			w.now = start.Add(50 * time.Second)
		}, both("-10"), "spot-itn:NoSchedule +40 state", []string{spot.ReasonInterruption}},

		"which pods": {func(w *world) {
			w.taint(awsReclaim, "x", nil)
			w.add(w.pod("daemon", "")).OwnerReferences[0].Kind = "DaemonSet"
			w.add(w.pod("static", "")).Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
			w.add(w.pod("leaving", "ReplicaSet")).DeletionTimestamp = at(0)
			everywhere := []v1.Toleration{{Operator: v1.TolerationOpExists}}
			w.add(w.pod("tolerates", "ReplicaSet")).Spec.Tolerations = everywhere
			newer := w.add(w.pod("tolerates-and-is-newer", "ReplicaSet"))
			newer.Spec.Tolerations, newer.CreationTimestamp = everywhere, *at(time.Second)
			w.add(w.pod("newer", "ReplicaSet")).CreationTimestamp = *at(time.Second)
			w.add(w.pod("job", "Job"))
			w.add(w.pod("bare", "Pod"))
			w.add(w.pod("precious", "StatefulSet")).Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			unknown := w.add(w.pod("unknown", ""))
			unknown.Workload, unknown.Revision = nil, nil
			w.add(w.pod("released", "ReplicaSet")).Release = &snapshot.Release{}
		}, "bare interruption +120, job interruption +120, newer interruption +120, precious interruption +120, released interruption +120, " +
			"tolerates interruption +120, tolerates-and-is-newer interruption +120, unknown interruption +120, web-0 interruption +120, web-1 interruption +120",
			"spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},

		"advisory: one of a workload": {func(w *world) { w.taint(awsAdvisory, "x", nil); w.add(w.pod("api", "StatefulSet")) },
			"api advisory, web-0 advisory", "rebalance-recommendation:PreferNoSchedule state", []string{spot.ReasonAdvisory}},
		"advisory: which pods": {func(w *world) {
			w.taint(awsAdvisory, "x", nil)
			w.add(w.pod("job", "Job"))
			w.add(w.pod("bare", "Pod"))
			w.add(w.pod("precious", "StatefulSet")).Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			w.add(w.pod("short", "ReplicaSet")).Workload.Desired = 2
			unknown := w.add(w.pod("unknown", ""))
			unknown.Workload, unknown.Revision = nil, nil
			w.pods[1].DeletionTimestamp = at(0)
			w.pods[0].Revision.Pods = w.pods[:1]
		}, "", "rebalance-recommendation:PreferNoSchedule state", []string{spot.ReasonAdvisory}},
		"pods of selected namespaces": {func(w *world) {
			w.settings.Selects = func(namespace string) bool { return namespace == "mail" }
			w.taint(awsReclaim, "x", nil)
			w.add(w.pod("relay", "Deployment")).Namespace = "mail"
		}, "relay interruption +120", "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"advisory: pods of selected namespaces": {func(w *world) {
			w.settings.Selects = func(namespace string) bool { return namespace == "mail" }
			w.taint(awsAdvisory, "x", nil)
			w.add(w.pod("relay", "Deployment")).Namespace = "mail"
		}, "relay advisory", "rebalance-recommendation:PreferNoSchedule state", []string{spot.ReasonAdvisory}},
		"no namespace is selected": {func(w *world) {
			w.settings.Selects = func(string) bool { return false }
			w.taint(awsReclaim, "x", nil)
		}, "", "spot-itn:NoSchedule +120 state", []string{spot.ReasonInterruption}},
		"advisory is off": {func(w *world) { w.settings.Interruption.Advisory.Enabled = false; w.taint(awsAdvisory, "x", nil) }, "", "", nil},
		"reclaim is off": {func(w *world) { w.settings.Interruption.Enabled = false; w.taint(awsReclaim, "x", nil) },
			"", "", nil},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w)
			clustertest.Equal(t, "moves", test.want, w.round(0))
			clustertest.Equal(t, "marks on the node", test.wantMarks, w.marks())
			clustertest.Equal(t, "events", test.wantEvents, w.events)
		})
	}
}

// TestRounds plans repeatedly. The controller removes only its own marks, deadlines only become
// earlier, and a new controller process continues where the last one stopped.
func TestRounds(t *testing.T) {
	type step struct {
		after time.Duration
		do    func(*world)
		// marks and moves are the state after the step. wrote is the total number of marks written.
		marks string
		moves int
		wrote int
	}
	keep := func(*world) {}
	cases := map[string][]step{
		"a withdrawn reclaim": {
			{0, func(w *world) { w.taint(awsReclaim, "x", nil) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{30 * time.Second, keep, "spot-itn:NoSchedule +120 state", 2, 1},
			{time.Hour, keep, "spot-itn:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { w.untaint(awsReclaim) }, "", 0, 2},
		},
		"a second signal tightens, its end does not loosen": {
			{0, func(w *world) { w.taint(maintenance, "", nil) }, "scheduled-maintenance:NoSchedule +120 state", 2, 1},
			{10 * time.Second, func(w *world) { w.taint("cloud.google.com/impending-node-termination", "", nil) }, "scheduled-maintenance:NoSchedule +40 state", 2, 2},
			{10 * time.Second, func(w *world) { w.untaint("cloud.google.com/impending-node-termination") }, "scheduled-maintenance:NoSchedule +40 state", 2, 3},
		},
		"a later signal has a notice of its own": {
			{0, func(w *world) {
				w.taint(maintenance, "", nil)
				w.annotate(spot.InterruptionDeadlineAnnotation, deadline(2*time.Hour))
			}, "scheduled-maintenance:NoSchedule +7200 state", 2, 1},
			{time.Hour, func(w *world) { w.taint(awsReclaim, "", nil) }, "spot-itn:NoSchedule +3720 state", 2, 2},
		},
		"a clock ahead: the deadline of the first round lasts": {
			{0, func(w *world) { w.taint(awsReclaim, "x", at(10*time.Minute)) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{5 * time.Minute, keep, "spot-itn:NoSchedule +120 state", 2, 1},
			{10 * time.Minute, keep, "spot-itn:NoSchedule +120 state", 2, 1},
		},
		"a notice that is over on a node that is alive counts once": {
			{0, func(w *world) { w.taint(awsReclaim, "x", at(-time.Hour)) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{time.Hour, keep, "spot-itn:NoSchedule +120 state", 2, 1},
		},
		"a repeated signal has its whole notice": {
			{0, func(w *world) { w.taint(awsReclaim, "x", at(0)) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{time.Hour, func(w *world) { w.untaint(awsReclaim); w.taint(awsReclaim, "x", at(time.Hour-time.Minute)) }, "spot-itn:NoSchedule +3660 state", 2, 2},
			{time.Minute, keep, "spot-itn:NoSchedule +3660 state", 2, 2},
			{0, func(w *world) { w.untaint(awsReclaim) }, "", 0, 3},
		},
		"a user extends the deadline of a signal without a notice": {
			{0, func(w *world) { w.taint(maintenance, "", nil) }, "scheduled-maintenance:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { w.annotate(spot.InterruptionDeadlineAnnotation, deadline(time.Hour)) }, "scheduled-maintenance:NoSchedule +3600 state", 2, 2},
			{0, func(w *world) { w.untaint(maintenance) }, "+3600", 0, 3},
		},
		"an invalid annotation: the time of the first round lasts": {
			{0, func(w *world) { w.taint(maintenance, "", nil); w.annotate(spot.InterruptionDeadlineAnnotation, "soon") }, "scheduled-maintenance:NoSchedule soon state", 2, 1},
			{time.Minute, keep, "scheduled-maintenance:NoSchedule soon state", 2, 1},
			{0, func(w *world) { w.untaint(maintenance) }, "soon", 0, 2},
		},
		"set by hand: only the controller's marks are removed": {
			{0, func(w *world) { w.taint(own, "by-hand", nil) }, "by-hand:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { w.taint(awsReclaim, "x", nil) }, "by-hand:NoSchedule +120 state", 2, 2},
			{0, func(w *world) { w.untaint(awsReclaim) }, "by-hand:NoSchedule +120 state", 2, 3},
			{0, func(w *world) { w.untaint(own) }, "", 0, 4},
		},
		"a user changes the controller's taint and owns it from then on": {
			{0, func(w *world) { w.taint(awsReclaim, "x", nil) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { w.untaint(own); w.taint(own, "by-hand", nil) }, "by-hand:NoSchedule +120 state", 2, 2},
			{0, func(w *world) { w.untaint(awsReclaim) }, "by-hand:NoSchedule +120 state", 2, 3},
		},
		"a user removes the controller's taint: it returns while the signal lasts": {
			{0, func(w *world) { w.taint(awsReclaim, "x", nil) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { w.untaint(own) }, "spot-itn:NoSchedule +120 state", 2, 2},
			{0, func(w *world) { w.untaint(own); w.untaint(awsReclaim) }, "", 0, 3},
		},
		"a user removes the state while the signal lasts": {
			{0, func(w *world) { w.taint(awsReclaim, "x", nil) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { delete(w.node.Annotations, spot.InterruptionStateAnnotation) }, "spot-itn:NoSchedule +120 state", 2, 2},
			{0, func(w *world) { w.untaint(awsReclaim) }, "+120", 0, 3},
		},
		"an invalid state: the marks belong to others": {
			{0, func(w *world) { w.taint(awsReclaim, "x", nil) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { w.untaint(awsReclaim); w.annotate(spot.InterruptionStateAnnotation, "{") }, "spot-itn:NoSchedule +120 state", 2, 2},
		},
		"unreachable, and ready again": {
			{0, func(w *world) { w.ready(v1.ConditionUnknown) }, "", 0, 0},
			{time.Minute, keep, "not-ready:NoSchedule +40 state", 2, 1},
			{time.Minute, func(w *world) { w.pods = nil }, "not-ready:NoSchedule +40 state", 0, 1},
			{time.Minute, func(w *world) { w.ready(v1.ConditionTrue) }, "", 0, 2},
		},
		"an advisory signal without a reclaim": {
			{0, func(w *world) { w.node.Spec.Unschedulable = true; w.taint(awsAdvisory, "x", nil) }, "rebalance-recommendation:PreferNoSchedule state", 1, 1},
			{30*time.Minute - 1, keep, "rebalance-recommendation:PreferNoSchedule state", 1, 1},
			{1, keep, "state", 0, 2},
			{time.Hour - 1, keep, "state", 0, 2},
			{1, keep, "rebalance-recommendation:PreferNoSchedule state", 1, 3},
		},
		"a withdrawn advisory signal": {
			{0, func(w *world) { w.taint(awsAdvisory, "x", nil) }, "rebalance-recommendation:PreferNoSchedule state", 1, 1},
			{time.Minute, func(w *world) { w.untaint(awsAdvisory) }, "", 0, 2},
		},
		"an advisory signal withdrawn in the pause": {
			{0, func(w *world) { w.taint(awsAdvisory, "x", nil) }, "rebalance-recommendation:PreferNoSchedule state", 1, 1},
			{30 * time.Minute, func(w *world) { w.untaint(awsAdvisory) }, "state", 0, 2},
			{time.Minute, func(w *world) { w.taint(awsAdvisory, "x", nil) }, "state", 0, 2},
			{0, func(w *world) { w.untaint(awsAdvisory) }, "state", 0, 2},
			{time.Hour, keep, "", 0, 3},
		},
		"an advisory signal followed by a reclaim": {
			{0, func(w *world) { w.taint(awsAdvisory, "x", nil) }, "rebalance-recommendation:PreferNoSchedule state", 1, 1},
			{time.Minute, func(w *world) { w.taint(awsReclaim, "x", nil) }, "spot-itn:NoSchedule +180 state", 2, 2},
		},
		"a freeze followed by a preemption with the same key": {
			{0, func(w *world) { w.event("Freeze Scheduled", 0) }, "VMEventScheduled:PreferNoSchedule state", 1, 1},
			{0, func(w *world) { w.node.Status.Conditions = nil; w.event("Preempt Scheduled", 0) }, "VMEventScheduled:NoSchedule +30 state", 2, 2},
			{0, func(w *world) { w.node.Status.Conditions = nil; w.event("Freeze Scheduled", 0) }, "VMEventScheduled:PreferNoSchedule state", 1, 3},
		},
		"an advisory mark of an earlier version becomes soft": {
			{0, func(w *world) { w.taint(awsAdvisory, "x", nil); w.earlierAdvisory() }, "rebalance-recommendation:PreferNoSchedule state", 1, 1},
			{time.Minute, func(w *world) { w.untaint(awsAdvisory) }, "", 0, 2},
		},
		"an advisory mark of an earlier version is removed": {{0, (*world).earlierAdvisory, "", 0, 1}},
		"a user removes the state of an advisory mark": {
			{0, func(w *world) { w.taint(awsAdvisory, "x", nil) }, "rebalance-recommendation:PreferNoSchedule state", 1, 1},
			{0, func(w *world) { delete(w.node.Annotations, spot.InterruptionStateAnnotation) }, "rebalance-recommendation:PreferNoSchedule state", 1, 2},
			{0, func(w *world) { w.untaint(awsAdvisory) }, "", 0, 3},
		},
		"disabled: the marks of an earlier controller are removed": {
			{0, func(w *world) { w.taint(awsReclaim, "x", nil) }, "spot-itn:NoSchedule +120 state", 2, 1},
			{0, func(w *world) { w.settings = interruption.Settings{Signals: settings.Signals} }, "", 0, 2},
		},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cordoned := false
			for i, s := range steps {
				w.now = w.now.Add(s.after)
				s.do(w)
				cordoned = cordoned || w.node.Spec.Unschedulable
				theirs := foreign(w.node)
				moves := w.round(0)
				n := 0
				if moves != "" {
					n = strings.Count(moves, ",") + 1
				}
				clustertest.Equal(t, fmt.Sprintf("step %d: marks on the node", i), s.marks, w.marks())
				if n != s.moves || w.wrote != s.wrote {
					t.Errorf("step %d: moves %q, %d written, want %d and %d", i, moves, w.wrote, s.moves, s.wrote)
				}
				if diff := cmp.Diff(theirs, foreign(w.node)); diff != "" {
					t.Errorf("step %d: taints of others (-before +after):\n%s", i, diff)
				}
				if w.node.Spec.Unschedulable != cordoned {
					t.Errorf("step %d: cordon changed", i)
				}
			}
		})
	}
}

// Each change is reported in one event.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.taint(awsAdvisory, "x", nil)
	w.round(0)
	w.taint(maintenance, "", nil)
	w.round(time.Minute)
	w.taint(awsReclaim, "x", nil)
	w.round(time.Second)
	w.untaint(maintenance)
	w.untaint(awsReclaim)
	w.round(time.Second)
	w.round(30 * time.Minute)
	clustertest.Equal(t, "note", "Advisory expired: the node was not reclaimed in time", w.lastNote)
	w.untaint(awsAdvisory)
	w.round(2 * time.Hour)
	want := []string{spot.ReasonAdvisory, spot.ReasonInterruption, spot.ReasonAdvisory, spot.ReasonInterruptionOver}
	clustertest.Equal(t, "events", want, w.events)

	w.taint(awsReclaim, "x", nil)
	w.round(0)
	w.untaint(awsReclaim)
	w.round(0)
	clustertest.Equal(t, "note", "Interruption signal cleared", w.lastNote)
	w.taint(awsAdvisory, "x", nil)
	w.round(0)
	w.untaint(awsAdvisory) // when it would expire
	w.round(30 * time.Minute)
	clustertest.Equal(t, "note", "Interruption signal cleared", w.lastNote)
}

func foreign(n *v1.Node) (taints []v1.Taint) {
	for _, t := range n.Spec.Taints {
		if t.Key != own {
			taints = append(taints, t)
		}
	}
	return taints
}

// Moves with a deadline are first, the earliest first; then names decide.
func TestOrder(t *testing.T) {
	w := newWorld(t)
	names := map[string]func(*v1.Node){
		"a": func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: awsAdvisory}} },
		"b": func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: awsReclaim}} },
		"c": func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "cloud.google.com/impending-node-termination"}} },
	}
	s := &snapshot.Snapshot{Now: start}
	for _, name := range []string{"a", "b", "c"} {
		n := newSpotNode(name, v1.ConditionTrue)
		names[name](n.Node)
		for _, pod := range []string{"x", "w"} {
			n.Pods = append(n.Pods, w.pod(pod+"-on-"+name, "ReplicaSet"))
		}
		s.Nodes = append(s.Nodes, n)
	}
	marks, moves, _ := interruption.Plan(s, settings)
	var got []string
	for _, m := range marks {
		got = append(got, m.Node.Name)
	}
	for _, m := range moves {
		got = append(got, m.Pod.Name)
	}
	clustertest.Equal(t, "order", []string{"a", "b", "c", "w-on-c", "x-on-c", "w-on-b", "x-on-b", "w-on-a", "x-on-a"}, got)
}

// Of a workload's pods on all nodes with an advisory signal, the one with the lowest deletion cost
// moves first. The controller's own cost counts as none.
func TestAdvisoryFollowsDeletionCost(t *testing.T) {
	for name, test := range map[string]struct {
		annotations [2]map[string]string // of the pods on nodes a and b
		want        string
	}{
		"equal": {want: "on-a"},
		"cheap": {[2]map[string]string{nil, {v1.PodDeletionCost: "-1"}}, "on-b"},
		"busy":  {[2]map[string]string{{v1.PodDeletionCost: "7"}, nil}, "on-b"},
		"ours":  {[2]map[string]string{{v1.PodDeletionCost: "7", spot.DeletionCostAnnotation: "7"}, nil}, "on-a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := &snapshot.Snapshot{Now: start}
			pods := [2]*snapshot.Pod{w.pod("on-a", "ReplicaSet"), w.pod("on-b", "ReplicaSet")}
			pods[1].Workload, pods[1].Revision = pods[0].Workload, pods[0].Revision
			for i, p := range pods {
				n := newSpotNode(string(rune('a'+i)), v1.ConditionTrue)
				n.Spec.Taints, n.Pods, p.Annotations = []v1.Taint{{Key: awsAdvisory}}, []*snapshot.Pod{p}, test.annotations[i]
				s.Nodes = append(s.Nodes, n)
			}
			if _, moves, _ := interruption.Plan(s, settings); len(moves) != 1 || moves[0].Pod.Name != test.want {
				t.Errorf("%d moves, the first of %s; want one of %s", len(moves), moves[0].Pod.Name, test.want)
			}
		})
	}
}

// The API server refuses a mark that was planned for an older version of the Node, and Apply
// returns the conflict.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	w.node.ResourceVersion = "7"
	w.taint(awsReclaim, "x", at(0))
	marks, _, _ := interruption.Plan(w.snapshot(), settings)
	client := fake.NewClientset()
	var body []byte
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		body = action.(clienttesting.PatchAction).GetPatch()
		return true, nil, apierrors.NewConflict(v1.Resource("nodes"), "n", fmt.Errorf("changed"))
	})
	if err := interruption.Apply(t.Context(), client, marks[0]); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	var sent v1.Node
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	if sent.UID != clustertest.UID("n") || sent.ResourceVersion != "7" || len(sent.Spec.Taints) != 2 || sent.Spec.Taints[0].Key != awsReclaim {
		t.Errorf("patch %s, want the UID, the version and both taints", body)
	}
}
