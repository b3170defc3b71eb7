package replicasafety

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// create creates an object in the API server. The informers receive it.
func (w *world) create(object runtime.Object) {
	w.t.Helper()
	w.must(w.client.Tracker().Add(object))
}

func (w *world) wokenEventually(names ...string) {
	w.t.Helper()
	var got []string
	w.eventually("woken", func() bool {
		got = slices.Compact(slices.Sorted(slices.Values(append(got, w.woken.take()...))))
		return slices.Equal(got, names)
	})
}

// If the informers do not know the owner of a pod, the plugin does not guess: the pod waits and is
// woken when the owner appears. It is then placed according to the owner.
func TestOwnerNotInTheCache(t *testing.T) {
	objects := deployment("web", 1, "1")
	owner, replicaSet := objects[0], objects[1]
	cases := map[string]struct {
		pod  *v1.Pod
		have []runtime.Object
		// appear in this order; the pod waits for each
		appear     []runtime.Object
		wantReason []string
	}{
		"ReplicaSet": {web("p"), []runtime.Object{owner}, []runtime.Object{replicaSet},
			[]string{"owner not known yet: waits for ReplicaSet shop/web-1 to appear in the cache"}},
		"Deployment": {web("p"), []runtime.Object{replicaSet}, []runtime.Object{owner},
			[]string{"owner not known yet: waits for Deployment shop/web to appear in the cache"}},
		"both": {web("p"), nil, []runtime.Object{replicaSet, owner},
			[]string{"owner not known yet: waits for ReplicaSet shop/web-1 to appear in the cache",
				"owner not known yet: waits for Deployment shop/web to appear in the cache"}},
		"StatefulSet": {podOf("db-0", by("StatefulSet", "db")), nil, []runtime.Object{statefulSet("db", 3)},
			[]string{"owner not known yet: waits for StatefulSet shop/db to appear in the cache"}},
		"ReplicationController": {podOf("p", by("ReplicationController", "rc")), nil, []runtime.Object{&v1.ReplicationController{ObjectMeta: meta("rc")}},
			[]string{"owner not known yet: waits for ReplicationController shop/rc to appear in the cache"}},
		"Job": {annotate(podOf("j-x", by("Job", "j")), spot.MinOnDemandAnnotation, "1"), nil, []runtime.Object{job("j", 1, 1)},
			[]string{"owner not known yet: waits for Job shop/j to appear in the cache"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, test.have...)
			w.nodes(onDemand("on-demand"), spotNode("spot"))
			for i, object := range test.appear {
				o := w.try(test.pod)
				if o.rejected.Code() != fwk.UnschedulableAndUnresolvable {
					t.Fatalf("PreFilter: %v, want UnschedulableAndUnresolvable", o.rejected)
				}
				if diff := cmp.Diff([]string{test.wantReason[i]}, o.rejected.Reasons()); diff != "" {
					t.Errorf("reasons (-want +got):\n%s", diff)
				}
				if got, _ := w.plugin.waiting.ForOnDemand(); got != 0 {
					t.Errorf("%d pods wait for on-demand, want 0: this one waits for its owner", got)
				}
				w.create(object)
				w.wokenEventually("shop/" + test.pod.Name)
			}
			if diff := cmp.Diff([]string{"on-demand"}, w.try(test.pod).feasible); diff != "" {
				t.Errorf("feasible (-want +got):\n%s", diff)
			}
		})
	}
}

// scaleTo10 scales an owner in the API server. The informers receive the change.
func (w *world) scaleTo10(object runtime.Object) {
	w.t.Helper()
	apps, options := w.client.AppsV1(), metav1.UpdateOptions{}
	var err error
	switch owner := object.DeepCopyObject().(type) {
	case *appsv1.Deployment:
		owner.Generation, owner.Spec.Replicas = 2, ptr.To[int32](10)
		_, err = apps.Deployments(owner.Namespace).Update(w.ctx, owner, options)
	case *appsv1.ReplicaSet:
		owner.Generation, owner.Spec.Replicas = 2, ptr.To[int32](10)
		_, err = apps.ReplicaSets(owner.Namespace).Update(w.ctx, owner, options)
	case *appsv1.StatefulSet:
		owner.Generation, owner.Spec.Replicas = 2, ptr.To[int32](10)
		_, err = apps.StatefulSets(owner.Namespace).Update(w.ctx, owner, options)
	default:
		w.t.Fatalf("cannot scale a %T", object)
	}
	w.must(err)
}

