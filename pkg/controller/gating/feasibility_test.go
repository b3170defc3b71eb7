package gating

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// pooled returns a node of a node pool with the label of Karpenter.
func pooled(name, capacity, zone string, taints ...string) *v1.Node {
	node := clustertest.NewNode(name, "", "m/"+zone, "label="+karpenter+"="+capacity)
	node.Labels["pool"] = capacity
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
	}
	return node
}

// A NodePool can add on-demand nodes for the pod. On-demand nodes of another kind, such as a
// tainted managed node group for the system, are no evidence against it.
func TestPoolsBesideNodesOfAnotherKind(t *testing.T) {
	pool := providers.NodePool{Requirements: []v1.NodeSelectorRequirement{
		{Key: karpenter, Operator: v1.NodeSelectorOpIn, Values: []string{"spot", "on-demand"}}}}
	onDemand := pooled("o", "on-demand", "a", "CriticalAddonsOnly")
	for name, test := range map[string]struct {
		nodes []*v1.Node
		pools []providers.NodePool
		want  string
	}{
		"no on-demand node":             {nil, []providers.NodePool{pool}, "on-demand"},
		"a tainted on-demand node":      {[]*v1.Node{onDemand}, []providers.NodePool{pool}, "on-demand"},
		"a tainted pool too":            {[]*v1.Node{onDemand}, []providers.NodePool{{Requirements: pool.Requirements, Taints: onDemand.Spec.Taints}}, "any"},
		"a tainted on-demand node only": {[]*v1.Node{onDemand}, nil, "any"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(clustertest.NewDeployment("web", 1), pooled("s", "spot", "a"))
			for _, node := range test.nodes {
				objects = append(objects, node)
			}
			w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1)}, objects...)
			w.settings.Provisioning.SetPools(test.pools)
			w.create(gated("ReplicaSet", "web-r", "web-0"))
			clustertest.Equal(t, "assigned", test.want, w.assigned()["web-0"])
		})
	}
}

