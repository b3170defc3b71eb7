package gating

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const profile = clustertest.Profile

// world is an Assigner with its caches and a fake API server, which does not validate affinity.
// test/autoscaler uses a real one.
type world struct {
	*Assigner
	t      *testing.T
	client *fake.Clientset
	events *events.FakeRecorder
}

// start starts an Assigner in a cluster with objects.
func start(t *testing.T, settings decision.WorkloadSettings, objects ...runtime.Object) *world {
	t.Helper()
	policy := builtin()
	policy.Defaults = settings
	labels, err := NewLabels(policy, []string{karpenter}, karpenter)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, client: fake.NewClientset(objects...), events: events.NewFakeRecorder(100)}
	factory := informers.NewSharedInformerFactory(w.client, 0)
	w.Assigner, err = New(factory, w.client, w.events, clock.RealClock{}, &AdmissionPolicy{},
		Settings{
			Scope:  workload.Scope{Profile: profile, Namespaces: factory.Core().V1().Namespaces().Lister()},
			Policy: policy, Labels: labels, NodeStartup: 3 * time.Minute, Provisioning: &simulation.Provisioning{Policy: policy},
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	// The fake watch loses changes before it begins, which may be after the caches are synced.
	watching := make(chan struct{})
	began := sync.OnceFunc(func() { close(watching) })
	w.client.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		defer began()
		pods, err := w.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		return true, pods, err
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	<-watching
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; factory.Shutdown() })
	return w
}

// gated returns a gated pod of that controller.
func gated(kind, owner, name string) *v1.Pod {
	pod := clustertest.NewPod(name, clustertest.OwnedBy(kind, owner))
	pod.CreationTimestamp, pod.ResourceVersion = metav1.Now(), "1"
	pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: spot.CapacityGate}}
	return pod
}

func (w *world) create(pods ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		if _, err := w.client.CoreV1().Pods(pod.Namespace).Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// assigned returns the assignment of each pod after no pod is gated.
func (w *world) assigned() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	w.until("no pod is gated", func() bool {
		clear(got)
		list, err := w.client.CoreV1().Pods("shop").List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if workload.Gated(pod) {
				return false
			}
			got[pod.Name], _, _ = strings.Cut(pod.Annotations[spot.AssignedAnnotation], ":")
			since, err := time.Parse(time.RFC3339, pod.Annotations[spot.WaitingSinceAnnotation])
			if hasGates := len(pod.Spec.SchedulingGates) > 0; got[pod.Name] != "" && pod.Spec.NodeName == "" && (hasGates != (err != nil) || !hasGates && time.Since(since) > 2*time.Hour) {
				w.t.Errorf("%s waits since %s (%v), has gates: %v", pod.Name, since, err, hasGates)
			}
			if requires := workload.OnlyOnDemand(pod, w.settings.Policy); got[pod.Name] != "" && requires != (got[pod.Name] == "on-demand" && !workload.SpreadByAffinity(pod)) {
				w.t.Errorf("%s requires on-demand: %v, assigned %q", pod.Name, requires, got[pod.Name])
			}
		}
		return true
	})
	return got
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func count(assigned map[string]string, what string) (n int) {
	for _, is := range assigned {
		if is == what {
			n++
		}
	}
	return n
}

