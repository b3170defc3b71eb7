package replicasafety

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// changed returns a changed copy of object.
func changed[T interface{ DeepCopy() T }](object T, change func(T)) T {
	object = object.DeepCopy()
	change(object)
	return object
}

// hints returns the plugin's hints for nodes and for pods.
func (w *world) hints() (forNodes, forPods fwk.QueueingHintFn) {
	w.t.Helper()
	events, err := w.plugin.EventsToRegister(w.ctx)
	w.must(err)
	for _, e := range events {
		switch e.Event.Resource {
		case fwk.Node:
			forNodes = e.QueueingHintFn
		case fwk.Pod:
			forPods = e.QueueingHintFn
		default:
			w.t.Errorf("unexpected events of %s", e.Event.Resource)
		}
	}
	return forNodes, forPods
}

// isRegistered reports whether the plugin registered for one of the raised events.
func (w *world) isRegistered(raised ...fwk.ClusterEvent) bool {
	registered, err := w.plugin.EventsToRegister(w.ctx)
	w.must(err)
	for _, e := range registered {
		for _, r := range raised {
			if framework.MatchClusterEvents(e.Event, r) {
				return true
			}
		}
	}
	return false
}

func TestNodeHint(t *testing.T) {
	taint := func(key string) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}} }
	}
	soft := func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "x", Effect: v1.TaintEffectPreferNoSchedule}} }
	unreachable := func(since time.Duration) func(*v1.Node) {
		return func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
		}
	}
	cases := map[string]struct {
		before, after *v1.Node
		want          fwk.QueueingHint
	}{
		"added":                       {nil, onDemand("n"), fwk.Queue},
		"spot added":                  {nil, spotNode("n"), fwk.Queue},
		"deleted":                     {spotNode("n"), nil, fwk.Queue},
		"becomes on-demand":           {spotNode("n"), onDemand("n"), fwk.Queue},
		"label set":                   {newNode("n", ""), onDemand("n"), fwk.Queue},
		"another pool":                {spotNode("n"), changed(spotNode("n"), func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = "b" }), fwk.Queue},
		"signal cleared":              {changed(spotNode("n"), taint("karpenter.sh/disrupted")), spotNode("n"), fwk.Queue},
		"signal set":                  {spotNode("n"), changed(spotNode("n"), taint("karpenter.sh/disrupted")), fwk.Queue},
		"ready again":                 {changed(spotNode("n"), unreachable(time.Hour)), spotNode("n"), fwk.Queue},
		"ready again before the loss": {changed(spotNode("n"), unreachable(time.Second)), spotNode("n"), fwk.QueueSkip},
		"heartbeat":                   {spotNode("n"), changed(spotNode("n"), func(n *v1.Node) { n.Status.Images = []v1.ContainerImage{{}} }), fwk.QueueSkip},
		"another label":               {spotNode("n"), changed(spotNode("n"), func(n *v1.Node) { n.Labels["x"] = "y" }), fwk.QueueSkip},
		"an untolerated taint":        {onDemand("n"), changed(onDemand("n"), taint("example.com/gpu")), fwk.Queue}, // the pod may now admit only spot
		"a taint removed":             {changed(spotNode("n"), taint("example.com/gpu")), spotNode("n"), fwk.Queue},
		"a soft taint":                {spotNode("n"), changed(spotNode("n"), soft), fwk.QueueSkip},
		"the selected label removed":  {changed(onDemand("n"), func(n *v1.Node) { n.Labels["pool"] = "x" }), onDemand("n"), fwk.Queue},
		"on-demand stops reporting":   {onDemand("n"), changed(onDemand("n"), unreachable(time.Hour)), fwk.QueueSkip},
	}
	w := newWorldNotSynced(t, nil)
	hint, _ := w.hints()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podOf("p")
			if name == "the selected label removed" {
				pod.Spec.NodeSelector = map[string]string{"pool": "x"}
			}
			got, err := hint(klog.Background(), pod, object(test.before), object(test.after))
			if err != nil || got != test.want {
				t.Errorf("hint = %s, error %v; want %s", got, err, test.want)
			}
			if raised := raisedByNode(test.before, test.after); test.want == fwk.Queue && !w.isRegistered(raised...) {
				t.Errorf("the plugin did not register for %v", raised)
			}
		})
	}
}

