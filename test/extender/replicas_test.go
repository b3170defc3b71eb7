package extender

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// service stands in for the Service spot-extender: it sends every connection to one of the replicas that take it, in turn.
type service struct {
	listener net.Listener

	mu       sync.Mutex
	replicas []string
	turn     int
}

func newService(t *testing.T, replicas ...*lab.Extender) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &service{listener: listener}
	for _, e := range replicas {
		s.replicas = append(s.replicas, e.Address)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go s.connect(from)
		}
	}()
	return s
}

func (s *service) address() string { return s.listener.Addr().String() }

func (s *service) connect(from net.Conn) {
	defer from.Close()
	s.mu.Lock()
	s.turn++
	order := slices.Concat(s.replicas[s.turn%len(s.replicas):], s.replicas[:s.turn%len(s.replicas)])
	s.mu.Unlock()
	for _, address := range order {
		to, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			continue
		}
		go func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
		}()
		_, _ = io.Copy(from, to)
		_ = to.Close()
		return
	}
}

// TestReplicaEndsUnderLoad has two replicas serve a stock kube-scheduler while 600 pods come, and ends the one that leads, or the one that
// stands by, in the middle of it. All pods are placed within 30 s, and nothing is over its budget at any moment.
func TestReplicaEndsUnderLoad(t *testing.T) {
	for name, test := range map[string]struct {
		leader bool
		end    func(*lab.Extender) error
	}{
		"leader killed":       {true, func(e *lab.Extender) error { return e.Kill() }},
		"leader asked to end": {true, func(e *lab.Extender) error { return e.Stop() }},
		"stand-by killed":     {false, func(e *lab.Extender) error { return e.Kill() }},
	} {
		t.Run(name, func(t *testing.T) {
			const workloads, replicas, floor = 30, 20, 6
			const limit = 30 * time.Second // that nothing is placed: the lease ends, the next leader takes over, the scheduler's back-off ends
			withNodes(t, slices.Concat(live.OnDemand(20, 20), live.Spot(30, 20))...)
			first := startExtender(t)
			leads(t, newClient(t, scheduler(t)), first.Address, "od-1")
			second := startExtender(t) // stands by
			service := newService(t, second, first)
			auditor := audit.Watch(t, controlPlane.Config(), audit.Options{Policy: shippedPolicy(t), Patience: limit})
			options, err := controlPlane.ExtendedScheduler(service.address())
			must(t, err)
			options.Flags = []string{"-v=2", "--pod-max-in-unschedulable-pods-duration=1h"}
			stock, err := controlPlane.StartScheduler(t.Context(), options)
			must(t, err)
			t.Cleanup(func() {
				if t.Failed() {
					t.Log("the scheduler's log ends with:\n" + live.Tail(stock.Log, 30))
				}
				if err := stock.Kill(); err != nil {
					t.Error(err)
				}
			})
			namespace := newNamespace(t)
			want := map[string]live.Split{}
			for i := range workloads {
				app := fmt.Sprintf("app-%d", i)
				deploy(t, namespace, app, replicas, floor)
				want[app] = live.Split{OnDemand: floor, Spot: replicas - floor}
			}
			must(t, live.Until(t.Context(), time.Minute, func() error { return placed(t, namespace, workloads*replicas/6) }))
			ending := second
			if test.leader {
				ending = first
			}
			must(t, test.end(ending))
			ended := time.Now()
			if placed(t, namespace, workloads*replicas*9/10) == nil {
				t.Fatal("too late: nine of ten pods are placed already")
			}
			must(t, live.Until(t.Context(), 60*time.Second, func() error { return placed(t, namespace, workloads*replicas) }))
			took := time.Since(ended)
			t.Logf("%s: all %d pods placed %.1f s later", name, workloads*replicas, took.Seconds())
			if took > limit {
				t.Errorf("all pods placed %s after the replica ended, want %s at most", took, limit)
			}
			got, err := live.Splits(t.Context(), client, namespace)
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pods stand differently (-want +got):\n%s", diff)
			}
			auditor.Require(t)
		})
	}
}

// placed returns an error unless at least n pods have a node.
func placed(t *testing.T, namespace string, n int) error {
	splits, err := live.Splits(t.Context(), client, namespace)
	if err != nil {
		return err
	}
	have := 0
	for _, s := range splits {
		have += s.OnDemand + s.Spot
	}
	if have < n {
		return fmt.Errorf("%d pods are placed, want %d", have, n)
	}
	return nil
}

func shippedPolicy(t *testing.T) *audit.Policy {
	t.Helper()
	data, err := live.SchedulerConfig(controlPlane.Root, nil)
	must(t, err)
	policy, err := audit.PolicyFromSchedulerConfig(data)
	must(t, err)
	return policy
}

// newNamespace returns a namespace that goes with the test, and what is in it before its nodes.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { clearNamespace(t, ns.Name) })
	return ns.Name
}

func deploy(t *testing.T, namespace, app string, replicas int32, floor int) {
	t.Helper()
	_, err := client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app, Annotations: map[string]string{"spot-aware-scheduler.io/min-on-demand": fmt.Sprint(floor)}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: live.PodTemplate(app),
		},
	}, metav1.CreateOptions{})
	must(t, err)
}