// The Assigner assigns each replica of the floor once, in any order of the pods, even if the caches
// show the patches late.
func TestFloorOfABurst(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Percent(30), FallbackAfter: decision.Never}, clustertest.NewDeployment("web", 10)...)
	for i := range 10 {
		w.create(gated("ReplicaSet", "web-r", fmt.Sprint("web-", i)))
		if i%3 == 2 {
			w.assigned()
		}
	}
	if got := w.assigned(); count(got, "on-demand") != 3 || count(got, "any") != 7 {
		t.Errorf("assigned %v, want 3 on-demand and 7 any", got)
	}
	// As many replacements of the two pods belong to the floor as the floor has lost.
	lost := 0
	for name, capacity := range w.assigned() {
		if capacity == "on-demand" && lost < 2 {
			lost++
			if err := w.client.CoreV1().Pods("shop").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.create(gated("ReplicaSet", "web-r", "web-a"), gated("ReplicaSet", "web-r", "web-b"))
	if got := w.assigned(); got["web-a"] != "on-demand" || got["web-b"] != "on-demand" {
		t.Errorf("assigned %v, want web-a and web-b on-demand", got)
	}
}

// With a hard topology spread constraint, the assignments to the floor count without affinity,
// except on spot.
func TestFloorOfASpread(t *testing.T) {
	spread := func(name string) *v1.Pod {
		pod := gated("ReplicaSet", "web-r", name)
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: karpenter, WhenUnsatisfiable: v1.DoNotSchedule}}
		return pod
	}
	bound := func(name, node string) *v1.Pod {
		pod := clustertest.Run(node, spread(name))
		pod.Spec.SchedulingGates, pod.Annotations = nil, map[string]string{spot.AssignedAnnotation: "on-demand: test"}
		return pod
	}
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(3), FallbackAfter: decision.Never}, append(clustertest.NewDeployment("web", 6),
		pooled("o", "on-demand", "a"), pooled("s", "spot", "a"), bound("on-od", "o"), bound("on-spot", "s"))...)
	for i := range 4 {
		w.create(spread(fmt.Sprint("web-", i)))
		w.assigned()
	}
	if got := w.assigned(); got["web-0"] != "on-demand" || got["web-1"] != "on-demand" || got["web-2"] != "any" || got["web-3"] != "any" {
		t.Errorf("assigned %v, want two more of the floor", got)
	}
}

// A floor that is a preference counts the pods that prefer on-demand until they run, and then all
// that run on on-demand. The others prefer spot.
func TestFloorThatIsAPreference(t *testing.T) {
	bound := func(name, node, why string) *v1.Pod {
		pod := clustertest.Run(node, gated("ReplicaSet", "web-r", name))
		pod.Spec.SchedulingGates, pod.Annotations = nil, map[string]string{spot.AssignedAnnotation: why}
		return pod
	}
	anyway := "none: " + whyAnyway + ": test"
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(3), WhenUnsatisfiable: decision.ScheduleAnyway}, append(clustertest.NewDeployment("web", 6),
		pooled("o", "on-demand", "a"), pooled("s", "spot", "a"), bound("overflow", "o", "any: test"), bound("on-spot", "s", anyway))...)
	for i := range 4 {
		w.create(gated("ReplicaSet", "web-r", fmt.Sprint("web-", i)))
		if i == 0 {
			w.assigned()
		}
	}
	if got := w.assigned(); count(got, "none") != 3 || got["web-0"] != "none" || count(got, "any") != 3 {
		t.Errorf("assigned %v, want two more that prefer on-demand", got)
	}
}

func TestOrdinals(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}, clustertest.NewStatefulSet("db", 3))
	for _, name := range []string{"db-2", "db-1", "db-0"} {
		w.create(gated("StatefulSet", "db", name))
	}
	if got := w.assigned(); got["db-0"] != "on-demand" || got["db-1"] != "any" || got["db-2"] != "any" {
		t.Errorf("assigned %v, want only ordinal 0 on on-demand", got)
	}
}

// Pods that their controller did not create wait for no owner, and neither they nor the pods of the
// controller count as replicas of each other.
func TestPodsOfOthers(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}, clustertest.NewDeployment("web", 1)...)
	driver := gated("v1/Pod", "none", "driver")
	driver.OwnerReferences = nil
	began := time.Now()
	w.create(driver, gated("ReplicaSet", "web-r", "web-r-1"))
	for i := range 3 {
		w.create(gated("v1/Pod", "driver", fmt.Sprint("exec-", i)), gated("Deployment", "web", fmt.Sprint("task-", i)))
		w.assigned()
	}
	want := map[string]string{"driver": "on-demand", "web-r-1": "on-demand",
		"exec-0": "on-demand", "exec-1": "any", "exec-2": "any", "task-0": "on-demand", "task-1": "any", "task-2": "any"}
	if got := w.assigned(); !maps.Equal(got, want) {
		t.Errorf("assigned %v, want %v", got, want)
	}
	if took := time.Since(began); took >= decision.MaxOwnerDelay {
		t.Errorf("assigned after %v: a pod waited for an update of its owner", took)
	}
}

// A StatefulSet releases a pod that it did not create while the pod is being assigned.
func TestControllerChangesDuringTheAssignment(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never})
	first := true
	w.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !first {
			return false, nil, nil
		}
		first = false
		pod := gated("StatefulSet", "db", "helper")
		pod.OwnerReferences, pod.ResourceVersion = nil, "2"
		if err := w.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, "shop"); err != nil {
			t.Error(err)
		}
		time.Sleep(4 * ownerRetry) // the revision without a controller sees the pod meanwhile
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), "helper", nil)
	})
	w.create(gated("StatefulSet", "db", "helper"))
	if got := w.assigned()["helper"]; got != "on-demand" {
		t.Errorf("assigned %q, want on-demand", got)
	}
}