// raisedByNode and raisedByPod return the events that the scheduler raises for a change.
func raisedByNode(before, after *v1.Node) []fwk.ClusterEvent {
	switch {
	case before == nil:
		return []fwk.ClusterEvent{{Resource: fwk.Node, ActionType: fwk.Add}}
	case after == nil:
		return []fwk.ClusterEvent{{Resource: fwk.Node, ActionType: fwk.Delete}}
	}
	return framework.NodeSchedulingPropertiesChange(after, before)
}

func raisedByPod(before, after *v1.Pod) []fwk.ClusterEvent {
	switch {
	case before == nil:
		return []fwk.ClusterEvent{framework.EventAssignedPodAdd}
	case after == nil:
		return []fwk.ClusterEvent{framework.EventAssignedPodDelete}
	}
	return framework.PodSchedulingPropertiesChange(after, before)
}

// object converts p to the form in an event: nil becomes a nil interface.
func object[T any](p *T) any {
	if p == nil {
		return nil
	}
	return p
}

func TestPodHint(t *testing.T) {
	bound := func(name, replicaSet string) *v1.Pod {
		pod := podOf(name, by("ReplicaSet", replicaSet))
		pod.Spec.NodeName = "n"
		return pod
	}
	elsewhere := changed(bound("s", "web-2"), func(p *v1.Pod) { p.Namespace = "elsewhere" })
	waiting := podOf("p", by("ReplicaSet", "web-2"))
	cases := map[string]struct {
		before, after *v1.Pod
		want          fwk.QueueingHint
	}{
		"sibling deleted":    {bound("s", "web-2"), nil, fwk.Queue},
		"sibling terminates": {bound("s", "web-2"), terminating(bound("s", "web-2")), fwk.Queue},
		"sibling succeeds":   {bound("s", "web-2"), changed(bound("s", "web-2"), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), fwk.Queue},
		"sibling released":   {bound("s", "web-2"), changed(bound("s", "web-2"), func(p *v1.Pod) { p.OwnerReferences = nil }), fwk.Queue},
		"terminating sibling released": {terminating(bound("s", "web-2")),
			changed(terminating(bound("s", "web-2")), func(p *v1.Pod) { p.OwnerReferences = nil }), fwk.QueueSkip},
		"sibling's status":               {bound("s", "web-2"), changed(bound("s", "web-2"), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }), fwk.QueueSkip},
		"sibling bound":                  {nil, bound("s", "web-2"), fwk.QueueSkip},
		"other revision bound":           {nil, bound("s", "web-1"), fwk.Queue},
		"other revision deleted":         {bound("s", "web-1"), nil, fwk.QueueSkip},
		"other Deployment's bound":       {nil, bound("s", "api-1"), fwk.QueueSkip},
		"other Deployment's deleted":     {bound("s", "api-1"), nil, fwk.QueueSkip},
		"other namespace's deleted":      {elsewhere, nil, fwk.QueueSkip},
		"pod without controller deleted": {podOf("s"), nil, fwk.QueueSkip},
		"itself, status only": {waiting, changed(waiting, func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse}}
			p.Status.NominatedNodeName = "n"
		}), fwk.QueueSkip},
		"itself, resource version only": {waiting, changed(waiting, func(p *v1.Pod) { p.ResourceVersion = "2" }), fwk.QueueSkip},
		"itself, labels":                {waiting, changed(waiting, func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }), fwk.Queue},
		"itself, annotations":           {waiting, annotate(waiting.DeepCopy(), spot.MinOnDemandAnnotation, "0"), fwk.Queue},
		"itself, released":              {waiting, changed(waiting, func(p *v1.Pod) { p.OwnerReferences = nil }), fwk.Queue},
	}
	w := newWorld(t, nil, append(deployment("web", 3, "1", "2"), deployment("api", 3, "1")...)...)
	_, hint := w.hints()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := hint(klog.Background(), waiting, object(test.before), object(test.after))
			if err != nil || got != test.want {
				t.Errorf("hint = %s, error %v; want %s", got, err, test.want)
			}
			if raised := raisedByPod(test.before, test.after); test.want == fwk.Queue && !w.isRegistered(raised...) {
				t.Errorf("the plugin did not register for %v", raised)
			}
		})
	}
}