// A workload was scaled up, and the scheduler sees the new pod before the change of the workload.
// The pod waits for the change and is then placed according to it. Without a change it is placed
// after five seconds according to the known state.
func TestOutdatedOwner(t *testing.T) {
	half := map[string]string{spot.MinOnDemandAnnotation: "50%"}
	set := statefulSet("db", 3)
	set.Annotations = half
	alone := &appsv1.ReplicaSet{ObjectMeta: meta("alone"), Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3)}}
	ofAlone := func(name string) *v1.Pod { return podOf(name, by("ReplicaSet", "alone")) }
	ofSet := func(name string) *v1.Pod { return podOf(name, by("StatefulSet", "db")) }
	for name, test := range map[string]struct {
		owners          []runtime.Object // the first is scaled
		onDemand, spot  []*v1.Pod
		pod             *v1.Pod
		want            string
		wantInTime      []string // admitted nodes after the change
		wantWithoutNews []string
	}{
		"Deployment": {
			owners: deployment("web", 3, "1"), onDemand: []*v1.Pod{web("a")}, spot: []*v1.Pod{web("b"), web("c")}, pod: web("p"),
			want:       "owner not up to date yet: all 3 replicas of shop/web-1 are placed (waits for an update of its Deployment, at most 5s)",
			wantInTime: []string{"on-demand", "spot"}, wantWithoutNews: []string{"on-demand"},
		},
		"ReplicaSet": {
			owners: []runtime.Object{alone}, onDemand: []*v1.Pod{ofAlone("a")}, spot: []*v1.Pod{ofAlone("b"), ofAlone("c")}, pod: ofAlone("p"),
			want:       "owner not up to date yet: all 3 replicas of shop/alone are placed (waits for an update of its ReplicaSet, at most 5s)",
			wantInTime: []string{"on-demand", "spot"}, wantWithoutNews: []string{"on-demand"},
		},
		"StatefulSet with a higher floor": {
			owners: []runtime.Object{set}, onDemand: []*v1.Pod{ofSet("db-0"), ofSet("db-1")}, spot: []*v1.Pod{ofSet("db-2")}, pod: ofSet("db-3"),
			want:       "owner not up to date yet: shop/db has no ordinal 3 with 3 replicas (waits for an update of its StatefulSet, at most 5s)",
			wantInTime: []string{"on-demand"}, wantWithoutNews: []string{"on-demand", "spot"},
		},
	} {
		waits := func(t *testing.T) *world {
			owners := make([]runtime.Object, len(test.owners))
			for i, owner := range test.owners {
				owners[i] = owner.DeepCopyObject()
			}
			w := newWorld(t, nil, owners...)
			w.nodes(onDemand("on-demand"), spotNode("spot"))
			for _, pod := range test.onDemand {
				w.addPods("on-demand", pod.DeepCopy())
			}
			for _, pod := range test.spot {
				w.addPods("spot", pod.DeepCopy())
			}
			o := w.try(test.pod)
			if o.rejected.Code() != fwk.UnschedulableAndUnresolvable {
				t.Fatalf("PreFilter: %v, want UnschedulableAndUnresolvable; feasible: %v", o.rejected, o.feasible)
			}
			if diff := cmp.Diff([]string{test.want}, o.rejected.Reasons()); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if got := w.woken.take(); got != nil {
				t.Errorf("woken without a change: %v", got)
			}
			return w
		}
		t.Run(name, func(t *testing.T) {
			w := waits(t)
			w.scaleTo10(test.owners[0])
			w.wokenEventually("shop/" + test.pod.Name)
			if diff := cmp.Diff(test.wantInTime, w.try(test.pod).feasible); diff != "" {
				t.Errorf("feasible after the change (-want +got):\n%s", diff)
			}
		})
		t.Run(name+", no change", func(t *testing.T) {
			w := waits(t)
			w.clock.Step(decision.MaxOwnerDelay - 1)
			if o := w.try(test.pod); len(o.feasible) > 0 || w.woken.take() != nil {
				t.Fatalf("feasible before 5 s: %v", o.feasible)
			}
			w.clock.Step(1)
			if diff := cmp.Diff([]string{"shop/" + test.pod.Name}, w.woken.take()); diff != "" {
				t.Errorf("woken after 5 s (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantWithoutNews, w.try(test.pod).feasible); diff != "" {
				t.Errorf("feasible after 5 s (-want +got):\n%s", diff)
			}
		})
	}
}

