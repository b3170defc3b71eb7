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
)

// requireNoneBound checks that no pod of the app was bound to a node since seen was started.
func (s *scenario) requireNoneBound(seen *podRecords, app string) {
	s.Helper()
	pods, err := s.pods(app)
	s.must(err)
	for _, pod := range pods {
		if at := seen.of(pod.Name); !at.bound.IsZero() || pod.Spec.NodeName != "" {
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
	s.must(err)
	s.eventually(soon, func() error {
		now, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err == nil && now == before {
			err = fmt.Errorf("no new attempt since %d attempts", now)
		}
		return err
	})
	s.awaitIdleScheduler()
	after, err := s.metric("scheduler_schedule_attempts_total", nil)
	s.must(err)
	return after - before
}

// requireGangBoundAtOnce checks that the app reaches this split within atOnce of unblock, and that
// none of its pods is bound before unblock starts. The duration of unblock does not count: other
// components must first make a new node schedulable, and addNodes waits for that.
func (s *scenario) requireGangBoundAtOnce(seen *podRecords, app string, want split, unblock func()) {
	s.Helper()
	began := time.Now()
	unblock()
	done := time.Now()
	s.eventually(soon, s.hasSplit(app, want))
	pods, err := s.pods(app)
	s.must(err)
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		s.requireBoundAtOnce(seen, pod.Name, done)
		if at := seen.of(pod.Name).bound; at.Before(began) {
			s.Errorf("%s was bound %s before the gang fit", pod.Name, began.Sub(at))
		}
	}
}

// TestGangWakeUps has a gang of three wait in an idle cluster. A single change then makes the gang
// fit.
func TestGangWakeUps(t *testing.T) {
	s := startGangs(t, nil)
	seen := s.watch()
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
			unblock: func(s *scenario) { s.addNodes(spotNodes(2, 1)[1]) },
			want:    split{onDemand: 1, spot: 2},
		},
		"taint removed": {
			nodes:   []lab.NodeSpec{reserved(spotNodes(2, 1)[1])},
			unblock: func(s *scenario) { s.editNode("spot-2", func(node *v1.Node) { node.Spec.Taints = nil }) },
			want:    split{onDemand: 1, spot: 2},
		},
		"node labelled": {
			nodes: spotNodes(2, 1)[1:],
			create: func(s *scenario) {
				for _, node := range []string{"od-1", "spot-1"} {
					s.editNode(node, func(node *v1.Node) { maps.Copy(node.Labels, pool) })
				}
				s.gang("app", 3, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = pool })
			},
			unblock: func(s *scenario) {
				s.editNode("spot-2", func(node *v1.Node) { maps.Copy(node.Labels, pool) })
			},
			want: split{onDemand: 1, spot: 2},
		},
		"allocatable raised": {
			unblock: func(s *scenario) {
				s.editNodeStatus("spot-1", func(status *v1.NodeStatus) { status.Allocatable[v1.ResourceCPU] = resource.MustParse("2") })
			},
			want: split{onDemand: 1, spot: 2},
		},
		"pod of another workload deleted": {
			spotSlots: 2,
			full:      true,
			unblock:   func(s *scenario) { s.deletePod("fill-od-1-1") },
			want:      split{onDemand: 1, spot: 2},
		},
		"PodGroup created": {
			spotSlots: 2,
			create:    func(s *scenario) { s.deploy("app", 3, inGang("app")) },
			unblock:   func(s *scenario) { s.group("app", 3) },
			want:      split{onDemand: 1, spot: 2},
		},
		"PodGroup requires fewer pods": {
			unblock: func(s *scenario) {
				group, c := &v1alpha1.PodGroup{}, s.podGroups()
				s.must(c.Get(s.ctx, ctrlclient.ObjectKey{Namespace: s.namespace, Name: "app"}, group))
				group.Spec.MinMember = 2
				s.must(c.Update(s.ctx, group))
			},
			want: split{onDemand: 1, spot: 1, waiting: 1},
		},
		"PodGroup requires resources of a new node": {
			create: func(s *scenario) {
				s.group("app", 3, func(g *v1alpha1.PodGroup) {
					g.Spec.MinResources = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
				})
				s.deploy("app", 3, inGang("app"))
			},
			unblock: func(s *scenario) { s.addNodes(spotNodes(2, 1)[1]) },
			want:    split{onDemand: 1, spot: 2},
		},
		"missing pod created": {
			spotSlots: 2,
			create: func(s *scenario) {
				s.group("app", 3)
				s.deploy("app", 2, inGang("app"))
			},
			waiting: 2,
			unblock: func(s *scenario) { s.scale("app", 3) },
			want:    split{onDemand: 1, spot: 2},
		},
		"gate of a pod removed": {
			spotSlots: 2,
			create: func(s *scenario) {
				s.group("app", 3)
				s.deploy("app", 2, inGang("app"))
				s.pod("app", "gated", func(pod *v1.Pod) {
					pod.Labels[v1alpha1.PodGroupLabel] = "app"
					pod.Annotations = map[string]string{minOnDemand: "0"}
					pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/wait"}}
				})
			},
			unblock: func(s *scenario) { s.patchPod("gated", `{"spec":{"schedulingGates":null}}`) },
			want:    split{onDemand: 1, spot: 2},
		},
		"owner annotated with a lower floor": {
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.patchDeployment("app", annotation(minOnDemand, "0")) },
			want:      split{spot: 3},
		},
		"owner annotated with a fallback that is already due": {
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.patchDeployment("app", annotation(fallbackAfter, "100ms")) },
			want:      split{spot: 3},
		},
		"owner scaled up": {
			// Three of four replicas may run on spot: the gang of three is complete, and the fourth
			// replica waits.
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.scale("app", 4) },
			want:      split{spot: 3, waiting: 1},
		},
		"preempted pod terminates": {
			// Two pods wait at Permit for the third, until they time out. The third waits for a
			// victim that does not terminate.
			nodes: spotNodes(2, 1)[1:],
			create: func(s *scenario) {
				s.startGangPreemption("app", high, func(g *v1alpha1.PodGroup) { g.Spec.ScheduleTimeoutSeconds = new(int32(1)) })
			},
			unblock: func(s *scenario) { s.releaseVictim() },
			want:    split{onDemand: 1, spot: 2},
		},
	} {
		s.run(name, func(s *scenario) {
			s.Cleanup(s.clearGangs)
			s.addNodes(slices.Concat(onDemand(1, 1), spotNodes(1, max(test.spotSlots, 1)), test.nodes)...)
			if test.full {
				s.fillNode("od-1", 1)
			}
			if test.create == nil {
				s.gang("app", 3)
			} else {
				test.create(s)
			}
			s.eventually(soon, s.hasSplit("app", split{waiting: cmp.Or(test.waiting, 3)}))
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
	for name, size := range map[string]int32{"of four": 4, "of twelve": 12} {
		t.Run(name, func(t *testing.T) {
			s := startGangs(t, spotNodes(1, int(size)-1))
			seen := s.watch()
			s.gang("app", size, annotated(minOnDemand, "0"))
			// On a loaded machine the timer may retry the gang twice before the scheduler is seen
			// idle. Each retry is one attempt of all pods, and one more of the pod that its own
			// gang requeued.
			if attempts, limit := s.awaitFailedRetry(), 2*int(size)+4; attempts > limit {
				s.Errorf("%d attempts for a gang that the scheduler retried, want at most %d", attempts, limit)
			}
			pods, err := s.pods("app")
			s.must(err)
			for _, pod := range pods {
				if node := pod.Status.NominatedNodeName; node != "" {
					s.Errorf("%s is still nominated to node %s", pod.Name, node)
				}
			}
			s.deploy("other", size-1, annotated(minOnDemand, "0"))
			s.eventually(soon, s.hasSplit("other", split{spot: int(size) - 1}))
			others, err := s.pods("other")
			s.must(err)
			for _, pod := range others {
				s.requireBoundAtOnce(seen, pod.Name, seen.of(pod.Name).appeared)
			}
			s.must(s.hasSplit("app", split{waiting: int(size)})())
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
		size  int32
		edits []func(config map[string]any)
	}{
		"of four":                     {size: 4},
		"of twelve":                   {size: 12},
		"of twelve, with slow writes": {size: 12, edits: []func(config map[string]any){slowWrites}},
	} {
		t.Run(name, func(t *testing.T) {
			size := test.size
			s := startGangs(t, spotNodes(1, int(size)*3/2), test.edits...)
			gangs := []string{"a", "b", "c"}
			for _, gang := range gangs {
				s.gang(gang, size, annotated(minOnDemand, "0"))
			}
			for len(gangs) > 0 {
				began := time.Now()
				var whole string
				s.eventually(time.Minute, func() error {
					splits, err := s.splits()
					for _, gang := range gangs {
						if splits[gang].spot == int(size) {
							whole = gang
							return err
						}
					}
					return fmt.Errorf("no gang is complete: %v, %v", splits, err)
				})
				s.Logf("%s was complete after %s", whole, time.Since(began).Round(time.Millisecond))
				gangs = slices.DeleteFunc(gangs, func(gang string) bool { return gang == whole })
				s.awaitIdleScheduler()
				splits, err := s.splits()
				s.must(err)
				for _, gang := range gangs {
					if splits[gang] != (split{waiting: int(size)}) {
						s.Errorf("%s has %+v while %s runs", gang, splits[gang], whole)
					}
				}
				s.must(client.AppsV1().Deployments(s.namespace).Delete(s.ctx, whole, metav1.DeleteOptions{}))
			}
		})
	}
}

// TestGangFallback has a gang wait for on-demand capacity for its floor longer than fallbackAfter.
// The gang is then bound at once, not after one fallbackAfter per pod.
func TestGangFallback(t *testing.T) {
	s := startGangs(t, spotNodes(2, 5), args(map[string]any{"fallbackAfter": "8s"}))
	seen := s.watch()
	began := time.Now()
	s.gang("app", 8, annotated(minOnDemand, "3"))
	s.eventually(time.Minute, s.hasSplit("app", split{spot: 8}))
	whole := time.Since(began)
	pods, err := s.pods("app")
	s.must(err)
	for _, pod := range pods {
		if at := s.awaitBinding(seen, pod.Name, soon).bound; at.Sub(began) < 8*time.Second {
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
			s.must(err)
		}
	})
	s.group(name, 3, edits...)
	s.deploy(name, 3, inGang(name), func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = class })
	s.eventually(soon, func() error {
		victim, err := client.CoreV1().Pods(s.namespace).Get(s.ctx, "fill-spot-2-1", metav1.GetOptions{})
		if err == nil && victim.DeletionTimestamp == nil {
			err = fmt.Errorf("%s has not been preempted", victim.Name)
		}
		return err
	})
	log, err := os.ReadFile(s.scheduler.Log)
	s.must(err)
	if n := bytes.Count(log, []byte("Pod is waiting to be scheduled to node")); n < 2 {
		s.Fatalf("%d pods wait at Permit, want 2", n)
	}
}

// releaseVictim lets the victim of startGangPreemption terminate.
func (s *scenario) releaseVictim() {
	s.Helper()
	s.must(s.removeFinalizers(s.ctx, "fill-spot-2-1"))
}

func (s *scenario) removeFinalizers(ctx context.Context, pod string) error {
	_, err := client.CoreV1().Pods(s.namespace).Patch(ctx, pod, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	return err
}