// A change of an owner wakes its pods if it may change the budget. Other changes do not.
func TestOwnerHandler(t *testing.T) {
	scaled := func(generation int64) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: "web", Generation: generation}}
	}
	cases := map[string]struct {
		before, after metav1.Object
		want          bool
	}{
		"scaled":      {scaled(1), scaled(2), true},
		"annotated":   {scaled(1), changed(scaled(1), func(d *appsv1.Deployment) { d.Annotations = map[string]string{spot.MinOnDemandAnnotation: "2"} }), true},
		"status only": {scaled(1), changed(scaled(1), func(d *appsv1.Deployment) { d.Status.Replicas, d.ResourceVersion = 3, "7" }), false},
		"labels only": {scaled(1), changed(scaled(1), func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }), false},
		"owner reference removed": {&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "web", OwnerReferences: []metav1.OwnerReference{by("Deployment", "d")}}},
			&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "web"}}, true},
		"Job progressed": {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "web"}},
			&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "web"}, Status: batchv1.JobStatus{Succeeded: 1}}, true},
		"Job's active pods": {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "web"}},
			&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "web"}, Status: batchv1.JobStatus{Active: 1, Failed: 1}}, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldNotSynced(t, nil)
			owner, _ := workload.ControllerKey(test.after)
			w.plugin.waiting.AddUnschedulable(podOf("p"), placement.Wait{Owners: []workload.OwnerKey{owner}})
			w.plugin.waiting.AddUnschedulable(podOf("other"), placement.Wait{Owners: []workload.OwnerKey{keyOf("Deployment", "other")}})
			w.plugin.ownerHandler().Update(test.before, test.after)
			var want []string
			if test.want {
				want = []string{"shop/p"}
			}
			if diff := cmp.Diff(want, w.woken.take()); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// The same through the informers: a change of its Deployment in the API server wakes a pod over its
// budget.
func TestScalingAndAnnotatingWake(t *testing.T) {
	for name, change := range map[string]func(*appsv1.Deployment){
		"scaled":    func(d *appsv1.Deployment) { d.Spec.Replicas, d.Generation = new(int32), 2; *d.Spec.Replicas = 2 },
		"annotated": func(d *appsv1.Deployment) { d.Annotations = map[string]string{spot.MinOnDemandAnnotation: "0"} },
	} {
		t.Run(name, func(t *testing.T) {
			objects := deployment("web", 1, "1")
			w := newWorld(t, nil, objects...)
			w.nodes(spotNode("spot"))
			if o := w.try(web("p")); len(o.feasible) > 0 {
				t.Fatalf("feasible before: %v", o.feasible)
			}
			_, err := w.client.AppsV1().Deployments("shop").Update(w.ctx, changed(objects[0].(*appsv1.Deployment), change), metav1.UpdateOptions{})
			w.must(err)
			w.wokenEventually("shop/p")
			if diff := cmp.Diff([]string{"spot"}, w.try(web("p")).feasible); diff != "" {
				t.Errorf("feasible after (-want +got):\n%s", diff)
			}
		})
	}
}