// inGang gives pod the label of the PodGroup "train".
func inGang(pod *v1.Pod) *v1.Pod {
	pod.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "train"}
	return pod
}

// A pod falls back after the waiting time of another pod only under three conditions: the profile
// schedules gangs, both pods are in one gang and one workload, and no pod of the gang has been
// bound yet. Otherwise the label would let any pod fall back at once.
func TestGangClock(t *testing.T) {
	pod := inGang(web("p"))
	cases := map[string]struct {
		noGangs      bool
		gangMate     *v1.Pod // has waited for as long as fallbackAfter
		bound        *v1.Pod // was bound, and deleted again
		wantFallback bool
	}{
		"a gang":                            {gangMate: inGang(web("mate")), wantFallback: true},
		"no gang plugin":                    {noGangs: true, gangMate: inGang(web("mate"))},
		"without the label":                 {gangMate: web("mate")},
		"another workload":                  {gangMate: inGang(podOf("mate", by("ReplicaSet", "api-1")))},
		"no workload":                       {gangMate: inGang(podOf("mate"))},
		"the gang was bound once":           {gangMate: inGang(web("mate")), bound: inGang(web("first"))},
		"another gang was bound":            {gangMate: inGang(web("mate")), bound: inGang(podOf("first", by("ReplicaSet", "api-1"))), wantFallback: true},
		"a pod without the label was bound": {gangMate: inGang(web("mate")), bound: web("first"), wantFallback: true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(args *config.ReplicaSafetyArgs) { args.FallbackAfter = after(5 * time.Second) },
				append(deployment("web", 1, "1"), deployment("api", 1, "1")...)...)
			w.plugin.schedulesGangs = func() bool { return !test.noGangs }
			w.nodes(spotNode("spot"))
			w.refuse(test.gangMate)
			w.clock.Step(5 * time.Second)
			handler := w.plugin.podHandler()
			if test.bound != nil {
				bound := changed(test.bound, func(pod *v1.Pod) { pod.Spec.NodeName = "spot" })
				handler.Update(test.bound, bound)
				handler.Delete(bound)
			}
			var want []string
			if test.wantFallback {
				want = []string{"spot"}
			}
			if diff := cmp.Diff(want, w.try(pod).feasible); diff != "" {
				t.Errorf("feasible (-want +got):\n%s", diff)
			}
		})
	}
}

// The long wait of another pod in the gang does not count as this pod's wait for an update of its
// owner.
func TestOutdatedOwnerInAGang(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 3, "1")...)
	w.plugin.schedulesGangs = func() bool { return true }
	w.nodes(onDemand("on-demand"), spotNode("spot"))
	w.addPods("spot", web("a"), web("b"), web("c"))
	mate := inGang(web("mate"))
	w.plugin.waiting.AddUnschedulable(mate, placement.Wait{Gang: w.plugin.gangOf(mate)})
	w.clock.Step(2 * decision.MaxOwnerDelay)
	if o := w.try(inGang(web("p"))); len(o.feasible) > 0 {
		t.Errorf("feasible: %v, want the pod to wait for an update of its owner", o.feasible)
	}
}