// Pods that keep their scheduler are assigned like the pods of the profile, and count together with
// them. A gated pod that is out of scope loses its gate, and gets no affinity.
func TestKeptScheduler(t *testing.T) {
	shop := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{spot.OptInLabel: spot.KeepScheduler}}}
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never},
		append(clustertest.NewDeployment("web", 6), shop)...)
	pods := map[string]*v1.Pod{}
	for _, name := range []string{"a-out", "b-kept", "c-ours", "d-kept", "e-kept"} {
		pods[name] = gated("ReplicaSet", "web-r", name)
		if name != "c-ours" {
			pods[name].Spec.SchedulerName = v1.DefaultSchedulerName
		}
	}
	pods["a-out"].Labels = map[string]string{spot.OptInLabel: spot.OptOut}
	old := metav1.NewTime(time.Now().Add(-time.Minute))
	pods["a-out"].CreationTimestamp = old
	w.create(slices.Collect(maps.Values(pods))...)
	got := w.assigned()
	if got["a-out"] != "none" || count(got, "on-demand") != 2 || count(got, "any") != 2 {
		t.Errorf("assigned %v, want 2 pods on-demand and 2 any, without the pod that opts out", got)
	}
	if pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "a-out", metav1.GetOptions{}); err != nil || pod.Spec.Affinity != nil {
		t.Errorf("the pod that opts out: %v, affinity %v, want none", err, pod.Spec.Affinity)
	}
	w.until("an event", func() bool { return len(w.events.Events) > 0 })
	if event := <-w.events.Events; !strings.Contains(event, spot.ReasonOptInIgnored) {
		t.Errorf("event %q on the pod that opts out, want %s", event, spot.ReasonOptInIgnored)
	}
	ignored := gated("ReplicaSet", "web-r", "ignored")
	ignored.Labels = map[string]string{spot.OptInLabel: spot.KeepScheduler}
	w.create(ignored)
	w.until("an event", func() bool { return len(w.events.Events) > 0 })
	if event := <-w.events.Events; !strings.Contains(event, "has no effect: ") {
		t.Errorf("event %q on the pod that names our scheduler, want %s", event, spot.ReasonOptInIgnored)
	}
	w.assigned()
	shop = shop.DeepCopy()
	shop.Labels, shop.ResourceVersion = nil, "2"
	if _, err := w.client.CoreV1().Namespaces().Update(t.Context(), shop, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	late := gated("ReplicaSet", "web-r", "late")
	late.Spec.SchedulerName, late.CreationTimestamp = v1.DefaultSchedulerName, old
	w.until("the label of the namespace is gone", func() bool { return !w.settings.Scope.KeepsScheduler(late) })
	w.create(late)
	if got := w.assigned()["late"]; got != "none" {
		t.Errorf("the pod of a namespace that opts in no more is assigned %q, want none", got)
	}
	// The API server gated the pod, so the namespace has the label, which the cache does not show
	// yet.
	early := gated("ReplicaSet", "web-r", "early")
	early.Spec.SchedulerName = v1.DefaultSchedulerName
	w.create(early)
	time.Sleep(2 * ownerRetry)
	shop.Labels, shop.ResourceVersion = map[string]string{spot.OptInLabel: spot.KeepScheduler}, "3"
	if _, err := w.client.CoreV1().Namespaces().Update(t.Context(), shop, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := w.assigned()["early"]; got != "any" {
		t.Errorf("the first pod of a namespace that opts in is assigned %q, want any", got)
	}
}

// If the labels of spot nodes have more values than affinity lists, a pod that keeps its scheduler
// loses its gate at once, and gets an event instead of an affinity. The scheduler of this project
// needs no label.
func TestKeptSchedulerWithoutLabel(t *testing.T) {
	objects := append(clustertest.NewDeployment("web", 4), keptNamespace(), clustertest.NewNode("od", "on-demand", "m/a"))
	for i := range maxValues {
		node := clustertest.NewNode(fmt.Sprint("spot-", i), "", "m/a")
		node.Labels["scheduling.cast.ai/spot"] = fmt.Sprint("a-", i)
		objects = append(objects, node)
	}
	hidden := clustertest.NewNode("hidden", "", "m/a")
	hidden.Labels["scheduling.cast.ai/spot"] = "b"
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never}, append(objects, hidden)...)
	kept, ours := gated("ReplicaSet", "web-r", "a-kept"), gated("ReplicaSet", "web-r", "b-ours")
	kept.Spec.SchedulerName = v1.DefaultSchedulerName
	w.create(kept, ours)
	if got := w.assigned(); got["a-kept"] != "none" || got["b-ours"] != "on-demand" {
		t.Errorf("assigned %v, want none to the pod that keeps its scheduler, and on-demand to the other", got)
	}
	pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "a-kept", metav1.GetOptions{})
	if err != nil || pod.Spec.Affinity != nil || !strings.Contains(pod.Annotations[spot.AssignedAnnotation], "no label excludes the spot node hidden") {
		t.Errorf("the pod has the affinity %v and the annotations %v (%v), want none, and the reason", pod.Spec.Affinity, pod.Annotations, err)
	}
	w.until("an event", func() bool { return len(w.events.Events) > 0 })
	if event := <-w.events.Events; !strings.Contains(event, spot.ReasonHiddenFromAutoscaler) || !strings.Contains(event, "marks hidden as spot") {
		t.Errorf("event %q, want the node without a label", event)
	}
}

