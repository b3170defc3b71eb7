package replicasafety

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

func TestNewRefusesOtherArgs(t *testing.T) {
	for name, args := range map[string]runtime.Object{"none": nil, "another plugin's": &config.SpotPreferenceArgs{}} {
		if _, err := NewFactory(nil, &leader.Memory{})(t.Context(), args, nil); err == nil || !strings.Contains(err.Error(), "ReplicaSafetyArgs") {
			t.Errorf("%s: error %v, want one that names ReplicaSafetyArgs", name, err)
		}
	}
}

// The policy does not apply to pods that are bound to their node.
func TestPreFilterSkips(t *testing.T) {
	w := newWorld(t, nil)
	w.nodes(spotNode("spot"))
	static := annotate(podOf("static"), v1.MirrorPodAnnotationKey, "hash")
	for _, pod := range []*v1.Pod{podOf("daemon", by("DaemonSet", "ds")), static} {
		o := w.try(pod)
		if diff := cmp.Diff([]string{"spot"}, o.feasible); diff != "" {
			t.Errorf("%s: feasible (-want +got):\n%s", pod.Name, diff)
		}
		if !o.state.GetSkipFilterPlugins().Has(Name) {
			t.Errorf("%s: PreFilter did not skip", pod.Name)
		}
	}
}

// If every node is on-demand without a signal, PreFilter skips Filter. The later extension points
// still run.
func TestFilterIsSkippedIfAllNodesAreOpen(t *testing.T) {
	taint := func(key string) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}} }
	}
	cases := map[string]struct {
		other *v1.Node
		want  bool
	}{
		"all on-demand":           {onDemand("other"), true},
		"one is spot":             {spotNode("other"), false},
		"one is being reclaimed":  {changed(onDemand("other"), taint(spot.InterruptionTaint)), false},
		"one has an advisory":     {changed(onDemand("other"), taint("DeletionCandidateOfClusterAutoscaler")), false},
		"one has no label":        {&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, true},
		"one waits for its label": {&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", CreationTimestamp: metav1.NewTime(now)}}, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, deployment("web", 3, "1")...)
			w.nodes(onDemand("on-demand"), test.other)
			o := w.try(web("p"))
			if got := o.state.GetSkipFilterPlugins().Has(Name); got != test.want {
				t.Errorf("skipped: %t, want %t", got, test.want)
			}
			w.bind(o, web("p"), "on-demand")
			if s := placement.Read(o.state); s == nil || s.Placement == nil {
				t.Error("the placement was not recorded")
			}
		})
	}
}

// The plugin makes no decision before its caches are in sync: an empty cache looks like a cluster
// without replicas.
func TestNothingIsDecidedBeforeSync(t *testing.T) {
	w := newWorldNotSynced(t, nil, deployment("web", 3, "1")...)
	w.nodes(spotNode("spot"))
	o := w.try(web("p"))
	if o.rejected.Code() != fwk.Error || !errors.Is(o.rejected.AsError(), errNotSynced) {
		t.Fatalf("PreFilter: %v, want an error about unsynced caches", o.rejected)
	}
	w.factory.Start(w.ctx.Done())
	w.eventually("the caches are in sync", w.plugin.synced)
	if diff := cmp.Diff([]string{"spot"}, w.try(web("p")).feasible); diff != "" {
		t.Errorf("feasible in sync (-want +got):\n%s", diff)
	}
}

// Preemption cannot resolve a refusal: evicting other pods changes neither the budget nor the state
// of the node. test/answers has the verdicts of Filter for each setting, signal and owner.
func TestRefusalsAreUnresolvable(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 3, "1")...)
	drained := spotNode("drained")
	drained.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/disrupted"}}
	w.nodes(onDemand("on-demand"), spotNode("spot"), drained)
	w.addPods("spot", web("a"), web("b"))
	o := w.try(web("p"))
	if diff := cmp.Diff([]string{"on-demand"}, o.feasible); diff != "" {
		t.Errorf("feasible (-want +got):\n%s", diff)
	}
	want := map[string]string{
		"spot":    "spot budget used up: 2 of at most 2 replicas of shop/web-1 run on spot (waits for on-demand room)",
		"drained": "node is being drained",
	}
	if diff := cmp.Diff(want, w.reasons(o)); diff != "" { // reasons checks the codes
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// A pod that is assumed but not yet bound counts like a bound pod.
func TestAssumedPodsCount(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 2, "1")...)
	w.nodes(onDemand("on-demand"), spotNode("spot"))
	first := web("first")
	if diff := cmp.Diff([]string{"on-demand", "spot"}, w.try(first).feasible); diff != "" {
		t.Fatalf("first: feasible (-want +got):\n%s", diff)
	}
	assumed := first.DeepCopy()
	assumed.Spec.NodeName = "spot"
	w.must(w.cache.AssumePod(klog.FromContext(w.ctx), assumed))
	if diff := cmp.Diff([]string{"on-demand"}, w.try(web("second")).feasible); diff != "" {
		t.Errorf("second, while the first is assumed: feasible (-want +got):\n%s", diff)
	}
	w.must(w.cache.ForgetPod(klog.FromContext(w.ctx), assumed))
	if diff := cmp.Diff([]string{"on-demand", "spot"}, w.try(web("second")).feasible); diff != "" {
		t.Errorf("second, after the first was forgotten: feasible (-want +got):\n%s", diff)
	}
}