// The handlers find no waiting pod if the owner or the pod changes between PreFilter and
// PostFilter. PostFilter must detect such changes.
func TestChangesWhileThePodIsInFlight(t *testing.T) {
	objects := deployment("web", 1, "1")
	unknown := []runtime.Object{objects[1]}
	outdated := deployment("web", 0, "1")
	index := func(w *world, object runtime.Object) {
		if set, ok := object.(*appsv1.ReplicaSet); ok {
			w.must(w.factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(set))
			return
		}
		w.must(w.factory.Apps().V1().Deployments().Informer().GetIndexer().Add(object))
	}
	cases := map[string]struct {
		have      []runtime.Object
		meanwhile func(*world)
		wantWoken []string
		wantWaits bool
	}{
		"nothing":                  {objects, func(*world) {}, nil, true},
		"no change, unknown owner": {unknown, func(*world) {}, nil, true},
		"the owner appears":        {unknown, func(w *world) { index(w, objects[0]) }, []string{"shop/p"}, true},
		"the ReplicaSet appears without its Deployment": {nil, func(w *world) { index(w, objects[1]) }, []string{"shop/p"}, true},
		"the owner is scaled":                           {objects, func(w *world) { index(w, deployment("web", 2, "1")[0]) }, []string{"shop/p"}, true},
		"the owner is annotated": {objects, func(w *world) {
			index(w, withAnnotations(map[string]string{spot.MinOnDemandAnnotation: "0"}, deployment("web", 1, "1"))[0])
		}, []string{"shop/p"}, true},
		"no change, outdated owner":    {outdated, func(*world) {}, nil, true},
		"the outdated owner is scaled": {outdated, func(w *world) { index(w, deployment("web", 1, "1")[0]) }, []string{"shop/p"}, true},
		"the outdated owner is deleted": {outdated, func(w *world) {
			w.must(w.factory.Apps().V1().Deployments().Informer().GetIndexer().Delete(outdated[0]))
		}, []string{"shop/p"}, true},
		"the pod is deleted": {objects, func(w *world) { w.must(w.factory.Core().V1().Pods().Informer().GetIndexer().Delete(web("p"))) }, nil, false},
		"the pod is recreated": {objects, func(w *world) {
			again := web("p")
			again.UID = "again"
			w.seen(again)
		}, nil, false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, test.have...)
			pod, state := web("p"), framework.NewCycleState()
			w.seen(pod)
			w.framework.RunPreFilterPlugins(w.ctx, state, pod)
			test.meanwhile(w)
			if got := w.woken.take(); got != nil {
				t.Fatalf("woken before PostFilter: %v", got)
			}
			w.framework.RunPostFilterPlugins(w.ctx, state, pod, framework.NewDefaultNodeToStatus())
			if diff := cmp.Diff(test.wantWoken, w.woken.take()); diff != "" {
				t.Errorf("woken by PostFilter (-want +got):\n%s", diff)
			}
			if _, waits := w.plugin.waiting.Since(pod); waits != test.wantWaits {
				t.Errorf("waits = %t, want %t", waits, test.wantWaits)
			}
		})
	}
}