// No capacity type is required of a pod that no node of that type could run.
func TestInfeasible(t *testing.T) {
	floor := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: 5 * time.Minute}
	never := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}
	onlySpot := decision.WorkloadSettings{MinOnDemand: decision.Count(0), Overflow: decision.NeverOverflow}
	pool := func(name string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"pool": name} }
	}
	near := func(app string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: v1.LabelTopologyZone}}}}
		}
	}
	spread := func(pod *v1.Pod) {
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	}
	gpus := func(node *v1.Node) *v1.Node {
		node.Status.Capacity = v1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
		return node
	}
	needsGPU := func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	}
	young := pooled("new", "on-demand", "a")
	young.CreationTimestamp = metav1.Now()
	for name, test := range map[string]struct {
		settings decision.WorkloadSettings
		nodes    []*v1.Node
		change   func(*v1.Pod)
		want     string // how many of three pods are assigned what, are granted spot, and warn
	}{
		"both types":                    {floor, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a")}, nil, "1 on-demand, 2 any, 0 spot, 0 granted, 0 warnings"},
		"no nodes":                      {floor, nil, nil, "1 on-demand, 2 any, 0 spot, 0 granted, 0 warnings"},
		"no on-demand node was seen":    {floor, []*v1.Node{pooled("s", "spot", "a")}, nil, "1 on-demand, 2 any, 0 spot, 0 granted, 0 warnings"},
		"a pool of spot nodes":          {floor, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a")}, pool("spot"), "0 on-demand, 3 any, 0 spot, 3 granted, 1 warnings"},
		"a pool of spot, no fallback":   {never, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a")}, pool("spot"), "0 on-demand, 3 any, 0 spot, 3 granted, 1 warnings"},
		"tainted, no fallback":          {never, []*v1.Node{pooled("o", "on-demand", "a", "system"), pooled("s", "spot", "a")}, nil, "0 on-demand, 3 any, 0 spot, 0 granted, 1 warnings"},
		"a pool without nodes":          {floor, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a")}, pool("new"), "1 on-demand, 2 any, 0 spot, 0 granted, 0 warnings"},
		"on-demand is tainted":          {floor, []*v1.Node{pooled("o", "on-demand", "a", "system"), pooled("s", "spot", "a")}, nil, "0 on-demand, 3 any, 0 spot, 3 granted, 1 warnings"},
		"on-demand is cordoned":         {floor, []*v1.Node{pooled("o", "on-demand", "a", v1.TaintNodeUnschedulable), pooled("s", "spot", "a")}, nil, "1 on-demand, 2 any, 0 spot, 0 granted, 0 warnings"},
		"pods in a zone with spot":      {floor, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "b")}, near("db"), "0 on-demand, 3 any, 0 spot, 3 granted, 1 warnings"},
		"pods that do not exist":        {floor, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "b")}, near("new"), "1 on-demand, 2 any, 0 spot, 0 granted, 0 warnings"},
		"spread":                        {floor, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "b")}, spread, "1 on-demand, 2 any, 0 spot, 0 granted, 1 warnings"},
		"overflow Never":                {onlySpot, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a")}, nil, "0 on-demand, 0 any, 3 spot, 0 granted, 0 warnings"},
		"overflow Never, spot tainted":  {onlySpot, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a", "spot")}, nil, "0 on-demand, 3 any, 0 spot, 0 granted, 0 warnings"},
		"overflow Never, no spot":       {onlySpot, []*v1.Node{pooled("o", "on-demand", "a")}, nil, "0 on-demand, 0 any, 3 spot, 0 granted, 0 warnings"},
		"overflow Never, another pool":  {onlySpot, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a")}, pool("on-demand"), "0 on-demand, 3 any, 0 spot, 0 granted, 0 warnings"},
		"GPUs on spot":                  {floor, []*v1.Node{pooled("o", "on-demand", "a"), gpus(pooled("s", "spot", "a"))}, needsGPU, "0 on-demand, 3 any, 0 spot, 3 granted, 1 warnings"},
		"GPUs on spot, no fallback":     {never, []*v1.Node{pooled("o", "on-demand", "a"), gpus(pooled("s", "spot", "a"))}, needsGPU, "0 on-demand, 3 any, 0 spot, 3 granted, 1 warnings"},
		"GPUs on spot, a young node":    {floor, []*v1.Node{young, gpus(pooled("s", "spot", "a"))}, needsGPU, "0 on-demand, 3 any, 0 spot, 3 granted, 1 warnings"},
		"GPUs on both":                  {floor, []*v1.Node{gpus(pooled("o", "on-demand", "a")), gpus(pooled("s", "spot", "a"))}, needsGPU, "1 on-demand, 2 any, 0 spot, 0 granted, 0 warnings"},
		"overflow Never, GPUs":          {onlySpot, []*v1.Node{gpus(pooled("o", "on-demand", "a")), pooled("s", "spot", "a")}, needsGPU, "0 on-demand, 3 any, 0 spot, 0 granted, 0 warnings"},
		"overflow Never, spot is going": {onlySpot, []*v1.Node{pooled("o", "on-demand", "a"), pooled("s", "spot", "a", spot.InterruptionTaint)}, nil, "0 on-demand, 0 any, 3 spot, 0 granted, 0 warnings"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := clustertest.NewDeployment("web", 3)
			for _, node := range test.nodes {
				objects = append(objects, node)
			}
			objects = append(objects, clustertest.Run("s", clustertest.NewPod("db-0", clustertest.OwnedBy("StatefulSet", "db"))))
			w := start(t, test.settings, objects...)
			w.settings.Policy.LabelGrace = time.Minute
			for i := range 3 {
				pod := gated("ReplicaSet", "web-r", fmt.Sprint("web-", i))
				if test.change != nil {
					test.change(pod)
				}
				w.create(pod)
			}
			got := w.assigned()
			granted := 0
			list, err := w.client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				switch grant := workload.Granted(&list.Items[i]); {
				case grant == "":
				case grant == spot.GrantedExemption != (name == "on-demand is tainted" || name == "GPUs on spot, a young node"):
					granted++
				default:
					t.Errorf("granted %q", grant)
				}
			}
			text := fmt.Sprintf("%d on-demand, %d any, %d spot, %d granted", count(got, "on-demand"), count(got, "any"), count(got, "spot"), granted)
			warnings, want := 0, test.want[strings.LastIndex(test.want, ", ")+2:]
			w.until(want+" of infeasible pods", func() bool {
				for len(w.events.Events) > 0 {
					if event := <-w.events.Events; strings.Contains(event, spot.ReasonHiddenFromAutoscaler) {
						if strings.HasPrefix(name, "GPUs") && !strings.Contains(event, "it requests nvidia.com/gpu") {
							t.Errorf("the event does not name the GPU: %s", event)
						}
						warnings++
					}
				}
				return fmt.Sprintf("%d warnings", warnings) == want
			})
			if !strings.HasPrefix(test.want, text) {
				t.Errorf("%s, want %s", text, test.want)
			}
		})
	}
}