// A change of an owner retries only the pods for which it may open a node. Each test first has the
// pod refused by a cycle, then adds the change to the informer's index, then calls the handler.
func TestOwnerChangeWakesPodsThatItMayHelp(t *testing.T) {
	const floorAnnotation = spot.MinOnDemandAnnotation
	on := func(replicas int32, annotations map[string]string) *appsv1.Deployment {
		return withAnnotations(annotations, deployment("web", replicas, "1"))[0].(*appsv1.Deployment)
	}
	progressed := func(j *batchv1.Job, succeeded int32) *batchv1.Job {
		return changed(j, func(j *batchv1.Job) { j.Status.Succeeded = succeeded })
	}
	floorOf := func(j *batchv1.Job, floor string) *batchv1.Job {
		return changed(j, func(j *batchv1.Job) { j.Annotations = map[string]string{floorAnnotation: floor} })
	}
	ordered := func(replicas, start int32) *appsv1.StatefulSet {
		set := statefulSet("db", replicas)
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: start}
		set.Annotations = map[string]string{floorAnnotation: "50%"}
		return set
	}
	revision := func(number string) *appsv1.ReplicaSet {
		set := deployment("web", 3, "1")[1].(*appsv1.ReplicaSet)
		set.Annotations = map[string]string{"deployment.kubernetes.io/revision": number}
		return set
	}
	orphan := changed(revision("1"), func(set *appsv1.ReplicaSet) { set.OwnerReferences = nil })
	jobPod, webPod := podOf("p", by("Job", "j")), web("p")
	jobPod.Labels[batchv1.ControllerUidLabel] = "j-uid"
	ofDB := func(ordinal string) *v1.Pod { return podOf("db-"+ordinal, by("StatefulSet", "db")) }
	ignore := func(args *config.ReplicaSafetyArgs) { args.AnnotationPolicy = new(config.IgnoreAnnotations) }
	cases := map[string]struct {
		args          func(*config.ReplicaSafetyArgs)
		pod           *v1.Pod
		onSpot        int // siblings on the spot node
		before, after runtime.Object
		want          bool
	}{
		"Job without a floor progresses":                     {nil, jobPod, 0, job("j", 9, 99), progressed(job("j", 9, 99), 1), false},
		"Job without a floor completes":                      {nil, jobPod, 0, job("j", 9, 9), progressed(job("j", 9, 9), 1), false},
		"Job with a floor progresses":                        {nil, jobPod, 1, floorOf(job("j", 2, 99), "1"), progressed(floorOf(job("j", 2, 99), "1"), 1), false},
		"Job with a floor completes":                         {nil, jobPod, 1, floorOf(job("j", 2, 2), "1"), progressed(floorOf(job("j", 2, 2), "1"), 1), false},
		"Job with a floor gets more parallelism":             {nil, jobPod, 1, floorOf(job("j", 2, 99), "1"), floorOf(job("j", 3, 99), "1"), true},
		"Job's floor is lifted":                              {nil, jobPod, 1, floorOf(job("j", 2, 99), "1"), job("j", 2, 99), true},
		"Job gets backoffLimit 0":                            {nil, jobPod, 0, job("j", 2, 99), changed(job("j", 2, 99), func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32) }), true},
		"Deployment over its budget is scaled up":            {nil, webPod, 2, on(3, nil), on(4, nil), true},
		"Deployment over its budget is scaled down":          {nil, webPod, 2, on(4, map[string]string{floorAnnotation: "2"}), on(3, map[string]string{floorAnnotation: "2"}), false},
		"Deployment within its budget is scaled":             {nil, webPod, 1, on(3, nil), on(4, nil), false},
		"gang within its budget is scaled":                   {nil, inGang(web("p")), 1, on(3, nil), on(4, nil), true},
		"gang's other annotation":                            {nil, inGang(web("p")), 1, on(3, nil), on(3, map[string]string{"a": "b"}), false},
		"outdated Deployment is scaled up":                   {nil, webPod, 3, on(3, nil), on(4, nil), true},
		"outdated Deployment is scaled down":                 {nil, webPod, 3, on(3, nil), on(2, nil), false},
		"outdated Deployment is annotated":                   {nil, webPod, 3, on(3, nil), on(3, map[string]string{"a": "b"}), false},
		"Deployment's floor is lowered":                      {nil, webPod, 2, on(3, nil), on(3, map[string]string{floorAnnotation: "0"}), true},
		"Deployment's floor is lowered, annotations ignored": {ignore, webPod, 2, on(3, nil), on(3, map[string]string{floorAnnotation: "0"}), false},
		"Deployment's floor is not a number":                 {nil, webPod, 2, on(3, nil), on(3, map[string]string{floorAnnotation: "x"}), true},
		"Deployment falls back sooner":                       {nil, webPod, 2, on(3, nil), on(3, map[string]string{spot.FallbackAfterAnnotation: "1s"}), true},
		"Deployment's other annotation":                      {nil, webPod, 2, on(3, nil), on(3, map[string]string{"a": "b"}), false},
		"ReplicaSet is the newest again":                     {nil, webPod, 2, revision("1"), revision("3"), true},
		"ReplicaSet's other annotation": {nil, webPod, 2, revision("1"),
			changed(revision("1"), func(set *appsv1.ReplicaSet) { set.Annotations["a"] = "b" }), false},
		"ReplicaSet is orphaned":        {nil, webPod, 2, revision("1"), orphan, true},
		"StatefulSet's floor shrinks":   {nil, ofDB("3"), 0, ordered(8, 0), ordered(6, 0), true},
		"StatefulSet's floor grows":     {nil, ofDB("3"), 0, ordered(8, 0), ordered(9, 0), false},
		"StatefulSet starts lower":      {nil, ofDB("3"), 0, ordered(8, 1), ordered(8, 0), true},
		"StatefulSet loses the ordinal": {nil, ofDB("9"), 0, ordered(9, 0), ordered(8, 0), false},
		"StatefulSet gets the ordinal":  {nil, ofDB("9"), 0, ordered(9, 0), ordered(10, 0), true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{test.before}
			if set, ok := test.before.(*appsv1.ReplicaSet); ok {
				objects = append(objects, deployment(set.OwnerReferences[0].Name, 3, "1")[0])
			} else if _, ok := test.before.(*appsv1.Deployment); ok {
				objects = append(objects, deployment("web", 3, "1")[1])
			}
			w := newWorld(t, test.args, objects...)
			w.plugin.schedulesGangs = func() bool { return true }
			w.nodes(spotNode("full"))
			for i := range test.onSpot {
				sibling := test.pod.DeepCopy()
				sibling.Name, sibling.UID = fmt.Sprintf("s-%d", i), types.UID(fmt.Sprintf("s-%d", i))
				w.addPods("full", sibling)
			}
			w.refuse(test.pod)
			w.change(test.before, test.after)
			var want []string
			if test.want {
				want = []string{"shop/" + test.pod.Name}
			}
			if diff := cmp.Diff(want, w.woken.take()); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// refuse has pod found unschedulable by ReplicaSafety, or by another plugin if ReplicaSafety admits
// it.
func (w *world) refuse(pod *v1.Pod) {
	w.t.Helper()
	if o := w.try(pod); len(o.feasible) > 0 {
		w.framework.RunPostFilterPlugins(w.ctx, o.state, pod, framework.NewDefaultNodeToStatus())
	}
	if got := w.woken.take(); got != nil {
		w.t.Fatalf("woken immediately: %v", got)
	}
}

// change applies an owner's change like an informer: first to the cache, then to the handler.
func (w *world) change(before, after runtime.Object) {
	w.t.Helper()
	apps := w.factory.Apps().V1()
	var informer cache.SharedIndexInformer
	switch after.(type) {
	case *appsv1.Deployment:
		informer = apps.Deployments().Informer()
	case *appsv1.ReplicaSet:
		informer = apps.ReplicaSets().Informer()
	case *appsv1.StatefulSet:
		informer = apps.StatefulSets().Informer()
	case *batchv1.Job:
		informer = w.factory.Batch().V1().Jobs().Informer()
	default:
		w.t.Fatalf("no informer for %T", after)
	}
	after = after.DeepCopyObject()
	after.(metav1.Object).SetGeneration(before.(metav1.Object).GetGeneration() + 1)
	w.must(informer.GetIndexer().Update(after))
	w.plugin.ownerHandler().OnUpdate(before, after)
}

// If the number of live pods is the replica count, a new pod retries its siblings only if it
// increases the budget.
func TestClonesWake(t *testing.T) {
	cases := map[string]struct {
		floor           string
		onSpot, waiting int // siblings
		want            []string
	}{
		"within the budget": {"1", 0, 2, nil},
		"over the budget":   {"1", 2, 0, []string{"shop/p"}},
		"no budget":         {"100%", 2, 0, nil},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.nodes(spotNode("full"))
			clone := func(name string) *v1.Pod {
				return annotate(podOf(name, by("CloneSet", "clones")), spot.MinOnDemandAnnotation, test.floor)
			}
			for i := range test.onSpot {
				sibling := clone(fmt.Sprintf("s-%d", i))
				w.seen(sibling)
				w.addPods("full", sibling)
			}
			for i := range test.waiting {
				w.seen(clone(fmt.Sprintf("w-%d", i)))
			}
			w.refuse(clone("p"))
			more := clone("more")
			w.seen(more)
			w.plugin.podHandler().Add(more)
			if diff := cmp.Diff(test.want, w.woken.take()); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// If the number of live pods is the replica count, its changes wake the siblings. The plugin has no
// record of a pod that no longer waits.
func TestPodHandler(t *testing.T) {
	clone := func(name string) *v1.Pod { return podOf(name, by("CloneSet", "clones")) }
	bound := func(pod *v1.Pod) *v1.Pod { return changed(pod, func(p *v1.Pod) { p.Spec.NodeName = "n" }) }
	cases := map[string]struct {
		happens   func(cache.ResourceEventHandler)
		want      []string
		wantWaits bool // the pod "p", a clone
	}{
		"clone added":            {func(h cache.ResourceEventHandler) { h.OnAdd(clone("s"), false) }, []string{"shop/p"}, true},
		"other kind's pod added": {func(h cache.ResourceEventHandler) { h.OnAdd(web("s"), false) }, nil, true},
		"clone terminates":       {func(h cache.ResourceEventHandler) { h.OnUpdate(clone("s"), terminating(clone("s"))) }, []string{"shop/p"}, true},
		"clone is bound":         {func(h cache.ResourceEventHandler) { h.OnUpdate(clone("s"), bound(clone("s"))) }, nil, true},
		"clone is deleted":       {func(h cache.ResourceEventHandler) { h.OnDelete(clone("s")) }, []string{"shop/p"}, true},
		"clone was deleted unseen": {func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "shop/s", Obj: clone("s")})
		}, []string{"shop/p"}, true},
		"other kind's pod is deleted": {func(h cache.ResourceEventHandler) { h.OnDelete(web("s")) }, nil, true},
		"itself, bound":               {func(h cache.ResourceEventHandler) { h.OnUpdate(clone("p"), bound(clone("p"))) }, nil, false},
		"itself, deleted":             {func(h cache.ResourceEventHandler) { h.OnDelete(clone("p")) }, nil, false},
		"itself, status":              {func(h cache.ResourceEventHandler) { h.OnUpdate(clone("p"), clone("p")) }, nil, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldNotSynced(t, nil)
			w.plugin.waiting.AddUnschedulable(clone("p"), placement.Wait{Owners: []workload.OwnerKey{keyOf("CloneSet", "clones")}})
			w.plugin.waiting.AddUnschedulable(web("w"), placement.Wait{Owners: []workload.OwnerKey{keyOf("ReplicaSet", "web-1")}})
			test.happens(w.plugin.podHandler())
			if diff := cmp.Diff(test.want, w.woken.take()); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
			if _, waits := w.plugin.waiting.Since(clone("p")); waits != test.wantWaits {
				t.Errorf("waits = %t, want %t", waits, test.wantWaits)
			}
		})
	}
}

