//go:build long

package autoscaler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// keptTemplate returns a pod of an app that keeps kube-scheduler.
func keptTemplate(app string) v1.PodTemplateSpec {
	template := live.PodTemplate(app)
	template.Spec.SchedulerName = v1.DefaultSchedulerName
	return template
}

// keptWorkloads changes workloads at random. The sequence of changes is always the same.
type keptWorkloads struct {
	*keptScenario
	random *rand.Rand
	// want are the splits of the workloads by app.
	want map[string]live.Split
}

var keptFloors = []string{"1", "30%", "2"}

func (k *keptWorkloads) deploy(i, replicas int) {
	k.Helper()
	name, floor := fmt.Sprintf("app-%03d", i), keptFloors[i%len(keptFloors)]
	k.Deploy(name, replicas, kept, live.Annotated(minOnDemand, floor))
	k.want[name] = onFloor(floor, replicas)
}

func (k *keptWorkloads) statefulSet(i int, replicas int32) {
	k.Helper()
	name := fmt.Sprintf("set-%02d", i)
	_, err := kube.AppsV1().StatefulSets(k.Namespace).Create(k.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: keptTemplate(name),
		},
	}, metav1.CreateOptions{})
	k.Must(err)
	k.want[name] = onFloor("1", int(replicas))
}

// job creates a Job that runs until the test ends. Without retries it must run on on-demand.
func (k *keptWorkloads) job(i int) {
	k.Helper()
	const parallelism = 3
	name, parallel, retries := fmt.Sprintf("job-%02d", i), int32(parallelism), int32(6*(i%2))
	template := keptTemplate(name)
	template.Spec.RestartPolicy = v1.RestartPolicyNever
	_, err := kube.BatchV1().Jobs(k.Namespace).Create(k.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Parallelism: &parallel, BackoffLimit: &retries, Template: template},
	}, metav1.CreateOptions{})
	k.Must(err)
	k.want[name] = live.Split{Spot: parallelism}
	if retries == 0 {
		k.want[name] = live.Split{OnDemand: parallelism}
	}
}