// The Assigner decides on a pod when it has no other gate, by its node selector at that time.
func TestOtherGates(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never}, clustertest.NewDeployment("web", 3)...)
	held := func(name string) *v1.Pod {
		pod := gated("ReplicaSet", "web-r", name)
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, v1.PodSchedulingGate{Name: "quota.example/wait"})
		return pod
	}
	w.create(held("spot"), held("any"), gated("ReplicaSet", "web-r", "free"))
	get := func(name string) *v1.Pod {
		pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	w.until("the pod without another gate is decided", func() bool { return !workload.Gated(get("free")) })
	time.Sleep(100 * time.Millisecond)
	for _, name := range []string{"spot", "any"} {
		if pod := get(name); !workload.Gated(pod) || pod.Annotations != nil {
			t.Errorf("%s: gates %v, annotations %v, want it unchanged", name, pod.Spec.SchedulingGates, pod.Annotations)
		}
	}
	for _, name := range []string{"spot", "any"} {
		pod := get(name).DeepCopy()
		pod.ResourceVersion, pod.Spec.SchedulingGates = "2", []v1.PodSchedulingGate{{Name: spot.CapacityGate}}
		if name == "spot" {
			pod.Spec.NodeSelector = map[string]string{karpenter: "spot"}
		}
		if _, err := w.client.CoreV1().Pods("shop").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.until("both pods are decided", func() bool { return !workload.Gated(get("spot")) && !workload.Gated(get("any")) })
	if pod := get("spot"); workload.OnlyOnDemand(pod, w.settings.Policy) || pod.Spec.Affinity != nil {
		t.Errorf("affinity %v contradicts the node selector", pod.Spec.Affinity)
	}
	if !workload.OnlyOnDemand(get("any"), w.settings.Policy) || !workload.OnlyOnDemand(get("free"), w.settings.Policy) {
		t.Error("two pods are the floor")
	}
}

// Pods wait for an update if their owner is unknown, or known with fewer replicas.
func TestOutdatedOwner(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Percent(50), FallbackAfter: decision.Never}, clustertest.NewDeployment("web", 1)...)
	for i := range 4 {
		w.create(gated("ReplicaSet", "web-r", fmt.Sprint("web-", i)))
	}
	w.create(gated("ReplicaSet", "new-r", "new-0"))
	time.Sleep(200 * time.Millisecond)
	for _, name := range []string{"web-3", "new-0"} {
		if pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{}); err != nil || !workload.Gated(pod) {
			t.Errorf("%s: %v, %v, want it gated", name, pod, err)
		}
	}
	for _, object := range clustertest.NewDeployment("web", 4)[:1] {
		if _, err := w.client.AppsV1().Deployments("shop").Update(t.Context(), object.(*appsv1.Deployment), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range clustertest.NewDeployment("new", 1) {
		if err := w.client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	got := w.assigned()
	delete(got, "new-0")
	if count(got, "on-demand") != 2 {
		t.Errorf("assigned %v, want 2 on-demand", got)
	}
}

// The Assigner retries a refused patch with a new decision.
func TestRefusedPatches(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: decision.Never}, clustertest.NewDeployment("web", 4)...)
	refusals := 6
	refused := make(chan struct{}, 1)
	w.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refusals--; refusals >= 0 {
			if refusals%2 == 0 {
				return true, nil, apierrors.NewConflict(v1.Resource("pods"), "web", nil)
			}
			return true, nil, apierrors.NewTooManyRequests("not now", 1)
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		return false, nil, nil
	})
	for i := range 4 {
		w.create(gated("ReplicaSet", "web-r", fmt.Sprint("web-", i)))
	}
	if got := w.assigned(); count(got, "on-demand") != 2 || count(got, "any") != 2 {
		t.Errorf("assigned %v, want 2 on-demand and 2 any", got)
	}
	<-refused
}