// PostFilter records this for a pod that found no node.
func TestWaitOf(t *testing.T) {
	fallback := func(a *config.ReplicaSafetyArgs) { a.FallbackAfter = after(20 * time.Second) }
	later := func(a *config.ReplicaSafetyArgs) { a.FallbackAfter = after(5 * time.Minute) }
	ignore := func(a *config.ReplicaSafetyArgs) { a.Exemptions = new(config.IgnoreExemptions) }
	onlySpot := func(name string) *v1.Pod {
		pod := podOf(name)
		pod.Spec.NodeSelector = map[string]string{spot.CapacityLabel: "spot"}
		return pod
	}
	noOverflow := func(a *config.ReplicaSafetyArgs) { a.Overflow = new(config.NeverOverflow) }
	noRelief := func(a *config.ReplicaSafetyArgs) { a.RolloutRelief = &config.DurationOrNever{Never: true} }
	full := func(w *world) { w.addPods("spot", web("a"), web("b")) }
	webOwners := []workload.OwnerKey{keyOf("ReplicaSet", "web-1"), keyOf("Deployment", "web")}
	cases := map[string]struct {
		args     func(*config.ReplicaSafetyArgs)
		existing func(*world)
		pod      *v1.Pod
		waited   time.Duration
		want     placement.Wait
	}{
		"no controller, no timer": {nil, nil, podOf("p"), 0, placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}, ForOnDemand: true}},
		"fallback":                {fallback, nil, podOf("p"), 0, placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}, ForOnDemand: true, RetryAt: now.Add(20 * time.Second)}},
		"fallback, after 5 s":     {fallback, nil, podOf("p"), 5 * time.Second, placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}, ForOnDemand: true, RetryAt: now.Add(20 * time.Second)}},
		"fallback at once":        {func(a *config.ReplicaSafetyArgs) { a.FallbackAfter = after(0) }, nil, podOf("p"), 0, placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}, ForOnDemand: true, RetryAt: now}},
		"fallen back":             {fallback, nil, podOf("p"), 20 * time.Second, placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}}},
		"Deployment, over budget": {nil, full, web("p"), 0, placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true, RetryAt: now.Add(30 * time.Second)}},
		"Deployment, relief before fallback": {later, full, web("p"), 0,
			placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true, RetryAt: now.Add(30 * time.Second)}},
		"Deployment, relief after fallback": {fallback, full, web("p"), 0,
			placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true, RetryAt: now.Add(20 * time.Second)}},
		"Deployment, relief time has passed": {later, full, web("p"), 30 * time.Second,
			placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true, RetryAt: now.Add(5 * time.Minute)}},
		"Deployment, other relief time": {func(a *config.ReplicaSafetyArgs) { a.RolloutRelief = after(2 * time.Minute) }, full, web("p"), 30 * time.Second,
			placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true, RetryAt: now.Add(2 * time.Minute)}},
		"Deployment, relief at once": {func(a *config.ReplicaSafetyArgs) { a.RolloutRelief = after(0) }, full, web("p"), 0,
			placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true, RetryAt: now}},
		"Deployment, no relief":             {noRelief, full, web("p"), 0, placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true}},
		"Deployment, all times have passed": {nil, full, web("p"), 30 * time.Second, placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true}},
		"within budget, but no room":        {nil, nil, web("p"), 40 * time.Second, placement.Wait{Owners: webOwners, DependsOnSiblings: true}},
		"only spot, exemptions ignored": {ignore, nil, annotate(onlySpot("p"), spot.FallbackAfterAnnotation, "20s"), 0,
			placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}, RetryAt: now.Add(20 * time.Second)}},
		"overflow Never, the floor is met": {noOverflow, func(w *world) { w.nodes(onDemand("on-demand")); w.addPods("on-demand", web("a")) }, web("p"), 40 * time.Second,
			placement.Wait{Owners: webOwners, DependsOnSiblings: true}},
		"overflow Never, the floor is not met": {noOverflow, full, web("p"), 40 * time.Second,
			placement.Wait{Owners: webOwners, ForOnDemand: true, DependsOnSiblings: true}},
		"overflow Never, ScheduleAnyway": {func(a *config.ReplicaSafetyArgs) {
			a.Overflow, a.WhenUnsatisfiable = new(config.NeverOverflow), new(config.ScheduleAnyway)
		},
			func(w *world) { w.nodes(onDemand("on-demand")); w.addPods("on-demand", web("a")) }, web("p"), 40 * time.Second,
			placement.Wait{Owners: webOwners, DependsOnSiblings: true}},
		"overflow Never, an ordinal beyond the floor": {noOverflow, nil, podOf("db-1", by("StatefulSet", "db")), 0, placement.Wait{Owners: []workload.OwnerKey{keyOf("StatefulSet", "db")}}},
		"a node waits for its label": {later, func(w *world) { w.nodes(young("young")) }, podOf("p"), 0,
			placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}, ForOnDemand: true, RetryAt: now.Add(30 * time.Second)}},
		"a node waits for its label, fallback first": {fallback, func(w *world) { w.nodes(young("young")) }, podOf("p"), 0,
			placement.Wait{Owners: []workload.OwnerKey{keyOf("Pod", "p")}, ForOnDemand: true, RetryAt: now.Add(20 * time.Second)}},
		"StatefulSet, floor ordinal": {nil, nil, podOf("db-0", by("StatefulSet", "db")), 0, placement.Wait{Owners: []workload.OwnerKey{keyOf("StatefulSet", "db")}, ForOnDemand: true}},
		"more pods than replicas": {fallback, func(w *world) { w.addPods("spot", web("a"), web("b"), web("c")) }, web("p"), 3 * time.Second,
			placement.Wait{Owners: []workload.OwnerKey{keyOf("Deployment", "web"), keyOf("ReplicaSet", "web-1")}, DependsOnSiblings: true, RetryAt: now.Add(5 * time.Second)}},
		"unknown owner": {fallback, nil, podOf("p", by("ReplicaSet", "gone")), 0, placement.Wait{Owners: []workload.OwnerKey{keyOf("ReplicaSet", "gone"), keyOf("ReplicaSet", "gone")}}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.args, append(deployment("web", 3, "1"), statefulSet("db", 3))...)
			w.nodes(spotNode("spot"))
			if test.existing != nil {
				test.existing(w)
			}
			if test.waited > 0 {
				w.plugin.waiting.AddUnschedulable(test.pod, placement.Wait{})
				w.clock.Step(test.waited)
			}
			o := w.try(test.pod)
			if diff := cmp.Diff(test.want, w.plugin.newWait(o.state, test.pod), cmpopts.IgnoreFields(placement.Wait{}, "MayPreempt", "Attempt", "OwnerWait"), cmpopts.EquateApproxTime(0)); diff != "" {
				t.Errorf("waitOf (-want +got):\n%s", diff)
			}
		})
	}
}

