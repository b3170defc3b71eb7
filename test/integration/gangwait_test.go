package integration

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// requireNoneBound checks that no pod of the app was bound to a node since seen was started.
func (s *scenario) requireNoneBound(seen *live.History, app string) {
	s.Helper()
	pods, err := s.Pods(app)
	s.Must(err)
	for _, pod := range pods {
		if at := seen.Pod(pod.Name); !at.Bound.IsZero() || pod.Spec.NodeName != "" {
			s.Errorf("%s of a gang that does not fit was bound to %q", pod.Name, pod.Spec.NodeName)
		}
	}
}

// awaitFailedRetry returns after the clock alone has retried the waiting gangs in vain. The clock
// triggers the next attempt only 4 s later. A pod that is bound within atOnce from now on is
// therefore bound because of an event. It returns the number of attempts of that retry.
func (s *scenario) awaitFailedRetry() (attempts int) {
	s.Helper()
	s.awaitIdleScheduler()
	before, err := s.metric("scheduler_schedule_attempts_total", nil)
	s.Must(err)
	s.Eventually(soon, func() error {
		now, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err == nil && now == before {
			err = fmt.Errorf("no new attempt since %d attempts", now)
		}
		return err
	})
	s.awaitIdleScheduler()
	after, err := s.metric("scheduler_schedule_attempts_total", nil)
	s.Must(err)
	return after - before
}

// requireGangBoundAtOnce checks that the app reaches this split within atOnce of unblock, and that
// none of its pods is bound before unblock starts. The duration of unblock does not count: other
// components must first make a new node schedulable, and addNodes waits for that.
func (s *scenario) requireGangBoundAtOnce(seen *live.History, app string, want split, unblock func()) {
	s.Helper()
	began := time.Now()
	unblock()
	done := time.Now()
	s.Eventually(soon, s.HasSplit(app, want))
	pods, err := s.Pods(app)
	s.Must(err)
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		s.requireBoundAtOnce(seen, pod.Name, done)
		if at := seen.Pod(pod.Name).Bound; at.Before(began) {
			s.Errorf("%s was bound %s before the gang fit", pod.Name, began.Sub(at))
		}
	}
}