// A pod may be deleted before its assignment is recorded. It leaves no record.
func TestDeletedPodLeavesNoRecord(t *testing.T) {
	w := start(t, decision.WorkloadSettings{})
	var patches errgroup.Group
	w.startPatch(t.Context(), &patches, gated("ReplicaSet", "web-r", "web-0"), choice{}, func() {})
	if err := patches.Wait(); err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) > 0 {
		t.Errorf("%d records, want none", len(w.pending))
	}
}

// The duration of a gate is observed even if the event of the patch arrives before its answer.
func TestGateDurationWithAnEarlyEvent(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(gateDuration)
	observed := func() uint64 {
		families, err := registry.Gather()
		if err != nil || len(families) != 1 {
			t.Fatalf("gathered %v, %v, want one metric", families, err)
		}
		return families[0].Metric[0].GetHistogram().GetSampleCount()
	}
	before := observed()
	w := start(t, decision.WorkloadSettings{}, clustertest.NewDeployment("web", 2)...)
	patch := clienttesting.ObjectReaction(w.client.Tracker())
	w.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, pod, err := patch(action)
		w.until("the event was handled", func() bool { return w.recorded(clustertest.UID("web-0")).gatedSince.IsZero() })
		return handled, pod, err
	})
	w.create(gated("ReplicaSet", "web-r", "web-0"))
	w.assigned()
	w.until("one duration was observed", func() bool { return observed() == before+1 })
}

// unschedulable returns a pod without a gate that has waited.
func unschedulable(pod *v1.Pod, waited time.Duration, assigned string) *v1.Pod {
	at := metav1.NewTime(time.Now().Add(-waited))
	pod.Spec.SchedulingGates, pod.Generation = nil, 2
	pod.Annotations = map[string]string{spot.WaitingSinceAnnotation: at.UTC().Format(time.RFC3339)}
	if assigned != "" {
		pod.Annotations[spot.AssignedAnnotation] = assigned + ": test"
	}
	if assigned == "on-demand" {
		notSpot := []v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpNotIn, "spot")}
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: withRequired(nil, allOf(notSpot))}
	}
	if assigned == "spot" {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: withRequired(nil, allOf([]v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpIn, "spot")}))}
	}
	pod.CreationTimestamp = at
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: at}}
	return pod
}

func (w *world) gone(name string) bool {
	_, err := w.client.CoreV1().Pods("shop").Get(w.t.Context(), name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// nominated returns an event that reports a starting node for the pod.
func nominated(pod *v1.Pod, before time.Duration) *v1.Event {
	at := metav1.NewTime(time.Now().Add(-before))
	return &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + ".1", CreationTimestamp: at},
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Reason:         "Nominated", LastTimestamp: at,
	}
}