// A pod waits for a NodePool that has reached its limit: the limit exempts it from no policy.
func TestPoolsOfKarpenter(t *testing.T) {
	floor, onlySpot := decision.WorkloadSettings{MinOnDemand: decision.Count(1)}, decision.WorkloadSettings{Overflow: decision.NeverOverflow}
	pool := func(capacity string) providers.NodePool {
		return providers.NodePool{Requirements: []v1.NodeSelectorRequirement{{Key: karpenter, Operator: v1.NodeSelectorOpIn, Values: []string{capacity}}}}
	}
	full := func(capacity string) providers.NodePool {
		p := pool(capacity)
		p.Left = v1.ResourceList{v1.ResourceCPU: {}}
		return p
	}
	tainted := func(capacity string) providers.NodePool {
		p := pool(capacity)
		p.Taints = []v1.Taint{{Key: "system", Effect: v1.TaintEffectNoSchedule}}
		return p
	}
	for name, test := range map[string]struct {
		settings decision.WorkloadSettings
		node     *v1.Node
		pool     providers.NodePool
		want     string
	}{
		"a floor, on-demand is full":      {floor, pooled("s", "spot", "a"), full("on-demand"), "on-demand"},
		"a floor, on-demand is tainted":   {floor, pooled("s", "spot", "a"), tainted("on-demand"), "any"},
		"overflow Never, spot is full":    {onlySpot, pooled("o", "on-demand", "a"), full("spot"), "spot"},
		"overflow Never, spot is tainted": {onlySpot, pooled("o", "on-demand", "a"), tainted("spot"), "any"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, test.settings, append(clustertest.NewDeployment("web", 1), test.node)...)
			w.settings.Provisioning.SetPools([]providers.NodePool{test.pool})
			w.create(gated("ReplicaSet", "web-r", "web-0"))
			if got := w.assigned()["web-0"]; got != test.want {
				t.Errorf("assigned %q, want %q", got, test.want)
			}
		})
	}
}

// A NodePool that adds no node now exempts no pod, because an exemption does not end.
func TestPoolsThatAddNothingNow(t *testing.T) {
	selector := map[string]string{"pool": "spot"}
	for name, test := range map[string]struct {
		pool providers.NodePool
		want string
	}{
		"a limit":   {providers.NodePool{Left: v1.ResourceList{v1.ResourceCPU: {}}}, spot.GrantedFallback},
		"not ready": {providers.NodePool{NotReady: true}, spot.GrantedFallback},
		"of spot":   {providers.NodePool{Requirements: []v1.NodeSelectorRequirement{{Key: karpenter, Operator: v1.NodeSelectorOpIn, Values: []string{"spot"}}}}, spot.GrantedExemption},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: time.Hour},
				append(clustertest.NewDeployment("web", 1), pooled("o", "on-demand", "a"), pooled("s", "spot", "a"))...)
			test.pool.Requirements = append(test.pool.Requirements, v1.NodeSelectorRequirement{Key: "pool", Operator: v1.NodeSelectorOpIn, Values: []string{"spot"}})
			w.settings.Provisioning.SetPools([]providers.NodePool{test.pool})
			pod := gated("ReplicaSet", "web-r", "web-0")
			pod.Spec.NodeSelector = selector
			w.create(pod)
			w.assigned()
			pod, err := w.client.CoreV1().Pods("shop").Get(t.Context(), "web-0", metav1.GetOptions{})
			if err != nil || workload.Granted(pod) != test.want {
				t.Errorf("granted %q, %v, want %q", workload.Granted(pod), err, test.want)
			}
		})
	}
}

