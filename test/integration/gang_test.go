package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// startGangs starts a scheduler like start, with config/gang.yaml instead of the default
// configuration. It first installs the kind PodGroup, as the overlay does.
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

// podGroups returns a client whose scheme contains PodGroup.
func (s *scenario) podGroups() ctrlclient.Client {
	s.Helper()
	scheme := runtime.NewScheme()
	s.Must(v1alpha1.AddToScheme(scheme))
	c, err := ctrlclient.New(controlPlane.Config(), ctrlclient.Options{Scheme: scheme})
	s.Must(err)
	return c
}

// group creates a PodGroup.
func (s *scenario) group(name string, minMember int, edits ...func(*v1alpha1.PodGroup)) {
	s.Helper()
	group := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}, Spec: v1alpha1.PodGroupSpec{MinMember: int32(minMember)}}
	for _, edit := range edits {
		edit(group)
	}
	s.Must(s.podGroups().Create(s.Ctx, group))
}

// inGang returns an edit that adds a Deployment's pods to a PodGroup.
func inGang(group string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Labels[v1alpha1.PodGroupLabel] = group }
}

// gang creates a Deployment, and a PodGroup of the same name for all its replicas.
func (s *scenario) gang(name string, replicas int, edits ...func(*appsv1.Deployment)) {
	s.Helper()
	s.group(name, replicas)
	s.Deploy(name, replicas, slices.Concat([]func(*appsv1.Deployment){inGang(name)}, edits)...)
}

// TestGangOverlay shows that the API server accepts the overlay. It also shows that the scheduler
// and the controller read the same configuration as the other tests.
func TestGangOverlay(t *testing.T) {
	k := kubectl{cp: controlPlane, cache: t.TempDir()}
	overlay := filepath.Join(controlPlane.Root, "manifests", "overlays", "gang")
	// Server-side, because the lab did not create the objects of its own grant with apply.
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
			t.Errorf("%s runs with %q, want it to read config/gang.yaml from a ConfigMap", name, pod.Containers[0].Args)
		}
	}
}

// TestGang shows that a gang waits until all its pods fit, and that its floor is met.
func TestGang(t *testing.T) {
	s := startGangs(t, nil)
	seen := s.Watch()
	for name, test := range map[string]struct {
		nodes    []lab.NodeSpec
		create   func(s *scenario)
		another  lab.NodeSpec // the gang fits after this node is added
		want     split
		replicas int
	}{
		"four with room for three": {
			nodes:   slices.Concat(live.OnDemand(1, 1), live.Spot(1, 2)),
			create:  func(s *scenario) { s.gang("app", 4) },
			another: live.Spot(2, 2)[1],
			want:    split{OnDemand: 1, Spot: 3},
		},
		"ten with a floor of three and room for nine": {
			nodes:   slices.Concat(live.OnDemand(1, 3), live.Spot(1, 6)),
			create:  func(s *scenario) { s.gang("app", 10, live.Annotated(minOnDemand, "3")) },
			another: live.Spot(2, 5)[1],
			want:    split{OnDemand: 3, Spot: 7},
		},
		"ten with room for all, but not for the floor": {
			nodes:   slices.Concat(live.OnDemand(1, 2), live.Spot(1, 20)),
			create:  func(s *scenario) { s.gang("app", 10, live.Annotated(minOnDemand, "3")) },
			another: live.OnDemand(2, 1)[1],
			want:    split{OnDemand: 3, Spot: 7},
		},
		"a Job of six with room for five": {
			nodes: live.Spot(1, 5),
			create: func(s *scenario) {
				s.group("app", 6)
				s.job("app", 6, 6, func(job *batchv1.Job) { job.Spec.Template.Labels[v1alpha1.PodGroupLabel] = "app" })
			},
			another: live.Spot(2, 5)[1],
			want:    split{Spot: 6},
		},
	} {
		s.run(name, func(s *scenario) {
			s.Cleanup(s.clearGangs)
			s.AddNodes(test.nodes...)
			test.create(s)
			s.Eventually(soon, s.HasSplit("app", split{Waiting: test.want.OnDemand + test.want.Spot}))
			s.awaitFailedRetry()
			s.requireNoneBound(seen, "app")
			s.requireGangBoundAtOnce(seen, "app", test.want, func() { s.AddNodes(test.another) })
		})
	}
}

// clearGangs deletes all workloads, PodGroups and nodes before the next case.
func (s *scenario) clearGangs() {
	s.Helper()
	s.deleteWorkloadsAndNodes()
	s.Must(s.podGroups().DeleteAllOf(s.Ctx, &v1alpha1.PodGroup{}, ctrlclient.InNamespace(s.Namespace)))
}

// TestGangKilled kills the scheduler while a gang waits at Permit. No pod of the gang was bound,
// and the next scheduler places the whole gang.
func TestGangKilled(t *testing.T) {
	s := startGangs(t, slices.Concat(live.OnDemand(1, 1), live.Spot(2, 1)))
	seen := s.Watch()
	s.startGangPreemption("app", priorityClass(t, "high", 1_000_000))
	s.Must(s.Scheduler.Kill())
	s.requireNoneBound(seen, "app")
	s.startScheduler()
	// The lease of the killed leader must expire first, which takes 15 s.
	s.Eventually(time.Minute, func() error {
		attempts, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err == nil && attempts == 0 {
			err = fmt.Errorf("the next scheduler has made no attempt yet")
		}
		return err
	})
	s.requireNoneBound(seen, "app")
	s.requireGangBoundAtOnce(seen, "app", split{OnDemand: 1, Spot: 2}, s.releaseVictim)
}

// TestGangPartlyBound has the scheduler find a gang with some bound pods, as a scheduler leaves it
// that is killed during binding. The scheduler places the other pods when all fit, and not before.
func TestGangPartlyBound(t *testing.T) {
	s := startGangs(t, slices.Concat(live.OnDemand(1, 2), live.Spot(1, 3)))
	seen := s.Watch()
	s.Must(s.Scheduler.Kill())
	s.gang("app", 6, live.Annotated(minOnDemand, "2"))
	s.Eventually(soon, s.HasSplit("app", split{Waiting: 6}))
	pods, err := s.Pods("app")
	s.Must(err)
	for _, pod := range pods[:2] {
		s.Must(client.CoreV1().Pods(s.Namespace).Bind(s.Ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: v1.ObjectReference{Kind: "Node", Name: "spot-1"},
		}, metav1.CreateOptions{}))
	}
	s.startScheduler()
	// The lease of the killed leader must expire first, which takes 15 s.
	s.Eventually(time.Minute, func() error {
		attempts, err := s.metric("scheduler_schedule_attempts_total", nil)
		if err == nil && attempts == 0 {
			err = fmt.Errorf("the next scheduler has made no attempt yet")
		}
		return err
	})
	s.awaitFailedRetry()
	s.Must(s.HasSplit("app", split{Spot: 2, Waiting: 4})())
	s.AddNodes(live.Spot(2, 2)[1])
	added := time.Now()
	s.Eventually(soon, s.HasSplit("app", split{OnDemand: 2, Spot: 4}))
	for _, pod := range pods {
		s.requireBoundAtOnce(seen, pod.Name, added)
	}
}
