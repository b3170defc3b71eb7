// Package tenant compares the CPU time of the controller with and without a tenant who writes
// objects of the largest size that the API server accepts.
package tenant

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/round"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

const (
	nodes, pods = 5000, 50000
	// mostRatio is the largest permitted ratio of the CPU times with and without the tenant.
	mostRatio = 1.5
	// maxAnnotations is the largest size of all annotations of an object.
	maxAnnotations = 256 << 10
)

// each also measures every kind of object alone.
var each = flag.Bool("each", false, "also measure each kind of object of the tenant alone")

// tenants are the objects of a tenant.
var tenants = map[string]func() []runtime.Object{
	"annotations": annotations, "budgets": budgets, "small budgets": smallBudgets, "terms": terms, "pending pods": pending,
	"pending pods with terms": pendingTerms, "all": func() []runtime.Object {
		return slices.Concat(annotations(), budgets(), smallBudgets(), terms(), pending(), pendingTerms())
	},
}

// of moves objects into the namespace of the tenant.
func of(objects ...runtime.Object) []runtime.Object {
	for _, object := range objects {
		object.(metav1.Object).SetNamespace("tenant")
	}
	return objects
}

// deployment returns a protected Deployment with replicas on spot, so that its floor lacks some.
// node is the node of its pods; "" if they are pending.
func deployment(name, node string, replicas int, change func(*v1.Pod)) []runtime.Object {
	objects := clustertest.NewDeployment(name, int32(replicas))
	objects[0].(*appsv1.Deployment).Annotations = map[string]string{spot.ProtectAnnotation: "true", spot.MinOnDemandAnnotation: "50%"}
	for i := range replicas {
		pod := clustertest.NewPod(fmt.Sprintf("%s-%d", name, i), clustertest.OwnedBy("ReplicaSet", name+"-r"))
		pod.Labels = map[string]string{"app": name, appsv1.DefaultDeploymentUniqueLabelKey: "r"}
		if node == "" {
			pod.Status.Phase = v1.PodPending
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable}}
		} else {
			clustertest.Run(node, pod)
		}
		if change != nil {
			change(pod)
		}
		objects = append(objects, pod)
	}
	return of(objects...)
}

func annotations() (all []runtime.Object) {
	for i := range 50 {
		objects := deployment(fmt.Sprint("large", i), "n00005", 4, func(pod *v1.Pod) {
			pod.Annotations = map[string]string{spot.ReleasedAnnotation: `{"replicaSet":"` + strings.Repeat("x", maxAnnotations-100) + `"}`}
		})
		objects[0].(*appsv1.Deployment).Annotations[spot.MinOnDemandAnnotation] = strings.Repeat("9,", maxAnnotations/2-100)
		all = append(all, objects...)
	}
	return all
}

// disruptionBudgets returns n PodDisruptionBudgets with so many expressions that match every pod.
func disruptionBudgets(prefix string, n, expressions int) (all []runtime.Object) {
	for i := range n {
		b := clustertest.NewBudget(fmt.Sprint(prefix, i), 1)
		b.Spec.Selector = &metav1.LabelSelector{}
		for j := range expressions {
			b.Spec.Selector.MatchExpressions = append(b.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: fmt.Sprintf("k%d", j), Operator: metav1.LabelSelectorOpDoesNotExist})
		}
		all = append(all, b)
	}
	return of(all...)
}

func budgets() []runtime.Object {
	return append(disruptionBudgets("large", 20, 20000), deployment("guarded", "n00006", 10, nil)...)
}

func smallBudgets() []runtime.Object {
	return append(disruptionBudgets("small", 2000, 200), deployment("small", "n00006", 10, nil)...)
}

// withTerms adds terms of required anti-affinity to a pod. The pods of a ReplicaSet have separate
// copies, as pods without a node have in the cache.
func withTerms(pod *v1.Pod) {
	a := &v1.PodAntiAffinity{}
	for j := range 5000 {
		a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, v1.PodAffinityTerm{
			TopologyKey: "z", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: fmt.Sprint("k", j), Operator: metav1.LabelSelectorOpExists}}}})
	}
	pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: a}
}

func terms() []runtime.Object { return deployment("terms", "n00007", 50, withTerms) }

func pendingTerms() []runtime.Object { return deployment("waiting-terms", "", 50, withTerms) }

// large makes a pod fit nowhere.
func large(pod *v1.Pod) {
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("32")
}

// pending returns pods that fit nowhere, and pods for which no room was searched before.
func pending() []runtime.Object {
	return append(deployment("large", "", 3900, large), deployment("waiting", "", 100, nil)...)
}

// fleet returns the nodes and pods that both arms have.
func fleet() (all []runtime.Object) {
	name := func(i int) string { return fmt.Sprintf("n%05d", i%nodes) }
	for i := range nodes {
		capacity := "spot"
		if i%10 < 3 {
			capacity = "on-demand"
		}
		all = append(all, clustertest.NewNode(name(i), capacity, fmt.Sprintf("m%d/z%d", i%4, i%3), "cpu=16"))
	}
	for i := range pods / 10 {
		app := fmt.Sprintf("web%05d", i)
		objects := clustertest.NewDeployment(app, 10)
		for j := range 10 {
			pod := clustertest.NewPod(fmt.Sprintf("%s-%d", app, j), clustertest.OwnedBy("ReplicaSet", app+"-r"))
			pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "r"
			objects = append(objects, clustertest.Run(name(10*i+j), pod))
		}
		for _, object := range objects {
			object.(metav1.Object).SetNamespace(fmt.Sprint("team-", i%50))
		}
		all = append(all, objects...)
	}
	// In both arms a pod is moved, because a floor lacks replicas, and one fits nowhere.
	web := append(deployment("lacking", "n00003", 10, nil), deployment("large", "", 1, large)...)
	for _, object := range web {
		object.(metav1.Object).SetNamespace("team-0")
	}
	return append(all, web...)
}