func TestFallback(t *testing.T) {
	settings := decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: 5 * time.Minute, RolloutRelief: decision.Never}
	web := func() *v1.Pod { return gated("ReplicaSet", "web-r", "web-0") }
	for name, test := range map[string]struct {
		pod       *v1.Pod
		event     *v1.Event
		gone      bool
		wantEvent string
	}{
		"waited long enough":       {pod: unschedulable(web(), 6*time.Minute, "on-demand"), gone: true, wantEvent: spot.ReasonReplacedPending},
		"not waited long enough":   {pod: unschedulable(web(), 4*time.Minute, "on-demand")},
		"user's own affinity":      {pod: func() *v1.Pod { p := unschedulable(web(), time.Hour, "on-demand"); p.Annotations = nil; return p }()},
		"node is starting":         {pod: unschedulable(web(), 6*time.Minute, "on-demand"), event: nominated(web(), time.Minute)},
		"node start has timed out": {pod: unschedulable(web(), 6*time.Minute, "on-demand"), event: nominated(web(), 4*time.Minute), gone: true, wantEvent: spot.ReasonReplacedPending},
		"nodes start repeatedly":   {pod: unschedulable(web(), 9*time.Minute, "on-demand"), event: nominated(web(), time.Second), gone: true, wantEvent: spot.ReasonReplacedPending},
		"has fallen back already": {pod: func() *v1.Pod {
			p := unschedulable(web(), time.Hour, "on-demand")
			p.Annotations[spot.GrantedAnnotation] = "fallback " + string(p.UID)
			return p
		}()},
		"Job pod may have no successor": {pod: unschedulable(gated("Job", "job", "job-0"), time.Hour, "on-demand"), wantEvent: spot.ReasonNoSuccessor},
		"pod without controller":        {pod: func() *v1.Pod { p := unschedulable(web(), time.Hour, "on-demand"); p.OwnerReferences = nil; return p }(), wantEvent: spot.ReasonNoSuccessor},
		"bound":                         {pod: func() *v1.Pod { p := unschedulable(web(), time.Hour, "on-demand"); p.Spec.NodeName = "n"; return p }()},
	} {
		t.Run(name, func(t *testing.T) {
			job := clustertest.NewJob("job", 1)
			job.Spec.BackoffLimit = new(int32)
			objects := append(clustertest.NewDeployment("web", 2), job, test.pod)
			if test.event != nil {
				objects = append(objects, test.event)
			}
			w := start(t, settings, objects...)
			if test.wantEvent != "" {
				if event := <-w.events.Events; strings.Fields(event)[1] != test.wantEvent {
					t.Errorf("event %q, want %q", event, test.wantEvent)
				}
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			if got := w.gone(test.pod.Name); got != test.gone {
				t.Errorf("deleted: %v, want %v", got, test.gone)
			}
			if !test.gone {
				return
			}
			w.create(gated("ReplicaSet", "web-r", "web-1"))
			w.assigned()
			pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "web-1", metav1.GetOptions{})
			if err != nil || workload.Granted(pod) != spot.GrantedFallback ||
				pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
				t.Errorf("the successor is %v, %v, want it granted spot", pod, err)
			}
			w.create(gated("ReplicaSet", "web-r", "web-2"))
			if got := w.assigned(); got["web-2"] != "on-demand" {
				t.Errorf("a grant was used twice: %v", got)
			}
		})
	}
}

// Without the right to list events, the controller assumes that a node is being started, and waits
// for at most nodeStartup.
func TestFallbackWithoutEvents(t *testing.T) {
	settings := decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: 5 * time.Minute, RolloutRelief: decision.Never}
	for waited, want := range map[time.Duration]bool{7 * time.Minute: false, 9 * time.Minute: true} {
		w := start(t, settings, clustertest.NewDeployment("web", 2)...)
		w.client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource("events"), "", errors.New("no right"))
		})
		pod := unschedulable(gated("ReplicaSet", "web-r", "web-0"), waited, "on-demand")
		w.create(pod)
		time.Sleep(200 * time.Millisecond)
		if got := w.gone("web-0"); got != want {
			t.Errorf("deleted after %s: %v, want %v", waited, got, want)
		}
	}
}

// Rollout relief applies while the older revision has pods on on-demand.
func TestRelief(t *testing.T) {
	for name, test := range map[string]struct {
		capacity string
		want     bool
	}{"older replicas on on-demand": {"on-demand", true}, "older replicas on spot": {"spot", false}} {
		t.Run(name, func(t *testing.T) {
			objects := clustertest.NewDeployment("web", 1, "old", "r")
			older := gated("ReplicaSet", "web-old", "old-0")
			older.Spec.SchedulingGates, older.Spec.NodeName = nil, "n"
			node := clustertest.NewNode("n", "", "m/a", "label="+karpenter+"="+test.capacity)
			pod := unschedulable(gated("ReplicaSet", "web-r", "web-0"), time.Minute, "on-demand")
			w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: 30 * time.Second},
				append(objects, older, node, pod)...)
			time.Sleep(300 * time.Millisecond)
			if got := w.gone("web-0"); got != test.want {
				t.Errorf("deleted: %v, want %v", got, test.want)
			}
		})
	}
}

