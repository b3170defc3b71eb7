package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// startGangs starts a scheduler as start does, with config/gang.yaml in the place of the default configuration, after installing
// the kind PodGroup as the overlay does.
func startGangs(t *testing.T, nodes []lab.NodeSpec, edits ...func(config map[string]any)) *scenario {
	t.Helper()
	k := kubectl{cp: controlPlane, cache: t.TempDir()}
	k.must(t, "apply", "--server-side", "--filename="+filepath.Join(controlPlane.Root, "manifests", "overlays", "gang", "podgroups.yaml"))
	k.must(t, "wait", "--for=condition=Established", "crd/podgroups.scheduling.x-k8s.io", "--timeout=20s")
	data, err := os.ReadFile(filepath.Join(controlPlane.Root, "config", "gang.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	withGangs := func(config map[string]any) {
		clear(config)
		if err := yaml.Unmarshal(data, &config); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, nodes, slices.Concat([]func(map[string]any){withGangs}, edits)...)
}

// podGroups returns a client that knows PodGroups.
func (s *scenario) podGroups() ctrlclient.Client {
	s.Helper()
	scheme := runtime.NewScheme()
	s.must(v1alpha1.AddToScheme(scheme))
	c, err := ctrlclient.New(controlPlane.Config(), ctrlclient.Options{Scheme: scheme})
	s.must(err)
	return c
}

// group creates a PodGroup.
func (s *scenario) group(name string, minMember int32, edits ...func(*v1alpha1.PodGroup)) {
	s.Helper()
	group := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}, Spec: v1alpha1.PodGroupSpec{MinMember: minMember}}
	for _, edit := range edits {
		edit(group)
	}
	s.must(s.podGroups().Create(s.ctx, group))
}

// inGang is an edit that puts a Deployment's pods into a PodGroup.
func inGang(group string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Labels[v1alpha1.PodGroupLabel] = group }
}

// gang creates a PodGroup of all replicas of a Deployment, and that Deployment, both of that name.
func (s *scenario) gang(name string, replicas int32, edits ...func(*appsv1.Deployment)) {
	s.Helper()
	s.group(name, replicas)
	s.deploy(name, replicas, slices.Concat([]func(*appsv1.Deployment){inGang(name)}, edits)...)
}

// noneBound checks that no pod of the app ever had a node, from the start of seen until now.
func (s *scenario) noneBound(seen *sightings, app string) {
	s.Helper()
	pods, err := s.pods(app)
	s.must(err)
	for _, pod := range pods {
		if at := seen.of(pod.Name); !at.bound.IsZero() || pod.Spec.NodeName != "" {
			s.Errorf("%s of a gang that does not fit was bound to %q", pod.Name, pod.Spec.NodeName)
		}
	}
}

// rests returns when the gangs that wait have been tried again by the clock alone, in vain, and are left alone. By the clock the next
// attempt comes 4 s after the one seen here: what is bound within atOnce from now on is bound because of what happens now.
func (s *scenario) rests() {
	s.Helper()
	s.still()
	before, err := s.metric("scheduler_schedule_attempts_total", nil)
	s.must(err)
	s.eventually(soon, func() error {
		now, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err == nil && now == before {
			err = fmt.Errorf("not tried again since %d attempts", now)
		}
		return err
	})
	s.still()
}

// wholeAtOnce checks that the app's pods come to stand like this within atOnce of what unblock does, none of them before it begins. How
// long unblock takes does not count: a new node passes through other hands before it takes pods, and addNodes returns when it does.
func (s *scenario) wholeAtOnce(seen *sightings, app string, want split, unblock func()) {
	s.Helper()
	began := time.Now()
	unblock()
	done := time.Now()
	s.eventually(soon, s.is(app, want))
	pods, err := s.pods(app)
	s.must(err)
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		s.boundAtOnce(seen, pod.Name, done)
		if at := seen.of(pod.Name).bound; at.Before(began) {
			s.Errorf("%s was bound %s before the gang fitted", pod.Name, began.Sub(at))
		}
	}
}