// The pod falls back after fallbackAfter even without an event. An attempt in between neither
// shortens nor extends the time.
func TestFallback(t *testing.T) {
	w := newWorld(t, func(a *config.ReplicaSafetyArgs) { a.FallbackAfter = after(5 * time.Second) })
	w.nodes(spotNode("spot"))
	pod := podOf("p")
	for _, step := range []time.Duration{0, 3 * time.Second, 2*time.Second - 1} {
		w.clock.Step(step)
		if o := w.try(pod); len(o.feasible) > 0 {
			t.Fatalf("feasible after %v: %v", w.clock.Since(now), o.feasible)
		}
		if got := w.woken.take(); got != nil {
			t.Fatalf("woken after %v: %v", w.clock.Since(now), got)
		}
	}
	w.clock.Step(1)
	if diff := cmp.Diff([]string{"shop/p"}, w.woken.take()); diff != "" {
		t.Errorf("woken after 5 s (-want +got):\n%s", diff)
	}
	o := w.try(pod)
	if diff := cmp.Diff([]string{"spot"}, o.feasible); diff != "" {
		t.Errorf("feasible after 5 s (-want +got):\n%s", diff)
	}
}

// A pod over its budget may run on spot after 30 s if an older revision of its Deployment then has
// a replica on on-demand. Replicas of a newer revision do not count.
func TestRolloutRelief(t *testing.T) {
	podIn := func(name, replicaSet string) *v1.Pod { return podOf(name, by("ReplicaSet", replicaSet)) }
	older := func(w *world) { w.addPods("on-demand", podIn("old", "web-1")) }
	relief := func(after string) func(*v1.Pod) *v1.Pod {
		return func(p *v1.Pod) *v1.Pod {
			return annotate(p, spot.RolloutReliefAnnotation, after)
		}
	}
	cases := map[string]struct {
		existing func(*world)
		pod      *v1.Pod
		waited   time.Duration
		want     []string
	}{
		"older on on-demand, 30 s":           {older, podIn("new", "web-2"), 30 * time.Second, []string{"on-demand", "spot"}},
		"older on on-demand, less than 30 s": {older, podIn("new", "web-2"), 30*time.Second - 1, []string{"on-demand"}},
		"another time":                       {older, relief("2m")(podIn("new", "web-2")), 2 * time.Minute, []string{"on-demand", "spot"}},
		"less than another time":             {older, relief("2m")(podIn("new", "web-2")), time.Minute, []string{"on-demand"}},
		"sooner":                             {older, relief("1s")(podIn("new", "web-2")), time.Second, []string{"on-demand", "spot"}},
		"never":                              {older, relief("never")(podIn("new", "web-2")), time.Hour, []string{"on-demand"}},
		"older on spot":                      {func(w *world) { w.addPods("spot", podIn("old", "web-1")) }, podIn("new", "web-2"), time.Hour, []string{"on-demand"}},
		"older terminating":                  {func(w *world) { w.addPods("on-demand", terminating(podIn("old", "web-1"))) }, podIn("new", "web-2"), time.Hour, []string{"on-demand"}},
		"none older":                         {func(*world) {}, podIn("new", "web-2"), time.Hour, []string{"on-demand"}},
		"newer on on-demand":                 {func(w *world) { w.addPods("on-demand", podIn("new", "web-2")) }, podIn("old", "web-1"), time.Hour, []string{"on-demand"}},
		"another Deployment's older":         {func(w *world) { w.addPods("on-demand", podIn("old", "api-1")) }, podIn("new", "web-2"), time.Hour, []string{"on-demand"}},
		"no Deployment":                      {func(w *world) { w.addPods("on-demand", podIn("old", "web-1")) }, podOf("p"), time.Hour, []string{"on-demand"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, append(deployment("web", 1, "1", "2"), deployment("api", 1, "1")...)...)
			w.nodes(onDemand("on-demand"), spotNode("spot"))
			test.existing(w)
			w.plugin.waiting.AddUnschedulable(test.pod, placement.Wait{})
			w.clock.Step(test.waited)
			if diff := cmp.Diff(test.want, w.try(test.pod).feasible); diff != "" {
				t.Errorf("feasible (-want +got):\n%s", diff)
			}
		})
	}
}