// A pod without a decision is replaced only if its successor would be gated.
func TestReassign(t *testing.T) {
	for name, works := range map[string]bool{"the gate works": true, "no gate": false} {
		t.Run(name, func(t *testing.T) {
			pod := unschedulable(gated("ReplicaSet", "web-r", "web-0"), time.Minute, "")
			w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never},
				append(append(clustertest.NewDeployment("web", 1), clustertest.NewDeployment("other", 1)...), pod)...)
			if works {
				w.create(gated("ReplicaSet", "other-r", "other-0"))
				w.assigned()
				w.until("the removal of a gate is recorded", func() bool { return w.assignsSuccessors(pod) })
				w.queue.Add(workload.RevisionOf(pod)) // otherwise the queue would do this a minute later
				w.until("the pod is deleted", func() bool { return w.gone("web-0") })
				w.create(gated("ReplicaSet", "web-r", "web-1"))
				if got := w.assigned(); got["web-1"] != "on-demand" {
					t.Errorf("assigned %v, want the successor on on-demand", got)
				}
				return
			}
			time.Sleep(300 * time.Millisecond)
			if w.gone("web-0") {
				t.Error("the pod was deleted, although its successor would have no gate either")
			}
		})
	}
}

// If a floor lacks one replica, one waiting pod is deleted, however late its successor is.
func TestReassignsOneAtATime(t *testing.T) {
	objects := append(clustertest.NewDeployment("web", 6), clustertest.NewDeployment("other", 1)...)
	for i := range 5 {
		objects = append(objects, unschedulable(gated("ReplicaSet", "web-r", fmt.Sprint("web-", i)), time.Minute, ""))
	}
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}, objects...)
	w.create(gated("ReplicaSet", "other-r", "other-0"))
	w.assigned()
	w.until("the removal of a gate is recorded", func() bool { return w.assignsSuccessors(objects[4].(*v1.Pod)) })
	revision := workload.RevisionOf(objects[4].(*v1.Pod))
	gone := func() (n int) {
		for i := range 5 {
			if w.gone(fmt.Sprint("web-", i)) {
				n++
			}
		}
		return n
	}
	w.queue.Add(revision)
	w.until("a pod is deleted", func() bool { return gone() == 1 })
	for range 5 {
		w.queue.Add(revision)
		time.Sleep(50 * time.Millisecond)
	}
	if got := gone(); got != 1 {
		t.Errorf("%d pods were deleted, want 1", got)
	}
	w.create(gated("ReplicaSet", "web-r", "web-5"))
	if got := w.assigned(); got["web-5"] != "on-demand" {
		t.Errorf("assigned %v, want the successor on on-demand", got)
	}
}

// If an admission policy permanently refuses the controller's patches, pods are not replaced: their
// successors would have the same problem.
func TestPermanentRefusal(t *testing.T) {
	pod := unschedulable(gated("ReplicaSet", "web-r", "web-0"), time.Minute, "")
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}, append(append(clustertest.NewDeployment("web", 2), clustertest.NewDeployment("other", 1)...), pod)...)
	w.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1.Resource("pods"), "web", nil)
	})
	w.create(gated("ReplicaSet", "other-r", "other-0"))
	for range 5 {
		w.queue.Add(workload.RevisionOf(pod))
		time.Sleep(50 * time.Millisecond)
	}
	if w.gone("web-0") {
		t.Error("the pod was deleted")
	}
}

// A warning for all pods beyond the floor is recorded once per revision, on its first pod. It
// does not matter whether pods of the floor came earlier, and later pods do not repeat it.
func TestWarnsOncePerRevision(t *testing.T) {
	one := decision.Count(1)
	w := start(t, decision.WorkloadSettings{MinOnDemand: one, MaxPerPool: &one, FallbackAfter: decision.Never}, clustertest.NewDeployment("web", 5)...)
	for _, step := range []struct{ from, to, events int }{{0, 1, 0}, {1, 3, 1}, {3, 4, 1}} {
		for i := range step.to - step.from {
			w.create(gated("ReplicaSet", "web-r", fmt.Sprint("web-", step.from+i)))
		}
		w.assigned()
		time.Sleep(50 * time.Millisecond)
		if got := len(w.events.Events); got != step.events {
			t.Errorf("%d events after %d pods, want %d", got, step.to, step.events)
		}
	}
}