// TestGangWakeUps has a gang of three wait in an idle cluster. A single change then makes the gang
// fit.
func TestGangWakeUps(t *testing.T) {
	s := startGangs(t, nil)
	seen := s.Watch()
	high := priorityClass(t, "high", 1_000_000)
	reserved := func(node lab.NodeSpec) lab.NodeSpec {
		node.Taints = []v1.Taint{{Key: "example.com/reserved", Effect: v1.TaintEffectNoSchedule}}
		return node
	}
	pool := map[string]string{"example.com/pool": "a"}
	for name, test := range map[string]struct {
		// nodes are additional to od-1 and spot-1, which have one slot each.
		nodes []lab.NodeSpec
		// spotSlots is the number of slots of spot-1; 0 means 1. full means that od-1 is full.
		spotSlots int
		full      bool
		// create creates the gang. Nil means three replicas with the default floor of one.
		create func(s *scenario)
		// untimed means that the clock does not retry this gang.
		untimed bool
		waiting int // number of waiting pods before unblock; 0 means 3
		unblock func(s *scenario)
		want    split
	}{
		"node added": {
			unblock: func(s *scenario) { s.AddNodes(live.Spot(2, 1)[1]) },
			want:    split{OnDemand: 1, Spot: 2},
		},
		"taint removed": {
			nodes:   []lab.NodeSpec{reserved(live.Spot(2, 1)[1])},
			unblock: func(s *scenario) { s.EditNode("spot-2", func(node *v1.Node) { node.Spec.Taints = nil }) },
			want:    split{OnDemand: 1, Spot: 2},
		},
		"node labelled": {
			nodes: live.Spot(2, 1)[1:],
			create: func(s *scenario) {
				for _, node := range []string{"od-1", "spot-1"} {
					s.EditNode(node, func(node *v1.Node) { maps.Copy(node.Labels, pool) })
				}
				s.gang("app", 3, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = pool })
			},
			unblock: func(s *scenario) {
				s.EditNode("spot-2", func(node *v1.Node) { maps.Copy(node.Labels, pool) })
			},
			want: split{OnDemand: 1, Spot: 2},
		},
		"allocatable raised": {
			unblock: func(s *scenario) {
				s.editNodeStatus("spot-1", func(status *v1.NodeStatus) { status.Allocatable[v1.ResourceCPU] = resource.MustParse("2") })
			},
			want: split{OnDemand: 1, Spot: 2},
		},
		"pod of another workload deleted": {
			spotSlots: 2,
			full:      true,
			unblock:   func(s *scenario) { s.deletePod("fill-od-1-1") },
			want:      split{OnDemand: 1, Spot: 2},
		},
		"PodGroup created": {
			spotSlots: 2,
			create:    func(s *scenario) { s.Deploy("app", 3, inGang("app")) },
			unblock:   func(s *scenario) { s.group("app", 3) },
			want:      split{OnDemand: 1, Spot: 2},
		},
		"PodGroup requires fewer pods": {
			unblock: func(s *scenario) {
				group, c := &v1alpha1.PodGroup{}, s.podGroups()
				s.Must(c.Get(s.Ctx, ctrlclient.ObjectKey{Namespace: s.Namespace, Name: "app"}, group))
				group.Spec.MinMember = 2
				s.Must(c.Update(s.Ctx, group))
			},
			want: split{OnDemand: 1, Spot: 1, Waiting: 1},
		},
		"PodGroup requires resources of a new node": {
			create: func(s *scenario) {
				s.group("app", 3, func(g *v1alpha1.PodGroup) {
					g.Spec.MinResources = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
				})
				s.Deploy("app", 3, inGang("app"))
			},
			unblock: func(s *scenario) { s.AddNodes(live.Spot(2, 1)[1]) },
			want:    split{OnDemand: 1, Spot: 2},
		},
		"missing pod created": {
			spotSlots: 2,
			create: func(s *scenario) {
				s.group("app", 3)
				s.Deploy("app", 2, inGang("app"))
			},
			waiting: 2,
			unblock: func(s *scenario) { s.Scale("app", 3) },
			want:    split{OnDemand: 1, Spot: 2},
		},
		"gate of a pod removed": {
			spotSlots: 2,
			create: func(s *scenario) {
				s.group("app", 3)
				s.Deploy("app", 2, inGang("app"))
				s.pod("app", "gated", func(pod *v1.Pod) {
					pod.Labels[v1alpha1.PodGroupLabel] = "app"
					pod.Annotations = map[string]string{minOnDemand: "0"}
					pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
				})
			},
			unblock: func(s *scenario) { s.patchPod("gated", `{"spec":{"schedulingGates":null}}`) },
			want:    split{OnDemand: 1, Spot: 2},
		},
		"owner annotated with a lower floor": {
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.PatchDeployment("app", annotation(minOnDemand, "0")) },
			want:      split{Spot: 3},
		},
		"owner annotated with a fallback that is already due": {
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.PatchDeployment("app", annotation(fallbackAfter, "100ms")) },
			want:      split{Spot: 3},
		},
		"owner scaled up": {
			// Three of four replicas may run on Spot: the gang of three is complete, and the fourth
			// replica waits.
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.Scale("app", 4) },
			want:      split{Spot: 3, Waiting: 1},
		},
		"preempted pod terminates": {
			// Two pods wait at Permit for the third, until they time out. The third waits for a
			// victim that does not terminate.
			nodes: live.Spot(2, 1)[1:],
			create: func(s *scenario) {
				s.startGangPreemption("app", high, func(g *v1alpha1.PodGroup) { g.Spec.ScheduleTimeoutSeconds = new(int32(1)) })
			},
			unblock: func(s *scenario) { s.releaseVictim() },
			want:    split{OnDemand: 1, Spot: 2},
		},
	} {
		s.run(name, func(s *scenario) {
			s.Cleanup(s.clearGangs)
			s.AddNodes(slices.Concat(live.OnDemand(1, 1), live.Spot(1, max(test.spotSlots, 1)), test.nodes)...)
			if test.full {
				s.fillNode("od-1", 1)
			}
			if test.create == nil {
				s.gang("app", 3)
			} else {
				test.create(s)
			}
			s.Eventually(soon, s.HasSplit("app", split{Waiting: cmp.Or(test.waiting, 3)}))
			s.awaitFailedRetry()
			s.requireNoneBound(seen, "app")
			s.requireGangBoundAtOnce(seen, "app", test.want, func() { test.unblock(s) })
		})
	}
}

// TestWaitingGangBlocksNoOtherPods has a gang wait for one slot more than the cluster has. Other
// pods can use the slots that the gang cannot use, and the scheduler does not retry the gang again
// and again.
func TestWaitingGangBlocksNoOtherPods(t *testing.T) {
	for name, size := range map[string]int{"of four": 4, "of twelve": 12} {
		t.Run(name, func(t *testing.T) {
			s := startGangs(t, live.Spot(1, int(size)-1))
			seen := s.Watch()
			s.gang("app", size, live.Annotated(minOnDemand, "0"))
			// On a loaded machine the timer may retry the gang twice before the scheduler is seen
			// idle. Each retry is one attempt of all pods, and one more of the pod that its own
			// gang requeued.
			if attempts, limit := s.awaitFailedRetry(), 2*int(size)+4; attempts > limit {
				s.Errorf("%d attempts for a gang that the scheduler retried, want at most %d", attempts, limit)
			}
			pods, err := s.Pods("app")
			s.Must(err)
			for _, pod := range pods {
				if node := pod.Status.NominatedNodeName; node != "" {
					s.Errorf("%s is still nominated to node %s", pod.Name, node)
				}
			}
			s.Deploy("other", size-1, live.Annotated(minOnDemand, "0"))
			s.Eventually(soon, s.HasSplit("other", split{Spot: int(size) - 1}))
			others, err := s.Pods("other")
			s.Must(err)
			for _, pod := range others {
				s.requireBoundAtOnce(seen, pod.Name, seen.Pod(pod.Name).Created)
			}
			s.Must(s.HasSplit("app", split{Waiting: size})())
		})
	}
}