// configuration returns the shipped configuration.
func configuration(t *testing.T) round.Config {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("..", "..", "..", "config", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	settings, err := controller.Read(read("controller-config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy, signals, err := config.ReadPolicy(read("scheduler-config.yaml"), config.DefaultProfile)
	if err != nil {
		t.Fatal(err)
	}
	return round.Config{SpotControllerConfiguration: settings, Profile: config.DefaultProfile, Policy: policy, Signals: signals}
}

// cpu returns the CPU time of do.
func cpu(do func()) time.Duration {
	used := func() (total time.Duration) {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			panic(err)
		}
		for _, t := range []syscall.Timeval{r.Utime, r.Stime} {
			total += time.Duration(t.Nano())
		}
		return total
	}
	// Garbage collection would measure the size of the caches, and that at random times.
	debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := used()
	do()
	return used() - before
}

// compare runs both arms in turns, and fails if the median ratio of their CPU times is too large.
func compare(t *testing.T, rounds int, without, with func() time.Duration) {
	t.Helper()
	var ratios []float64
	var a, b time.Duration
	for range rounds {
		a, b = without(), with()
		ratios = append(ratios, b.Seconds()/a.Seconds())
	}
	r := frame.RangeOf(ratios)
	t.Logf("CPU time with the tenant: %s times, in the last round %s and %s", r.Text("%.2f"),
		b.Round(time.Millisecond), a.Round(time.Millisecond))
	if r.Median > mostRatio {
		t.Errorf("%.2f times the CPU time with the tenant, want at most %.1f", r.Median, mostRatio)
	}
}

// planner returns a function that plans a round of a controller whose caches contain the objects.
func planner(t *testing.T, objects []runtime.Object) func() time.Duration {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	p, err := round.NewPlanner(configuration(t), factory,
		round.Clients{Writer: client, Live: client, RequestTimeout: time.Second, Recorder: &events.FakeRecorder{}})
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Fill(t, factory, objects...)
	plan := func() {
		if _, err := p.Plan(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	plan() // the first round reads each object for the first time
	return func() time.Duration { return cpu(plan) }
}

func TestRound(t *testing.T) {
	base := fleet()
	without := planner(t, base)
	for name, objects := range tenants {
		if name != "all" && !*each {
			continue
		}
		t.Run(name, func(t *testing.T) {
			compare(t, 9, without, planner(t, slices.Concat(base, objects())))
		})
	}
}

// assigner returns a function that assigns 1,000 gated pods of 100 Deployments.
func assigner(t *testing.T, objects []runtime.Object) func() time.Duration {
	c := configuration(t)
	c.Policy.Defaults.MinOnDemand = decision.Percent(20)
	labels, err := gating.NewLabels(c.Policy, []string{spot.CapacityLabel}, spot.CapacityLabel)
	if err != nil {
		t.Fatal(err)
	}
	return func() time.Duration {
		client := &fake.Clientset{}
		factory := informers.NewSharedInformerFactory(client, 0)
		a, err := gating.New(factory, client, &events.FakeRecorder{}, clock.RealClock{}, &gating.AdmissionPolicy{},
			gating.Settings{Scope: workload.Scope{Profile: c.Profile}, Policy: c.Policy, Labels: labels, NodeStartup: 3 * time.Minute,
				Provisioning: &simulation.Provisioning{Policy: c.Policy}})
		if err != nil {
			t.Fatal(err)
		}
		clustertest.Fill(t, factory, objects...)
		byName := map[string]*v1.Pod{}
		for i := range 100 {
			app := fmt.Sprintf("gated%03d", i)
			clustertest.Fill(t, factory, clustertest.NewDeployment(app, 10)...)
			for j := range 10 {
				pod := clustertest.NewPod(fmt.Sprintf("%s-%d", app, j), clustertest.OwnedBy("ReplicaSet", app+"-r"))
				pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: spot.CapacityGate}}
				byName[pod.Name] = pod
				clustertest.Fill(t, factory, pod)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var patched atomic.Int32
		client.AddReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if pod := byName[action.(clienttesting.PatchAction).GetName()]; pod != nil && patched.Add(1) == int32(len(byName)) {
				close(ended)
			}
			return true, &v1.Pod{}, nil
		})
		return cpu(func() {
			running := make(chan struct{})
			go func() { a.Run(ctx); close(running) }()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Errorf("%d pods are assigned", patched.Load())
			}
			cancel()
			<-running
		})
	}
}

func TestGatedPods(t *testing.T) {
	base := fleet()
	for name, objects := range tenants {
		if name != "all" && !*each {
			continue
		}
		t.Run(name, func(t *testing.T) {
			compare(t, 5, assigner(t, base), assigner(t, slices.Concat(base, objects())))
		})
	}
}
