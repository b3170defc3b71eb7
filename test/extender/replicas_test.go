package extender

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestReplicaStoppedUnderLoad has two replicas serve a stock kube-scheduler, and stops the leader
// or the standby while pods are created. All pods must be placed within 30 s, including pods of
// another profile, for which the extender makes no decision. No workload may ever exceed its
// budget.
func TestReplicaStoppedUnderLoad(t *testing.T) {
	for name, test := range map[string]struct {
		leader, deleted bool
	}{
		"leader killed":   {leader: true},
		"leader deleted":  {leader: true, deleted: true},
		"standby killed":  {},
		"standby deleted": {deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			const workloads, replicas, floor = 30, 20, 6
			// All are created before the lease expires, also on a slow machine: a new leader waits
			// for a second without a binding.
			const others = 60
			const limit = 30 * time.Second // without a placement: lease, takeover and backoff
			s := live.NewScenario(t, controlPlane, client, slices.Concat(live.OnDemand(20, 20), live.Spot(40, 20))...)
			first := startExtender(t)
			awaitLeader(t, newClient(t, schedulerTLS(t)), first.Address, "od-1")
			second := startExtender(t) // the standby
			service := newService(t, second, first)
			s.Audit(nil, audit.Options{Patience: limit})
			startStock(t, service.address(), nil)
			namespace, other := s.Namespace, s.NewNamespace()
			s.Others = []string{other}
			want := map[string]live.Split{}
			// Half of the pods are created before the replica stops, and the others during that.
			createHalf := func(half int) {
				for i := half * workloads / 2; i < (half+1)*workloads/2; i++ {
					app := fmt.Sprintf("app-%d", i)
					deploy(s, app, replicas, floor)
					want[app] = live.Split{OnDemand: floor, Spot: replicas - floor}
				}
				// The extender makes no decision for these pods.
				d := live.NewDeployment(fmt.Sprintf("other-%d", half), others/2, func(d *appsv1.Deployment) {
					d.Spec.Template.Spec.SchedulerName = v1.DefaultSchedulerName
				})
				_, err := client.AppsV1().Deployments(other).Create(t.Context(), d, metav1.CreateOptions{})
				live.Must(t, err)
			}
			createHalf(0)
			live.Must(t, live.Until(t.Context(), time.Minute, func() error { return placed(t, namespace, workloads*replicas/6) }))
			stopped := second
			if test.leader {
				stopped = first
			}
			end := stopped.Kill
			if test.deleted {
				end = stopped.Stop
				service.delete(stopped)
				time.Sleep(preStop(t)) // like the kubelet
			}
			createHalf(1)
			began := time.Now()
			live.Must(t, end())
			if placed(t, namespace, workloads*replicas) == nil {
				t.Fatal("too late: all pods are placed already")
			}
			took := map[string]time.Duration{}
			live.Must(t, live.Until(t.Context(), 2*limit, func() error {
				var waiting []error
				for namespace, n := range map[string]int{namespace: workloads * replicas, other: others} {
					if err := placed(t, namespace, n); err != nil {
						waiting = append(waiting, err)
					} else if took[namespace] == 0 {
						took[namespace] = time.Since(began)
					}
				}
				return errors.Join(waiting...)
			}))
			t.Logf("%s: all %d pods placed %.1f s later, %d of another profile %.1f s",
				name, workloads*replicas, took[namespace].Seconds(), others, took[other].Seconds())
			if took[namespace] > limit || took[other] > limit {
				t.Errorf("all pods placed %s after the replica stopped, and pods of another profile %s, want at most %s",
					took[namespace], took[other], limit)
			}
			got, err := live.Splits(t.Context(), client, namespace)
			live.Must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pods per capacity type (-want +got):\n%s", diff)
			}
			s.Auditor.Require(t)
		})
	}
}

// preStop returns how long a replica continues to run after the deletion of its pod, according to
// the manifest.
func preStop(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(container(t).Lifecycle.PreStop.Sleep.Seconds) * time.Second
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

// deploy creates a Deployment with this floor.
func deploy(s *live.Scenario, app string, replicas, floor int) {
	s.Helper()
	s.Deploy(app, replicas, live.Annotated("spot-aware-scheduler.io/min-on-demand", fmt.Sprint(floor)))
}