// TestCompetingGangs creates three gangs, but only one fits at a time. One gang is bound
// completely. After its deletion the next gang is bound, regardless of the slots that each gang had
// reserved. The waiting gangs do not retry each other, also if writes are slow: the pods of a gang
// then release their nodes over a second.
func TestCompetingGangs(t *testing.T) {
	slowWrites := func(config map[string]any) { config["clientConnection"] = map[string]any{"qps": 15, "burst": 15} }
	for name, test := range map[string]struct {
		size  int
		edits []func(config map[string]any)
	}{
		"of four":                     {size: 4},
		"of twelve":                   {size: 12},
		"of twelve, with slow writes": {size: 12, edits: []func(config map[string]any){slowWrites}},
	} {
		t.Run(name, func(t *testing.T) {
			size := test.size
			s := startGangs(t, live.Spot(1, int(size)*3/2), test.edits...)
			gangs := []string{"a", "b", "c"}
			for _, gang := range gangs {
				s.gang(gang, size, live.Annotated(minOnDemand, "0"))
			}
			for len(gangs) > 0 {
				began := time.Now()
				var whole string
				s.Eventually(time.Minute, func() error {
					splits, err := s.Splits()
					for _, gang := range gangs {
						if splits[gang].Spot == int(size) {
							whole = gang
							return err
						}
					}
					return fmt.Errorf("no gang is complete: %v, %v", splits, err)
				})
				s.Logf("%s was complete after %s", whole, time.Since(began).Round(time.Millisecond))
				gangs = slices.DeleteFunc(gangs, func(gang string) bool { return gang == whole })
				s.awaitIdleScheduler()
				splits, err := s.Splits()
				s.Must(err)
				for _, gang := range gangs {
					if splits[gang] != (split{Waiting: size}) {
						s.Errorf("%s has %+v while %s runs", gang, splits[gang], whole)
					}
				}
				s.Must(client.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, whole, metav1.DeleteOptions{}))
			}
		})
	}
}

// TestGangFallback has a gang wait for on-demand capacity for its floor longer than fallbackAfter.
// The gang is then bound at once, not after one fallbackAfter per pod.
func TestGangFallback(t *testing.T) {
	s := startGangs(t, live.Spot(2, 5), live.Settings{"fallbackAfter": "8s"}.EditSafety)
	seen := s.Watch()
	began := time.Now()
	s.gang("app", 8, live.Annotated(minOnDemand, "3"))
	s.Eventually(time.Minute, s.HasSplit("app", split{Spot: 8}))
	whole := time.Since(began)
	pods, err := s.Pods("app")
	s.Must(err)
	for _, pod := range pods {
		if at := s.awaitBinding(seen, pod.Name, soon).Bound; at.Sub(began) < 8*time.Second {
			s.Errorf("%s was bound after %s, before fallbackAfter", pod.Name, at.Sub(began))
		}
	}
	s.Logf("complete after %s", whole.Round(time.Millisecond))
	if whole > 12*time.Second {
		s.Errorf("complete after %s, want shortly after 8 s", whole)
	}
}

// startGangPreemption creates a gang of three. Two of its pods wait at Permit, on od-1 and spot-1,
// for the third. The third waits until its victim on spot-2 terminates. It returns when all
// three wait.
func (s *scenario) startGangPreemption(name, class string, edits ...func(*v1alpha1.PodGroup)) {
	s.Helper()
	s.fillNode("spot-2", 1, func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/stay"} })
	// After a failed check nothing else lets the victim terminate, and the cleanup would fail.
	// The context of the test has ended then.
	s.Cleanup(func() {
		if err := s.removeFinalizers(context.Background(), "fill-spot-2-1"); !apierrors.IsNotFound(err) {
			s.Must(err)
		}
	})
	s.group(name, 3, edits...)
	s.Deploy(name, 3, inGang(name), func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = class })
	s.Eventually(soon, func() error {
		victim, err := client.CoreV1().Pods(s.Namespace).Get(s.Ctx, "fill-spot-2-1", metav1.GetOptions{})
		if err == nil && victim.DeletionTimestamp == nil {
			err = fmt.Errorf("%s has not been preempted", victim.Name)
		}
		return err
	})
	log, err := os.ReadFile(s.Scheduler.Log)
	s.Must(err)
	if n := bytes.Count(log, []byte("Pod is waiting to be scheduled to node")); n < 2 {
		s.Fatalf("%d pods wait at Permit, want 2", n)
	}
}

// releaseVictim lets the victim of startGangPreemption terminate.
func (s *scenario) releaseVictim() {
	s.Helper()
	s.Must(s.removeFinalizers(s.Ctx, "fill-spot-2-1"))
}

func (s *scenario) removeFinalizers(ctx context.Context, pod string) error {
	_, err := client.CoreV1().Pods(s.Namespace).Patch(ctx, pod, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	return err
}