// A replica that overflow Never keeps off on-demand is retried after a sibling there is deleted. It
// is then admitted on on-demand.
func TestOverflowPodReplacesFloorPod(t *testing.T) {
	w := newWorld(t, func(a *config.ReplicaSafetyArgs) { a.Overflow = new(config.NeverOverflow) }, deployment("web", 3, "1")...)
	w.nodes(onDemand("on-demand"), onDemand("another"))
	sibling, pod := web("a"), web("p")
	w.addPods("on-demand", sibling)
	if o := w.try(pod); len(o.feasible) > 0 || o.state.GetSkipFilterPlugins().Has(Name) {
		t.Fatalf("feasible: %v", o.feasible)
	}
	_, forPods := w.hints()
	if hint, err := forPods(klog.Background(), pod, sibling, nil); err != nil || hint != fwk.Queue {
		t.Errorf("hint after the sibling was deleted: %v, %v", hint, err)
	}
	w.must(w.cache.RemovePod(klog.FromContext(w.ctx), sibling))
	if diff := cmp.Diff([]string{"another", "on-demand"}, w.try(pod).feasible); diff != "" {
		t.Errorf("feasible without the sibling (-want +got):\n%s", diff)
	}
}

// Replicas that were assigned beyond the floor stay off on-demand while the budget has room. They
// are retried when a sibling has used the rest of the budget: the floor was raised after the
// assignment, and on-demand needs one of the replicas.
func TestAssignedPodReplacesFloorPod(t *testing.T) {
	w := newWorld(t, func(a *config.ReplicaSafetyArgs) {
		a.Overflow, a.MinOnDemand = new(config.NeverOverflow), new(intstr.FromInt32(2))
	}, deployment("web", 4, "1")...)
	w.nodes(onDemand("on-demand"), spotNode("spot"), spotNode("full"))
	beyond := func(name string) *v1.Pod {
		return annotate(web(name), spot.AssignedAnnotation, "any: beyond the floor")
	}
	w.addPods("on-demand", web("a"))
	w.addPods("full", beyond("b"))
	waits, sibling := beyond("p"), beyond("c")
	o := w.try(waits)
	if diff := cmp.Diff([]string{"full", "spot"}, o.feasible); diff != "" {
		t.Errorf("feasible (-want +got):\n%s", diff)
	}
	w.framework.RunPostFilterPlugins(w.ctx, o.state, waits, framework.NewDefaultNodeToStatus()) // spot had no room
	o = w.try(sibling)
	w.addPods("spot", sibling)
	w.bind(o, sibling, "spot")
	if diff := cmp.Diff([]string{"shop/p"}, w.woken.take()); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"on-demand"}, w.try(waits).feasible); diff != "" {
		t.Errorf("feasible when the budget is used up (-want +got):\n%s", diff)
	}
}