// waitingFloor returns a pod of a floor that has waited longer than fallbackAfter.
func waitingFloor(t *testing.T, more ...runtime.Object) (*world, *v1.Pod) {
	settings := decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: 5 * time.Minute, RolloutRelief: decision.Never}
	pod := unschedulable(gated("ReplicaSet", "web-r", "web-0"), 9*time.Minute, "on-demand")
	return start(t, settings, append(append(clustertest.NewDeployment("web", 2), pod), more...)...), pod
}

// The replacement of a pod that was released for a heal gets no fallback.
func TestNoFallbackOfAHeal(t *testing.T) {
	released := func(reason, owner string, before time.Duration) *v1.Pod {
		pod := clustertest.NewPod("web-released", clustertest.OwnedBy("ReplicaSet", owner))
		pod.Labels["pod-template-hash"] = "r"
		clustertest.ReleaseFor(reason, time.Now().Add(-before), pod)
		return pod
	}
	for name, test := range map[string]struct {
		released *v1.Pod
		want     bool
	}{
		"a heal":                     {released("heal", "web-r", time.Minute), false},
		"a drain":                    {released("drain", "web-r", time.Minute), true},
		"a heal of another revision": {released("heal", "other-r", time.Minute), true},
		"a claim of yesterday":       {released("heal", "web-r", 24*time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			w, pod := waitingFloor(t, test.released)
			if test.want {
				w.until("the pod is deleted", func() bool { return w.gone(pod.Name) })
				return
			}
			for range 3 {
				if _, err := w.reconcile(t.Context(), workload.RevisionOf(pod)); err != nil {
					t.Fatal(err)
				}
			}
			if w.gone(pod.Name) {
				t.Error("the replacement of a heal may run on spot")
			}
		})
	}
}

// An autoscaler's refusal is recorded for the revision and the capacity type.
func TestRefusalOfAutoscaler(t *testing.T) {
	event := func(reason, note string, before time.Duration) *v1.Event {
		e := nominated(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: clustertest.UID("web-0")}}, before)
		e.Name, e.Reason, e.Message = reason+note, reason, note
		return e
	}
	for name, test := range map[string]struct {
		events []runtime.Object
		want   bool
	}{
		"Karpenter":          {[]runtime.Object{event("FailedScheduling", "Failed to schedule pod, incompatible with nodepool", time.Minute)}, true},
		"cluster autoscaler": {[]runtime.Object{event("NotTriggerScaleUp", "pod didn't trigger scale-up", time.Minute)}, true},
		"the scheduler":      {[]runtime.Object{event("FailedScheduling", "0/5 nodes are available", time.Minute)}, false},
		"a node starts":      {[]runtime.Object{event("NotTriggerScaleUp", "pod didn't trigger scale-up", time.Hour), event("TriggeredScaleUp", "", time.Minute)}, false},
		"no longer starts":   {[]runtime.Object{event("NotTriggerScaleUp", "pod didn't trigger scale-up", time.Minute), event("TriggeredScaleUp", "", time.Hour)}, true},
		"nothing":            {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			settings := decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never, RolloutRelief: decision.Never}
			pod := unschedulable(gated("ReplicaSet", "web-r", "web-0"), time.Minute, "on-demand")
			pod.UID = clustertest.UID("web-0")
			w := start(t, settings, append(append(clustertest.NewDeployment("web", 1), pod), test.events...)...)
			revision := workload.RevisionOf(pod)
			refused := func(requires decision.AssignedCapacity) bool {
				return w.settings.Provisioning.Refused(revision, requires, time.Now())
			}
			w.until("the events are read", func() bool { return !w.recorded(pod.UID).eventsRead.IsZero() })
			if test.want {
				w.until("the refusal is recorded", func() bool { return refused(decision.AssignedOnDemand) })
			} else if refused(decision.AssignedOnDemand) {
				t.Error("a refusal is recorded")
			}
			if refused(decision.AssignedSpot) {
				t.Error("a refusal of spot is recorded")
			}
		})
	}
}

