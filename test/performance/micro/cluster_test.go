// Package micro measures the cost of the plugins at each extension point, compared with in-tree
// plugins on the same snapshot. The test compares the ratios with thresholds.yaml. The benchmarks
// print all figures (make bench-micro).
//
//	cluster_test.go     the cluster: the scheduler's own cache and snapshot, full of pods
//	plugins_test.go     the plugins, and a scheduling cycle with them
//	points_test.go      the measured points, by name
//	micro_test.go       the benchmarks
//	thresholds_test.go  the test of the thresholds
//	risk_test.go        the cost of past losses of spot pools
package micro

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// size is the size of a cluster. searched is the number of nodes that kube-scheduler searches for
// one pod, if all nodes are feasible and percentageOfNodesToScore is not set.
type size struct{ nodes, podsPerNode, searched int }

var sizes = []size{{100, 30, 100}, {5_000, 30, 500}, {100_000, 10, 5_000}}

func (s size) pods() int { return s.nodes * s.podsPerNode }

const (
	replicas              = 20 // of every workload
	workloadsPerNamespace = 50
	stride                = 7919 // a prime, to spread over the whole cluster
)

// cluster is the scheduler's cache and a snapshot of it, full of workloads with 20 replicas each.
// 70 % of the nodes are spot, in 3 zones and with 4 instance types. The replicas of a workload are
// spread over all nodes.
type cluster struct {
	size
	ctx      context.Context
	cache    cache.Cache
	snapshot *cache.Snapshot
	infos    []fwk.NodeInfo
	// client has the objects that the plugins look up: the measured workloads and their Service.
	client *fake.Clientset
	// web is the last replica of workload 0, which is placed next; every node is within its budget.
	// affine is the same pod with a typical node affinity to spot, as without this scheduler.
	// strict is a pod that may run only on on-demand.
	web, affine, strict *v1.Pod

	other   *v1.Pod // of another workload; added and removed to change a node
	assumed bool
	next    int
}

func newCluster(t testing.TB, s size) *cluster {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c := &cluster{size: s, ctx: ctx, cache: cache.New(ctx, nil, false), snapshot: cache.NewEmptySnapshot()}
	for i := range s.nodes {
		c.cache.AddNode(klog.FromContext(ctx), nodeOf(i))
	}
	for i := range s.pods() / replicas {
		w := newWorkload(i)
		for j := range replicas {
			pod := w.pod(j)
			if i == 0 && j == replicas-1 {
				c.web = pod
				continue
			}
			pod.Spec.NodeName = nodeName((i*replicas + j) * stride % s.nodes)
			must(t, c.cache.AddPod(klog.FromContext(ctx), pod))
		}
	}
	web, other, strict := newWorkload(0), newWorkload(1), newWorkload(s.pods()/replicas)
	strict.deployment.Namespace, strict.replicaSet.Namespace = web.namespace(), web.namespace()
	strict.deployment.Annotations = map[string]string{spot.MinOnDemandAnnotation: "100%"}
	c.other, c.strict = other.pod(replicas), strict.pod(0)
	c.affine = c.web.DeepCopy()
	c.affine.Spec.Affinity = preferSpot()
	c.client = fake.NewClientset(web.deployment, web.replicaSet, web.service(), strict.deployment, strict.replicaSet)

	must(t, c.cache.UpdateSnapshot(klog.FromContext(ctx), c.snapshot))
	var err error
	c.infos, err = c.snapshot.NodeInfos().List()
	must(t, err)
	return c
}

// change changes one node and takes the next snapshot. It assumes or forgets a pod, as a scheduling
// cycle of another pod does.
func (c *cluster) change(t testing.TB) {
	logger := klog.FromContext(c.ctx)
	if c.assumed {
		must(t, c.cache.ForgetPod(logger, c.other))
	} else {
		c.next = (c.next + stride) % c.nodes
		c.other.Spec.NodeName = nodeName(c.next)
		must(t, c.cache.AssumePod(logger, c.other))
	}
	c.assumed = !c.assumed
	must(t, c.cache.UpdateSnapshot(logger, c.snapshot))
}