// A grant of the controller applies at the first attempt of the pod.
func TestGrantedPodTakesSpot(t *testing.T) {
	for value, want := range map[string][]string{
		spot.GrantedFallback: {"on-demand", "spot"}, spot.GrantedRelief: {"on-demand", "spot"}, "anything": {"on-demand"}, "": {"on-demand"},
	} {
		t.Run(value, func(t *testing.T) {
			w := newWorld(t, nil)
			w.nodes(onDemand("on-demand"), spotNode("spot"))
			if diff := cmp.Diff(want, w.try(annotate(podOf("p"), spot.GrantedAnnotation, value+" "+string(podOf("p").UID))).feasible); diff != "" {
				t.Errorf("feasible (-want +got):\n%s", diff)
			}
		})
	}
}

// The end of a node's label grace retries the pods, even without an event.
func TestPodIsRetriedAfterLabelGrace(t *testing.T) {
	w := newWorld(t, nil)
	w.nodes(spotNode("spot"), young("young"))
	pod := podOf("p")
	if o := w.try(pod); len(o.feasible) > 0 {
		t.Fatalf("feasible at once: %v", o.feasible)
	}
	w.clock.Step(30 * time.Second)
	if diff := cmp.Diff([]string{"shop/p"}, w.woken.take()); diff != "" {
		t.Errorf("woken after labelGrace (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"young"}, w.try(pod).feasible); diff != "" {
		t.Errorf("feasible after labelGrace (-want +got):\n%s", diff)
	}
}

// A node that waits for its label is reserved for waiting pods of floors. The other pods are
// retried when the floor pod no longer waits, and at the latest one second after the floor pod at
// the end of the grace.
func TestSettlingNodeIsHeldForFloors(t *testing.T) {
	w := newWorld(t, nil, statefulSet("db", 3), statefulSet("single", 1))
	w.nodes(young("young"))
	floor, replica := podOf("single-0", by("StatefulSet", "single")), podOf("db-1", by("StatefulSet", "db"))
	reserved := map[string]string{"young": "node has no capacity label yet and is reserved for pods that wait for on-demand"}

	if diff := cmp.Diff([]string{"young"}, w.try(replica).feasible); diff != "" {
		t.Errorf("feasible while no floor pod waits (-want +got):\n%s", diff)
	}
	settling := map[string]string{"young": "node has no capacity label yet and is too young to count as on-demand"}
	if diff := cmp.Diff(settling, w.reasons(w.try(floor))); diff != "" {
		t.Errorf("refusals of the floor's pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(reserved, w.reasons(w.try(replica))); diff != "" {
		t.Errorf("refusals while a floor pod waits (-want +got):\n%s", diff)
	}
	w.clock.Step(30 * time.Second)
	if diff := cmp.Diff([]string{"shop/single-0"}, w.woken.take()); diff != "" {
		t.Errorf("woken after labelGrace (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"young"}, w.try(floor).feasible); diff != "" {
		t.Errorf("feasible for the floor after labelGrace (-want +got):\n%s", diff)
	}
	w.clock.Step(time.Second)
	if diff := cmp.Diff([]string{"shop/db-1"}, w.woken.take()); diff != "" {
		t.Errorf("woken one second later (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"young"}, w.try(replica).feasible); diff != "" {
		t.Errorf("feasible after labelGrace (-want +got):\n%s", diff)
	}
}