// The pods of older revisions are read once, however many pods wait.
func TestCostOfAWaitingFloor(t *testing.T) {
	objects := append(clustertest.NewDeployment("web", 50, "old", "r"), clustertest.NewNode("s", "spot", "m/a"))
	for i := range 50 {
		objects = append(objects, clustertest.Run("s", clustertest.NewPod(fmt.Sprint("web-old-", i), clustertest.OwnedBy("ReplicaSet", "web-old"))),
			unschedulable(gated("ReplicaSet", "web-r", fmt.Sprint("web-r-", i)), time.Minute, "on-demand"))
	}
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Percent(100), FallbackAfter: time.Hour, RolloutRelief: 30 * time.Second}, objects...)
	pod := gated("ReplicaSet", "web-r", "x")
	w.until("all pods wait", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.pending) == 50 })
	counting := &countingIndexer{Indexer: w.pods}
	w.pods = counting
	if _, err := w.reconcile(t.Context(), workload.RevisionOf(pod)); err != nil {
		t.Fatal(err)
	}
	if got := counting.reads.Load(); got > 5 {
		t.Errorf("%d reads of the pods of a revision, want a few", got)
	}
}

type countingIndexer struct {
	cache.Indexer
	reads atomic.Int32
}

func (c *countingIndexer) ByIndex(name, value string) ([]any, error) {
	c.reads.Add(1)
	return c.Indexer.ByIndex(name, value)
}

// A pod whose patches are refused is deleted for reassignment once, not again and again.
func TestUselessReassignment(t *testing.T) {
	objects := append(clustertest.NewDeployment("web", 1), clustertest.NewDeployment("other", 1)...)
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}, objects...)
	w.until("the Assigner runs", w.leading.Load)
	w.leading.Store(false) // only this test reconciles: two reconciliations of a revision never run at the same time
	revision := workload.RevisionOf(gated("ReplicaSet", "web-r", "x"))
	deleted := 0
	for i := range 3 {
		pod := unschedulable(gated("ReplicaSet", "web-r", fmt.Sprint("web-", i)), time.Minute, "")
		w.mu.Lock()
		w.gateRemovedAt["shop"] = time.Now() // of a pod of another workload
		w.mu.Unlock()
		w.create(pod)
		w.until("the pod was seen", func() bool { pods, _ := w.livePods(revision); return len(pods) == 1 || w.gone(pod.Name) })
		for range 3 {
			if _, err := w.reconcile(t.Context(), revision); err != nil {
				t.Fatal(err)
			}
		}
		if !w.gone(pod.Name) {
			break
		}
		deleted++
		w.until("the cache has no pod", func() bool { pods, _ := w.livePods(revision); return len(pods) == 0 })
	}
	if deleted != 1 {
		t.Errorf("%d pods were deleted, want 1", deleted)
	}
}

// Namespaces without pods need no memory.
func TestNamespacesAreForgotten(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(0), FallbackAfter: decision.Never})
	for i := range 20 {
		pod := gated("ReplicaSet", "none", "p")
		pod.OwnerReferences, pod.Namespace, pod.UID = nil, fmt.Sprint("ci-", i), clustertest.UID(fmt.Sprint("p", i))
		w.create(pod)
	}
	remembered := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.gateRemovedAt) }
	w.until("all are assigned", func() bool { return remembered() == 20 })
	for i := range 20 {
		if err := w.client.CoreV1().Pods(fmt.Sprint("ci-", i)).Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.until("all namespaces are forgotten", func() bool { return remembered() == 0 })
}

// A grant is given once, even if the API server performs the patch but its answer is lost.
func TestLostAnswer(t *testing.T) {
	w := start(t, decision.WorkloadSettings{MinOnDemand: decision.Count(2), FallbackAfter: 5 * time.Minute}, clustertest.NewDeployment("web", 2)...)
	first := true
	w.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !first {
			return false, nil, nil
		}
		first = false
		if _, _, err := clienttesting.ObjectReaction(w.client.Tracker())(action); err != nil {
			t.Error(err)
		}
		return true, nil, errors.New("connection reset by peer")
	})
	one := gated("ReplicaSet", "web-r", "web-0")
	w.addReplacement(workload.RevisionOf(one), replacement{"web", spot.GrantedFallback, time.Now()})
	w.create(one)
	w.assigned()
	w.create(gated("ReplicaSet", "web-r", "web-1"))
	if got := w.assigned(); got["web-0"] != "any" || got["web-1"] != "on-demand" {
		t.Errorf("assigned %v, want one grant", got)
	}
}