// A sibling that is nominated to a spot node uses the budget there. The pod's own nomination does
// not.
func TestNominatedPodsCount(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 2, "1")...)
	w.nodes(onDemand("on-demand"), spotNode("spot"))
	nominate := func(pod *v1.Pod) {
		info, err := framework.NewPodInfo(pod)
		w.must(err)
		w.nominated.clear("spot")
		w.nominated.add("spot", info)
	}
	nominate(web("sibling"))
	if diff := cmp.Diff([]string{"on-demand"}, w.try(web("p")).feasible); diff != "" {
		t.Errorf("a sibling is nominated: feasible (-want +got):\n%s", diff)
	}
	nominate(web("p"))
	if diff := cmp.Diff([]string{"on-demand", "spot"}, w.try(web("p")).feasible); diff != "" {
		t.Errorf("the pod itself is nominated: feasible (-want +got):\n%s", diff)
	}
}

// Preemption tries nodes without their victims. Evicting a live sibling frees budget; evicting a
// terminating one does not.
func TestPreemptionDryRun(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 3, "1")...)
	w.nodes(spotNode("spot"), onDemand("on-demand"))
	live, going := web("live"), terminating(web("going"))
	w.addPods("spot", live, web("other"), going)
	o := w.try(web("p"))
	info, err := w.snapshot.Get("spot")
	w.must(err)
	without := func(victim *v1.Pod) *fwk.Status {
		state := o.state.Clone()
		victimInfo, err := framework.NewPodInfo(victim)
		w.must(err)
		w.must(w.framework.RunPreFilterExtensionRemovePod(w.ctx, state, web("p"), victimInfo, info).AsError())
		return w.framework.RunFilterPlugins(w.ctx, state, web("p"), info)
	}
	if status := without(going); status.IsSuccess() {
		t.Error("without a terminating pod: feasible, want the budget used up as before")
	}
	if status := without(live); !status.IsSuccess() {
		t.Errorf("without a live sibling: %v, want feasible", status)
	}
	if status := w.framework.RunFilterPlugins(w.ctx, o.state, web("p"), info); status.IsSuccess() {
		t.Error("the dry run changed the state of the cycle itself")
	}
}

// An invalid annotation is reported once, however often the pod is tried.
func TestInvalidAnnotationIsReportedOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.nodes(spotNode("spot"))
	pod := annotate(podOf("p"), spot.MinOnDemandAnnotation, "3O%")
	for range 3 {
		w.try(pod)
		w.clock.Step(time.Second)
	}
	want := []string{`Warning InvalidSpotPolicy annotation spot-aware-scheduler.io/min-on-demand on the pod is ignored: invalid value "3O%": ` +
		`expected a count of 0 or more such as "2", or a percentage such as "30%", at most 100%`}
	if diff := cmp.Diff(want, w.recorded()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// An invalid annotation is not reported again at the second search of one attempt.
func TestInvalidAnnotationIsReportedOnceInTwoSearches(t *testing.T) {
	w := newWorld(t, nil)
	pod, state := annotate(podOf("p"), spot.MinOnDemandAnnotation, "3O%"), framework.NewCycleState()
	for range 2 {
		w.plugin.PreFilter(w.ctx, state, pod, nil)
	}
	if got := w.recorded(); len(got) != 1 {
		t.Errorf("%d events, want 1: %v", len(got), got)
	}
}

// Several invalid annotations share one event, because the recorder preserves only the first note
// of similar events on one pod. A note that is too long for the API server states how many it
// omits.
func TestInvalidAnnotationsShareAnEvent(t *testing.T) {
	w := newWorld(t, nil)
	w.nodes(spotNode("spot"))
	pod := annotate(podOf("p"), spot.MinOnDemandAnnotation, "3O%")
	pod.Annotations[spot.FallbackAfterAnnotation] = "soon"
	w.try(pod)
	want := []string{`Warning InvalidSpotPolicy annotation spot-aware-scheduler.io/min-on-demand on the pod is ignored: invalid value "3O%": ` +
		`expected a count of 0 or more such as "2", or a percentage such as "30%", at most 100%; ` +
		`annotation spot-aware-scheduler.io/fallback-after on the pod is ignored: invalid value "soon": ` +
		`expected a duration of 0 or more such as "5m", or "never"`}
	if diff := cmp.Diff(want, w.recorded()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	one := decision.InvalidAnnotation{Object: "pod", Key: spot.MinOnDemandAnnotation, Value: strings.Repeat("\U0010ffff", 64), Expected: "more"}
	note := workload.InvalidNote([]decision.InvalidAnnotation{one, one, one})
	if len(note) > 1024 || !strings.HasSuffix(note, "; and 2 more") {
		t.Errorf("%d bytes, want at most 1024 and the number of omitted annotations: %s", len(note), note)
	}
}

// If an annotation of a waiting pod changes to another invalid value, that value is reported too.
func TestInvalidAnnotationIsReportedWhenItChanges(t *testing.T) {
	w := newWorld(t, nil)
	w.nodes(spotNode("spot"))
	w.try(podOf("p"))
	for _, value := range []string{"3O%", "-1", "-1"} {
		w.try(annotate(podOf("p"), spot.MinOnDemandAnnotation, value))
	}
	var values []string
	for _, event := range w.recorded() {
		_, value, _ := strings.Cut(event, "invalid value ")
		value, _, _ = strings.Cut(value, ":")
		values = append(values, value)
	}
	if diff := cmp.Diff([]string{`"3O%"`, `"-1"`}, values); diff != "" {
		t.Errorf("reported values (-want +got):\n%s", diff)
	}
}