// The deletion of a node wakes the pods that depend on siblings one second later, after the
// scheduler's cache has removed the node.
func TestNodeHandlerWakesAfterNodeDeletion(t *testing.T) {
	w := newWorldNotSynced(t, nil)
	w.plugin.waiting.AddUnschedulable(web("dependent"), placement.Wait{DependsOnSiblings: true})
	w.plugin.waiting.AddUnschedulable(podOf("singleton"), placement.Wait{ForOnDemand: true})
	w.plugin.nodeHandler().Delete(spotNode("n"))
	if got := w.woken.take(); got != nil {
		t.Errorf("woken immediately: %v", got)
	}
	w.clock.Step(time.Second)
	if diff := cmp.Diff([]string{"shop/dependent"}, w.woken.take()); diff != "" {
		t.Errorf("woken after a second (-want +got):\n%s", diff)
	}
}

// Contradictory and unknown capacity labels are reported on the node when they are first seen, not
// at every heartbeat.
func TestCapacityLabelEvents(t *testing.T) {
	contradictory := newNode("n", "")
	contradictory.Labels["karpenter.sh/capacity-type"], contradictory.Labels["eks.amazonaws.com/capacityType"] = "spot", "ON_DEMAND"
	event := []string{"Warning ContradictoryCapacityLabels capacity labels contradict each other: the node counts as spot"}
	// Karpenter creates such a value for a pod that excludes spot.
	invented := newNode("n", "5958825377106311128")
	provisioned := changed(invented, func(n *v1.Node) { n.Labels["karpenter.sh/capacity-type"] = "on-demand" })
	stays := changed(provisioned, func(n *v1.Node) { n.Labels["example.com/rack"] = "7" })
	plain := changed(newNode("n", ""), func(n *v1.Node) { n.Labels["cloud.google.com/gke-spot"] = "false" })
	w := newWorldNotSynced(t, nil)
	handler := w.plugin.labels.Handler()
	for _, step := range []struct {
		name    string
		happens func()
		want    []string
	}{
		{"a valid node is added", func() { handler.Add(spotNode("n")) }, nil},
		{"its labels become contradictory", func() { handler.Update(spotNode("n"), contradictory) }, event},
		{"heartbeat", func() { handler.Update(contradictory, contradictory) }, nil},
		{"a contradictory node is added", func() { handler.Add(contradictory) }, event},
		{"settled", func() { handler.Update(contradictory, onDemand("n")) }, nil},
		{"an unknown value is ignored", func() { handler.Add(provisioned) }, []string{"Warning UnknownCapacityLabel ignored unknown values of capacity labels: " +
			"node.kubernetes.io/capacity=5958825377106311128; the node counts as on-demand by its other labels"}},
		{"another label changes", func() { handler.Update(provisioned, stays) }, nil},
		{"an unknown value alone", func() { handler.Add(invented) }, []string{"Warning ContradictoryCapacityLabels capacity labels contradict each other " +
			"or have unknown values (node.kubernetes.io/capacity=5958825377106311128): the node counts as spot"}},
		{"a known value", func() { handler.Add(plain) }, nil},
	} {
		step.happens()
		if diff := cmp.Diff(step.want, w.recorded()); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", step.name, diff)
		}
	}
}