// change scales, rolls out or deletes and creates a random Deployment, and returns what it did.
func (k *keptWorkloads) change(deployments int) string {
	k.Helper()
	i := k.random.IntN(deployments)
	name, replicas := fmt.Sprintf("app-%03d", i), k.random.IntN(10)+1
	switch k.random.IntN(4) {
	case 0, 1:
		k.Scale(name, replicas)
		k.want[name] = onFloor(keptFloors[i%len(keptFloors)], replicas)
		return "scaled"
	case 2:
		k.SetImage(name, fmt.Sprintf("app:%d", k.random.Int()))
		return "rolled out"
	}
	background := metav1.DeletePropagationBackground
	k.Must(kube.AppsV1().Deployments(k.Namespace).Delete(k.Ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
	k.deploy(i, replicas)
	return "recreated"
}

// TestLongKeptChurn creates 100 Deployments, 20 StatefulSets and 20 Jobs at once, and then changes
// the Deployments. The auditor fails the test if the controller let more replicas on spot than the
// budget. Once settled, exactly the floors run on on-demand.
func TestLongKeptChurn(t *testing.T) {
	const deployments = 100
	s := startKept(t, append(live.OnDemand(6, 100), live.Spot(12, 100)...)...)
	k := &keptWorkloads{keptScenario: s, random: rand.New(rand.NewPCG(1, 2)), want: map[string]live.Split{}}
	began := time.Now()
	for i := range deployments {
		k.deploy(i, i%10+1)
	}
	for i := range 20 {
		k.statefulSet(i, int32(i%5+1))
		k.job(i)
	}
	s.Eventually(2*time.Minute, s.HaveReadySplits(k.want))
	t.Logf("%d workloads were ready with exact floors after %s", len(k.want), time.Since(began).Round(100*time.Millisecond))

	changes, below, samples := map[string]int{}, 0, 0
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for end := time.Now().Add(*churnTime); time.Now().Before(end); <-ticker.C {
		changes[k.change(deployments)]++
		below += len(s.Auditor.Deficits())
		samples++
	}
	began = time.Now()
	s.Eventually(2*time.Minute, s.HaveReadySplits(k.want))
	t.Logf("%s of churn: %v; %d deficits in %d samples; exact floors %s after the last change",
		*churnTime, changes, below, samples, time.Since(began).Round(100*time.Millisecond))
	s.Auditor.Require(t)
}

// TestLongKeptOutages kills what the mode consists of while 200 pods have the gate.
func TestLongKeptOutages(t *testing.T) {
	const apps, replicas = 40, 5
	for name, outage := range map[string]struct {
		// cut ends programs, and repair starts them again. Both run while pods are gated.
		cut, repair func(s *keptScenario, standby *lab.Process)
		// undecided means that pods start without a decision before the repair.
		undecided bool
		limit     time.Duration
	}{
		"the leader is killed": {
			cut:   func(s *keptScenario, _ *lab.Process) { s.Must(s.Controller.Kill()) },
			limit: time.Minute,
		},
		"all controllers are killed": {
			cut: func(s *keptScenario, standby *lab.Process) {
				s.Must(s.Controller.Kill())
				s.Must(standby.Kill())
			},
			undecided: true,
			repair:    func(s *keptScenario, _ *lab.Process) { s.StartController(s.settings) },
			limit:     shippedGateTimeout + 30*time.Second,
		},
		"the API server is gone for 20 s": {
			cut: func(s *keptScenario, _ *lab.Process) {
				s.Must(s.Controller.Resume())
				s.Must(controlPlane.Process("kube-apiserver").Kill())
				time.Sleep(20 * time.Second)
				start, err := live.StartAPIServerAgain(s.Ctx, controlPlane, kube)
				s.Must(err)
				s.Starts = append(s.Starts, start)
				// These programs end when they cannot renew their Lease. A kubelet would start
				// them again.
				s.Scheduler, err = controlPlane.StartStockScheduler(s.Ctx)
				s.Must(err)
				s.StartController(s.standby())
			},
			limit: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startKept(t, append(live.OnDemand(2, 100), live.Spot(4, 100)...)...)
			standby := s.separateLeader()
			s.StartAnotherController(s.standby(), "--failsafe")
			s.Must(s.Controller.Pause())
			want := map[string]live.Split{}
			for i := range apps {
				name := fmt.Sprintf("app-%02d", i)
				s.Deploy(name, replicas, kept, live.Annotated(minOnDemand, "2"))
				want[name] = onFloor("2", replicas)
			}
			began := time.Now()
			s.Eventually(soon, s.HasGated("", apps*replicas))
			outage.cut(s, standby)
			if outage.undecided {
				s.Eventually(outage.limit, func() error {
					all, err := s.Splits()
					for app, got := range all {
						if got.OnDemand+got.Spot != replicas {
							err = fmt.Errorf("%s: %+v", app, got)
						}
					}
					return err
				})
				t.Logf("all pods started without a controller after %s", time.Since(began).Round(100*time.Millisecond))
				began = time.Now()
				outage.repair(s, standby)
			}
			s.Eventually(outage.limit, func() error {
				if deficits := s.Auditor.Deficits(); len(deficits) > 0 {
					return fmt.Errorf("%d deficits: %v", len(deficits), deficits[0])
				}
				return nil
			})
			t.Logf("all floors were met after %s", time.Since(began).Round(100*time.Millisecond))
			s.Eventually(3*time.Minute, s.HaveReadySplits(want))
			t.Logf("exactly the floors ran on on-demand after %s", time.Since(began).Round(100*time.Millisecond))
		})
	}
}

// TestLongKeptReclaim reclaims all spot nodes, with notices of two minutes, 30 s and none, once
// with our scheduler, and once with kube-scheduler. In both cases no workload is below its floor,
// and with a notice all replicas that a budget requires serve throughout.
func TestLongKeptReclaim(t *testing.T) {
	const apps = 12
	for name, own := range map[string]bool{"our scheduler": true, "kube-scheduler": false} {
		for _, notice := range []time.Duration{2 * time.Minute, 30 * time.Second, 0} {
			t.Run(fmt.Sprintf("%s, notice %s", name, notice), func(t *testing.T) {
				nodes := append(live.OnDemand(4, 50), live.Spot(6, 50)...)
				s := &keptScenario{}
				edit := kept
				if own {
					s.Scenario = live.NewScenario(t, controlPlane, kube, nodes...)
					s.CountSplits = splitsByName
					s.Watch()
					s.ApplyMode(live.AutoscalerMode)
					s.Audit(nil, audit.Options{})
					s.StartScheduler(lab.SchedulerOptions{})
					s.StartController(modeOn.With(asShipped))
					edit = func(*appsv1.Deployment) {}
				} else {
					s = startKept(t, nodes...)
					s.Must(s.Controller.Stop())
					s.StartController(s.settings.With(asShipped))
				}
				want, gone := map[string]live.Split{}, map[string]live.Split{}
				for i := range apps {
					app, replicas, floor := fmt.Sprintf("app-%02d", i), i%7+2, keptFloors[i%len(keptFloors)]
					s.Deploy(app, replicas, edit, live.Annotated(minOnDemand, floor))
					want[app], gone[app] = onFloor(floor, replicas), live.Split{OnDemand: replicas}
					one := intstr.FromInt32(1)
					_, err := kube.PolicyV1().PodDisruptionBudgets(s.Namespace).Create(s.Ctx, &policyv1.PodDisruptionBudget{
						ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: policyv1.PodDisruptionBudgetSpec{
							MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
						},
					}, metav1.CreateOptions{})
					s.Must(err)
				}
				s.Eventually(2*soon, s.HaveReadySplits(want))
				for app, split := range want {
					s.Seen.RequireFloor(app, split.OnDemand)
					if notice > 0 {
						s.Seen.RequireServing(app, split.OnDemand+split.Spot-1)
					}
				}
				began := time.Now()
				names := map[string]bool{}
				if notice > 0 {
					names = announce(s.Scenario, lab.Spot, began.Add(notice))
				}
				if notice > 0 {
					s.Eventually(notice, func() error {
						for app, split := range gone {
							if got := s.Seen.Serving(app, names); got < split.OnDemand {
								return fmt.Errorf("%s: %d of %d serve on on-demand", app, got, split.OnDemand)
							}
						}
						return nil
					})
					t.Logf("all replicas served on on-demand %s after the notice", time.Since(began).Round(100*time.Millisecond))
					time.Sleep(time.Until(began.Add(notice)))
				}
				var lost []string
				for _, node := range live.Spot(6, 50) {
					lost = append(lost, node.Name)
				}
				s.LoseNodes(lost...)
				s.Eventually(2*soon, s.HaveReadySplits(gone))
				t.Logf("all replicas served %s after the reclaim began", time.Since(began).Round(100*time.Millisecond))
			})
		}
	}
}