// window returns the nodes that this cycle searches. Like kube-scheduler, each cycle starts where
// the last one ended.
func (c *cluster) window(cycle int) []fwk.NodeInfo {
	start := cycle % (c.nodes / c.searched) * c.searched
	return c.infos[start : start+c.searched]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// uid returns a UID with the length of real UIDs.
func uid(kind, i int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, i)) }

func isSpot(node *v1.Node) bool { return node.Labels[spot.CapacityLabel] == "spot" }

func nodeOf(i int) *v1.Node {
	capacity := "on-demand"
	if i%10 < 7 {
		capacity = "spot"
	}
	instanceType := []string{"m6i.xlarge", "m6a.xlarge", "c6i.2xlarge", "r6i.xlarge"}[i/30%4]
	zone := []string{"r-a", "r-b", "r-c"}[i/10%3]
	node := clustertest.NewNode(nodeName(i), capacity, instanceType+"/"+zone, "cpu=16")
	node.Labels[v1.LabelOSStable] = "linux"
	node.Status.Allocatable[v1.ResourceMemory] = resource.MustParse("64Gi")
	return node
}

// testWorkload is a Deployment with its ReplicaSet. Its pods share their common parts, because a
// million pods take about 2 GB even so.
type testWorkload struct {
	deployment *appsv1.Deployment
	replicaSet *appsv1.ReplicaSet
	owners     []metav1.OwnerReference
	number     int
}

var containers = []v1.Container{{Name: "web", Image: "web", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
	v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("128Mi")}}}}

func newWorkload(i int) *testWorkload {
	objects := clustertest.NewDeployment(fmt.Sprintf("web-%d", i), replicas, "5d9f")
	w := &testWorkload{deployment: objects[0].(*appsv1.Deployment), replicaSet: objects[1].(*appsv1.ReplicaSet), number: i}
	w.deployment.Namespace = fmt.Sprintf("team-%d", i/workloadsPerNamespace)
	w.replicaSet.Namespace = w.deployment.Namespace
	w.replicaSet.UID, w.replicaSet.Labels = uid(3, i), w.replicaSet.Spec.Selector.MatchLabels
	w.owners = []metav1.OwnerReference{*metav1.NewControllerRef(w.replicaSet, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	return w
}

func (w *testWorkload) namespace() string { return w.deployment.Namespace }

// service returns a Service that selects the workload's pods, of all revisions.
func (w *testWorkload) service() runtime.Object {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace(), Name: w.deployment.Name},
		Spec: v1.ServiceSpec{Selector: map[string]string{"app": w.deployment.Name}}}
}

func (w *testWorkload) pod(i int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace(), Name: fmt.Sprintf("%s-%d", w.replicaSet.Name, i),
			UID: uid(4, w.number*(replicas+1)+i), Labels: w.replicaSet.Labels, OwnerReferences: w.owners},
		Spec: v1.PodSpec{SchedulerName: profile, Containers: containers},
	}
}

// preferSpot returns a typical affinity of users who prefer spot: a requirement that all nodes
// meet, and a preference.
func preferSpot() *v1.Affinity {
	in := func(key, value string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}}}}
	}
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{in(v1.LabelOSStable, "linux")}},
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
			{Weight: 100, Preference: in(spot.CapacityLabel, "spot")}},
	}}
}

// TestOneNodeChanges checks an assumption of the figures: the plugins observe one changed node in
// every cycle.
func TestOneNodeChanges(t *testing.T) {
	c := newCluster(t, sizes[0])
	generations := map[fwk.NodeInfo]int64{}
	for cycle := range 5 {
		changed := 0
		for _, info := range c.infos {
			if generations[info] != info.GetGeneration() {
				generations[info] = info.GetGeneration()
				changed++
			}
		}
		if cycle > 0 && changed != 1 {
			t.Errorf("cycle %d: %d nodes have changed, want 1", cycle, changed)
		}
		c.change(t)
	}
}
