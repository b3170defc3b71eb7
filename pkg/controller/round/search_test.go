package round

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

func TestSearchUntil(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const never = -time.Hour
	for name, test := range map[string]struct{ expected, next, want time.Duration }{
		"no last moment":                  {never, never, searchTimeout},
		"a last moment later":             {never, time.Minute, searchTimeout},
		"a last moment soon":              {time.Second, time.Second, time.Second},
		"a last moment very soon":         {time.Millisecond, time.Millisecond, minSearchTimeout},
		"a last moment has passed":        {0, never, minSearchTimeout},
		"one has passed, another is soon": {-time.Second, time.Second, minSearchTimeout},
		"one in a second, another later":  {time.Second, time.Minute, searchTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			at := func(d time.Duration) time.Time {
				if d == never {
					return time.Time{}
				}
				return now.Add(d)
			}
			if got := searchUntil(now, at(test.expected), at(test.next)).Sub(now); got != test.want {
				t.Errorf("searches for %s, want %s", got, test.want)
			}
		})
	}
}

// slowRoom takes a tenth of a second for every pod, and has no room.
type slowRoom struct{ expired func() bool }

func (r slowRoom) Expired() bool { return r.expired() }

func (r slowRoom) Replace(*snapshot.Pod, decision.AssignedCapacity) (*snapshot.Node, string) {
	if r.expired() {
		return nil, simulation.NotExamined
	}
	time.Sleep(100 * time.Millisecond)
	return nil, "it is slow"
}

// spotNode returns a node with a reclaim deadline at a time.
func spotNode(name string, at time.Time) *v1.Node {
	node := clustertest.NewNode(name, "spot", "m/a", "taint=aws-node-termination-handler/spot-itn",
		"annotation="+spot.InterruptionDeadlineAnnotation+"="+at.Format(time.RFC3339))
	node.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	return node
}

// replicaSetOn returns a ReplicaSet with its pods, all on one node.
func replicaSetOn(name, node string, replicas int) []runtime.Object {
	rs := &appsv1.ReplicaSet{ObjectMeta: clustertest.Meta(name), Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}}
	objects := []runtime.Object{rs}
	for i := range replicas {
		pod := clustertest.NewPod(fmt.Sprintf("%s-%d", name, i), clustertest.OwnedBy("ReplicaSet", name))
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = node, new(int64(30))
		objects = append(objects, pod)
	}
	return objects
}

// shippedPlanner returns a planner with the shipped configuration.
func shippedPlanner(t *testing.T, factory informers.SharedInformerFactory, client kubernetes.Interface) *Planner {
	t.Helper()
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
	planner, err := NewPlanner(Config{SpotControllerConfiguration: settings, Profile: config.DefaultProfile, Policy: policy, Signals: signals}, factory,
		Clients{Writer: client, Live: client, RequestTimeout: 10 * time.Second, Recorder: &events.FakeRecorder{}})
	if err != nil {
		t.Fatal(err)
	}
	return planner
}

// The search for room for many pods may take long, but pods whose last moment is in the meantime
// are deleted in time.
func TestSlowSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		deadline := time.Now().Add(45 * time.Second)
		lastMoment := deadline.Add(-30 * time.Second)
		objects := []runtime.Object{spotNode("soon", deadline), spotNode("later", deadline.Add(time.Hour))}
		objects = append(objects, replicaSetOn("web", "soon", 1)...)
		objects = append(objects, replicaSetOn("many", "later", 300)...)
		client := fake.NewClientset(objects...)
		var deleted time.Time
		client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.(clienttesting.DeleteAction).GetName() == "web-0" {
				deleted = time.Now()
			}
			return false, nil, nil
		})
		factory := app.NewInformers(client)
		planner := shippedPlanner(t, factory, client)
		planner.newRoom = func(_ *snapshot.Snapshot, expired func() bool) rebalance.Room { return slowRoom{expired} }
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		synced := make(chan struct{})
		close(synced)
		l := loop.New(planner.Plan, synced, false, 1)
		ended := make(chan error)
		go func() { ended <- l.Start(ctx) }()
		time.Sleep(time.Until(deadline))
		if late := deleted.Sub(lastMoment); deleted.IsZero() || late < 0 || late > minSearchTimeout+100*time.Millisecond {
			t.Errorf("deleted %s after its last moment, want at once", late)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		planner.Wait()
		factory.Shutdown()
	})
}

// If rebalancing uses all its search time, the moves still have time.
func TestRebalancingLeavesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := append(replicaSetOn("web", "soon", 1), spotNode("soon", time.Now().Add(time.Hour)))
		client := fake.NewClientset(objects...)
		factory := app.NewInformers(client)
		var left []bool // of each Room: whether it had time
		planner := shippedPlanner(t, factory, client)
		planner.newRoom = func(_ *snapshot.Snapshot, expired func() bool) rebalance.Room {
			left = append(left, !expired())
			for len(left) == 1 && !expired() {
				time.Sleep(100 * time.Millisecond)
			}
			return slowRoom{expired}
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		began := time.Now()
		if _, err := planner.Plan(began); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(left, []bool{true, true}) {
			t.Errorf("of the Rooms for rebalancing and for the moves these had time: %t, want both", left)
		}
		if took := time.Since(began); took > searchTimeout+100*time.Millisecond {
			t.Errorf("took %s, want at most %s", took, searchTimeout)
		}
		cancel()
		factory.Shutdown()
	})
}