// TestGangOverlay shows that the API server takes the overlay, and that the scheduler and the controller read the configuration that the other
// tests run.
func TestGangOverlay(t *testing.T) {
	k := kubectl{cp: controlPlane, cache: t.TempDir()}
	overlay := filepath.Join(controlPlane.Root, "manifests", "overlays", "gang")
	// Server-side, because the objects of the lab's own grant were not made by apply.
	k.must(t, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--kustomize="+overlay)

	want, err := os.ReadFile(filepath.Join(controlPlane.Root, "config", "gang.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	deployments, files := map[string]appsv1.Deployment{}, map[string]v1.ConfigMap{}
	for document := range strings.SplitSeq(k.must(t, "kustomize", overlay), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Deployment":
			var d appsv1.Deployment
			err = yaml.UnmarshalStrict([]byte(document), &d)
			deployments[d.Name] = d
		case "ConfigMap":
			var c v1.ConfigMap
			err = yaml.UnmarshalStrict([]byte(document), &c)
			files[c.Name] = c
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, flag := range map[string]string{"spot-aware-scheduler": "--config=", "spot-controller": "--scheduler-config="} {
		pod := deployments[name].Spec.Template.Spec
		if len(pod.Containers) != 1 {
			t.Errorf("%s: %d containers in the overlay's Deployment, want one", name, len(pod.Containers))
			continue
		}
		read := false
		for _, mount := range pod.Containers[0].VolumeMounts {
			if !slices.Contains(pod.Containers[0].Args, flag+mount.MountPath+"/gang.yaml") {
				continue
			}
			for _, volume := range pod.Volumes {
				read = read || volume.Name == mount.Name && files[volume.ConfigMap.Name].Data["gang.yaml"] == string(want)
			}
		}
		if !read {
			t.Errorf("%s is started with %q, want one that reads config/gang.yaml from a ConfigMap", name, pod.Containers[0].Args)
		}
	}
}

// TestGang shows a gang that waits as long as it does not fit whole, and its floor.
func TestGang(t *testing.T) {
	s := startGangs(t, nil)
	seen := s.watch()
	for name, test := range map[string]struct {
		nodes    []lab.NodeSpec
		create   func(s *scenario)
		another  lab.NodeSpec // with it the gang fits
		want     split
		replicas int
	}{
		"four with room for three": {
			nodes:   slices.Concat(onDemand(1, 1), spot(1, 2)),
			create:  func(s *scenario) { s.gang("app", 4) },
			another: spot(2, 2)[1],
			want:    split{onDemand: 1, spot: 3},
		},
		"ten with a floor of three and room for nine": {
			nodes:   slices.Concat(onDemand(1, 3), spot(1, 6)),
			create:  func(s *scenario) { s.gang("app", 10, annotated(minOnDemand, "3")) },
			another: spot(2, 5)[1],
			want:    split{onDemand: 3, spot: 7},
		},
		"ten with room for all, but not for the floor": {
			nodes:   slices.Concat(onDemand(1, 2), spot(1, 20)),
			create:  func(s *scenario) { s.gang("app", 10, annotated(minOnDemand, "3")) },
			another: onDemand(2, 1)[1],
			want:    split{onDemand: 3, spot: 7},
		},
		"a Job of six with room for five": {
			nodes: spot(1, 5),
			create: func(s *scenario) {
				s.group("app", 6)
				s.job("app", 6, 6, func(job *batchv1.Job) { job.Spec.Template.Labels[v1alpha1.PodGroupLabel] = "app" })
			},
			another: spot(2, 5)[1],
			want:    split{spot: 6},
		},
	} {
		s.run(name, func(s *scenario) {
			s.Cleanup(s.clearGangs)
			s.addNodes(test.nodes...)
			test.create(s)
			s.eventually(soon, s.is("app", split{waiting: test.want.onDemand + test.want.spot}))
			s.rests()
			s.noneBound(seen, "app")
			s.wholeAtOnce(seen, "app", test.want, func() { s.addNodes(test.another) })
		})
	}
}

// clearGangs takes away all workloads, PodGroups and nodes, for the next case.
func (s *scenario) clearGangs() {
	s.Helper()
	s.clear()
	s.must(s.podGroups().DeleteAllOf(s.ctx, &v1alpha1.PodGroup{}, ctrlclient.InNamespace(s.namespace)))
}

// TestGangWakes has a gang of three wait on a cluster where nothing else happens, and then lets one thing happen that makes it fit.
func TestGangWakes(t *testing.T) {
	s := startGangs(t, nil)
	seen := s.watch()
	high := priorityClass(t, "high", 1_000_000)
	reserved := func(node lab.NodeSpec) lab.NodeSpec {
		node.Taints = []v1.Taint{{Key: "example.com/reserved", Effect: v1.TaintEffectNoSchedule}}
		return node
	}
	pool := map[string]string{"example.com/pool": "a"}
	for name, test := range map[string]struct {
		// nodes are those that there are besides od-1 and spot-1, which have one slot each.
		nodes []lab.NodeSpec
		// spotSlots are those of spot-1, if not one. full: od-1 is full.
		spotSlots int
		full      bool
		// create creates the gang; nil: three replicas with the default floor of one.
		create func(s *scenario)
		// untimed: the clock does not try this one again.
		untimed bool
		waiting int // how many wait before; 0 for 3
		unblock func(s *scenario)
		want    split
	}{
		"node added": {
			unblock: func(s *scenario) { s.addNodes(spot(2, 1)[1]) },
			want:    split{onDemand: 1, spot: 2},
		},
		"taint removed": {
			nodes:   []lab.NodeSpec{reserved(spot(2, 1)[1])},
			unblock: func(s *scenario) { s.editNode("spot-2", func(node *v1.Node) { node.Spec.Taints = nil }) },
			want:    split{onDemand: 1, spot: 2},
		},
		"node labelled": {
			nodes: spot(2, 1)[1:],
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
		"PodGroup asks for fewer": {
			unblock: func(s *scenario) {
				group, c := &v1alpha1.PodGroup{}, s.podGroups()
				s.must(c.Get(s.ctx, ctrlclient.ObjectKey{Namespace: s.namespace, Name: "app"}, group))
				group.Spec.MinMember = 2
				s.must(c.Update(s.ctx, group))
			},
			want: split{onDemand: 1, spot: 1, waiting: 1},
		},
		"PodGroup asks for resources that a node brings": {
			create: func(s *scenario) {
				s.group("app", 3, func(g *v1alpha1.PodGroup) {
					g.Spec.MinResources = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
				})
				s.deploy("app", 3, inGang("app"))
			},
			unblock: func(s *scenario) { s.addNodes(spot(2, 1)[1]) },
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
		"owner annotated with a fallback that is due": {
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.patchDeployment("app", annotation(fallbackAfter, "100ms")) },
			want:      split{spot: 3},
		},
		"owner scaled up": {
			// Of four replicas three may be on spot: the gang of three is whole, the fourth waits.
			spotSlots: 3,
			full:      true,
			unblock:   func(s *scenario) { s.scale("app", 4) },
			want:      split{spot: 3, waiting: 1},
		},
		"pod preempted at last": {
			// Two wait at Permit for the third, that one for a victim that does not go, until their time is over.
			nodes: spot(2, 1)[1:],
			create: func(s *scenario) {
				s.preempting("app", high, func(g *v1alpha1.PodGroup) { g.Spec.ScheduleTimeoutSeconds = new(int32(1)) })
			},
			unblock: func(s *scenario) { s.letGo() },
			want:    split{onDemand: 1, spot: 2},
		},
	} {
		s.run(name, func(s *scenario) {
			s.Cleanup(s.clearGangs)
			s.addNodes(slices.Concat(onDemand(1, 1), spot(1, max(test.spotSlots, 1)), test.nodes)...)
			if test.full {
				s.fill("od-1", 1)
			}
			if test.create == nil {
				s.gang("app", 3)
			} else {
				test.create(s)
			}
			s.eventually(soon, s.is("app", split{waiting: cmp.Or(test.waiting, 3)}))
			s.rests()
			s.noneBound(seen, "app")
			s.wholeAtOnce(seen, "app", test.want, func() { test.unblock(s) })
		})
	}
}

// TestGangLeavesRoom has a gang wait for one node more than there is: what it cannot use, others can, and it is not tried over and over.
func TestGangLeavesRoom(t *testing.T) {
	for name, size := range map[string]int32{"of four": 4, "of twelve": 12} {
		t.Run(name, func(t *testing.T) {
			s := startGangs(t, spot(1, int(size)-1))
			seen := s.watch()
			s.gang("app", size, annotated(minOnDemand, "0"))
			s.rests()
			// Two attempts of all, and in each one of the pod that its own gang has woken.
			attempts, err := s.metric("scheduler_schedule_attempts_total", nil)
			s.must(err)
			if limit := 2*int(size) + 4; attempts > limit {
				s.Errorf("%d attempts for a gang that was tried twice, want at most %d", attempts, limit)
			}
			pods, err := s.pods("app")
			s.must(err)
			for _, pod := range pods {
				if node := pod.Status.NominatedNodeName; node != "" {
					s.Errorf("%s is still promised node %s", pod.Name, node)
				}
			}
			s.deploy("other", size-1, annotated(minOnDemand, "0"))
			s.eventually(soon, s.is("other", split{spot: int(size) - 1}))
			others, err := s.pods("other")
			s.must(err)
			for _, pod := range others {
				s.boundAtOnce(seen, pod.Name, seen.of(pod.Name).appeared)
			}
			s.must(s.is("app", split{waiting: int(size)})())
		})
	}
}

// TestGangsContend creates gangs of which only one fits at a time: one is whole, and when it goes the next, whatever they held.
func TestGangsContend(t *testing.T) {
	for name, size := range map[string]int32{"of four": 4, "of twelve": 12} {
		t.Run(name, func(t *testing.T) {
			s := startGangs(t, spot(1, int(size)*3/2))
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
					return fmt.Errorf("none is whole: %v, %v", splits, err)
				})
				s.Logf("%s was whole after %s", whole, time.Since(began).Round(time.Millisecond))
				gangs = slices.DeleteFunc(gangs, func(gang string) bool { return gang == whole })
				s.still()
				splits, err := s.splits()
				s.must(err)
				for _, gang := range gangs {
					if splits[gang] != (split{waiting: int(size)}) {
						s.Errorf("%s holds %+v while %s runs", gang, splits[gang], whole)
					}
				}
				s.must(client.AppsV1().Deployments(s.namespace).Delete(s.ctx, whole, metav1.DeleteOptions{}))
			}
		})
	}
}

// TestGangFallback has a gang wait for the floor's room longer than fallbackAfter: it is whole then, not one pod's time after the other.
func TestGangFallback(t *testing.T) {
	s := startGangs(t, spot(2, 5), args(map[string]any{"fallbackAfter": "8s"}))
	seen := s.watch()
	began := time.Now()
	s.gang("app", 8, annotated(minOnDemand, "3"))
	s.eventually(time.Minute, s.is("app", split{spot: 8}))
	whole := time.Since(began)
	pods, err := s.pods("app")
	s.must(err)
	for _, pod := range pods {
		if at := s.seenBound(seen, pod.Name, soon).bound; at.Sub(began) < 8*time.Second {
			s.Errorf("%s was bound after %s, before fallbackAfter", pod.Name, at.Sub(began))
		}
	}
	s.Logf("whole after %s", whole.Round(time.Millisecond))
	if whole > 12*time.Second {
		s.Errorf("whole after %s, want 8 s and a little", whole)
	}
}

// preempting creates a gang of three of which two wait at Permit, on od-1 and spot-1, for the third that waits for its victim on spot-2 to
// go. It returns when they do.
func (s *scenario) preempting(name, class string, edits ...func(*v1alpha1.PodGroup)) {
	s.Helper()
	s.fill("spot-2", 1, func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/stay"} })
	s.group(name, 3, edits...)
	s.deploy(name, 3, inGang(name), func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = class })
	s.eventually(soon, func() error {
		victim, err := client.CoreV1().Pods(s.namespace).Get(s.ctx, "fill-spot-2-1", metav1.GetOptions{})
		if err == nil && victim.DeletionTimestamp == nil {
			err = fmt.Errorf("%s is not preempted", victim.Name)
		}
		return err
	})
	log, err := os.ReadFile(s.scheduler.Log)
	s.must(err)
	if n := bytes.Count(log, []byte("Pod is waiting to be scheduled to node")); n < 2 {
		s.Fatalf("%d pods were seen to wait at Permit, want 2", n)
	}
}

// letGo lets the victim of preempting go.
func (s *scenario) letGo() {
	s.Helper()
	s.patchPod("fill-spot-2-1", `{"metadata":{"finalizers":null}}`)
}

// TestGangKilled kills the scheduler while a gang waits at Permit. None of it was bound; the next scheduler places it whole.
func TestGangKilled(t *testing.T) {
	s := startGangs(t, slices.Concat(onDemand(1, 1), spot(2, 1)))
	seen := s.watch()
	s.preempting("app", priorityClass(t, "high", 1_000_000))
	s.must(s.scheduler.Kill())
	s.noneBound(seen, "app")
	s.startScheduler()
	// The killed leader's lease has to run out first: 15 s.
	s.eventually(time.Minute, func() error {
		attempts, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err == nil && attempts == 0 {
			err = fmt.Errorf("the next scheduler has tried nothing yet")
		}
		return err
	})
	s.noneBound(seen, "app")
	s.wholeAtOnce(seen, "app", split{onDemand: 1, spot: 2}, s.letGo)
}

// TestGangHalfBound has the scheduler find a gang of which some are bound, as one that is killed while it binds them leaves it. It places the
// others when all of them have room, and not before.
func TestGangHalfBound(t *testing.T) {
	s := startGangs(t, slices.Concat(onDemand(1, 2), spot(1, 3)))
	seen := s.watch()
	s.must(s.scheduler.Kill())
	s.gang("app", 6, annotated(minOnDemand, "2"))
	s.eventually(soon, s.is("app", split{waiting: 6}))
	pods, err := s.pods("app")
	s.must(err)
	for _, pod := range pods[:2] {
		s.must(client.CoreV1().Pods(s.namespace).Bind(s.ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: v1.ObjectReference{Kind: "Node", Name: "spot-1"},
		}, metav1.CreateOptions{}))
	}
	s.startScheduler()
	// The killed leader's lease has to run out first: 15 s.
	s.eventually(time.Minute, func() error {
		attempts, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err == nil && attempts == 0 {
			err = fmt.Errorf("the next scheduler has tried nothing yet")
		}
		return err
	})
	s.rests()
	s.must(s.is("app", split{spot: 2, waiting: 4})())
	s.addNodes(spot(2, 2)[1])
	came := time.Now()
	s.eventually(soon, s.is("app", split{onDemand: 2, spot: 4}))
	for _, pod := range pods {
		s.boundAtOnce(seen, pod.Name, came)
	}
}