// A node without a capacity label at the end of its grace is reported once, whether or not the
// scheduler is idle.
func TestNoCapacityLabelEvent(t *testing.T) {
	event := []string{"Normal NoCapacityLabel no capacity label was set within labelGrace (30s): the node counts as on-demand"}
	for name, test := range map[string]struct {
		change func(*config.ReplicaSafetyArgs)
		before []runtime.Object
		then   func(w *world)
		want   []string
	}{
		"the label is never set": {before: []runtime.Object{spotNode("spot"), young("young")}, want: event},
		"unlabelled nodes are spot": {
			change: func(args *config.ReplicaSafetyArgs) { args.UnlabeledNodes = new(config.Spot) },
			before: []runtime.Object{spotNode("spot"), young("young")},
			want:   []string{"Normal NoCapacityLabel no capacity label was set within labelGrace (30s): the node counts as spot"},
		},
		"the label is set": {
			before: []runtime.Object{spotNode("spot"), young("young")},
			then: func(w *world) {
				_, err := w.client.CoreV1().Nodes().Update(w.ctx, onDemand("young"), metav1.UpdateOptions{})
				w.must(err)
				w.eventually("the label is seen", func() bool {
					n, err := w.plugin.nodes.Get("young")
					return err == nil && n.Labels[spot.CapacityLabel] != ""
				})
			},
		},
		"the node is deleted": {
			before: []runtime.Object{spotNode("spot"), young("young")},
			then: func(w *world) {
				w.must(w.client.CoreV1().Nodes().Delete(w.ctx, "young", metav1.DeleteOptions{}))
				w.eventually("the node is deleted", func() bool { _, err := w.plugin.nodes.Get("young"); return err != nil })
			},
		},
		"the node is old":     {before: []runtime.Object{spotNode("spot"), newNode("old", "")}},
		"no node has a label": {before: []runtime.Object{newNode("old", ""), young("young")}, want: event},
		"labelGrace is 0": {
			change: func(args *config.ReplicaSafetyArgs) { args.LabelGrace = &metav1.Duration{} }, before: []runtime.Object{spotNode("spot"), young("young")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.change, test.before...)
			if test.then != nil {
				test.then(w)
			}
			w.clock.Step(29 * time.Second)
			if early := w.recorded(); early != nil {
				t.Errorf("events within the grace: %v", early)
			}
			for range 2 { // only once
				w.clock.Step(time.Second)
			}
			if diff := cmp.Diff(test.want, w.recorded()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
