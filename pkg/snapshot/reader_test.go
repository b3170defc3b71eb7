package snapshot_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node/nodetest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// describe returns a line for each workload and for each pod, with its node, workload and revision.
func describe(s *snapshot.Snapshot) (lines []string) {
	for _, w := range s.Workloads {
		line := fmt.Sprintf("%s %s desired=%d", w.Kind, w.Name, w.Desired)
		if w.InScope {
			line += fmt.Sprintf(" ours floor=%d %s", w.Floor, w.Settings.MinOnDemand)
		}
		for _, r := range w.Revisions {
			line += fmt.Sprintf(" [%s %d+%d of %d]", r.Key.UID, r.Placed.Spot, r.Placed.OnDemand, len(r.Pods))
		}
		lines = append(lines, line)
	}
	for _, p := range s.Pods {
		line := p.Name
		if p.Node != nil {
			line += " on " + p.Node.Name
		}
		if p.Workload != nil {
			line += fmt.Sprintf(" of %s/%s", p.Workload.Name, p.Revision.Key.UID)
		}
		if p.Release != nil {
			line += " released"
		}
		if p.ReleasedFrom != nil {
			line += " from " + string(p.ReleasedFrom.Key.UID)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestSnapshot(t *testing.T) {
	daemon := &v1.Pod{ObjectMeta: clustertest.Meta("daemon", clustertest.OwnedBy("DaemonSet", "daemons")), Spec: v1.PodSpec{NodeName: "od"}}
	orphan := &v1.Pod{ObjectMeta: clustertest.Meta("orphan", clustertest.OwnedBy("ReplicaSet", "missing")), Spec: v1.PodSpec{NodeName: "od"}}
	bare := &v1.Pod{ObjectMeta: clustertest.Meta("bare"), Spec: v1.PodSpec{NodeName: "gone", SchedulerName: clustertest.Profile}}
	done := &v1.Pod{ObjectMeta: clustertest.Meta("done"), Status: v1.PodStatus{Phase: v1.PodSucceeded}}
	cases := map[string]struct {
		cluster string
		change  func(*clustertest.World)
		want    []string
	}{
		"one workload of a canary": {
			change: func(w *clustertest.World) {
				w.Build("node sp spot m/a\nnode od on-demand m/a")
				objects := clustertest.AsRollout(clustertest.Objects("deployment web 10 od sp sp old=2"))
				objects[1].(*appsv1.ReplicaSet).Annotations["rollout.argoproj.io/desired-replicas"] = "4" // not updated yet
				w.Put(objects...)
			},
			want: []string{
				"Rollout web desired=10 ours floor=1 1 [web-old-uid 1+1 of 2] [web-r-uid 1+0 of 1]",
				"web-0 on od of web/web-old-uid", "web-1 on sp of web/web-old-uid", "web-2 on sp of web/web-r-uid",
			},
		},
		"pods that their controller did not create": {
			cluster: `
				node sp spot m/a
				node od on-demand m/a
				deployment web 1 od
				pod task-1 sp owner=Deployment/web
				pod task-2 od owner=Deployment/web profile=other
				pod driver od
				pod theirs sp owner=Deployment/others profile=other
				pod exec-1 sp owner=v1/Pod/driver
				pod exec-2 sp owner=v1/Pod/driver
				statefulset db 1 od
				pod backup sp owner=StatefulSet/db`,
			want: []string{
				"Deployment web desired=1 ours floor=1 1 [web-r-uid 0+1 of 1]",
				"Pod driver desired=1 ours floor=1 1 [driver-uid 0+1 of 1]",
				"PodsOfDeployment others desired=1 [others-uid 1+0 of 1]",
				"PodsOfDeployment web desired=2 ours floor=1 1 [web-uid 1+1 of 2]",
				"PodsOfPod driver desired=2 ours floor=1 1 [driver-uid 2+0 of 2]",
				"PodsOfStatefulSet db desired=1 ours floor=1 1 [db-uid 1+0 of 1]",
				"StatefulSet db desired=1 ours floor=1 1 [db-uid 0+1 of 1]",
				"backup on sp of db/db-uid", "db-0 on od of db/db-uid", "driver on od of driver/driver-uid",
				"exec-1 on sp of driver/driver-uid", "exec-2 on sp of driver/driver-uid",
				"task-1 on sp of web/web-uid", "task-2 on od of web/web-uid", "theirs on sp of others/others-uid", "web-0 on od of web/web-r-uid",
			},
		},
		"workloads of pods": {
			cluster: `
				node sp spot m/a
				node od on-demand m/a
				deployment web 4 sp sp od - min=2
				statefulset db 2 od sp
				job batch 1 sp`,
			want: []string{
				"Deployment web desired=4 ours floor=2 2 [web-r-uid 2+1 of 4]",
				"Job batch desired=1 ours floor=0 0 [batch-uid 1+0 of 1]",
				"StatefulSet db desired=2 ours floor=1 1 [db-uid 1+1 of 2]",
				"batch-0 on sp of batch/batch-uid",
				"db-0 on od of db/db-uid", "db-1 on sp of db/db-uid",
				"web-0 on sp of web/web-r-uid", "web-1 on sp of web/web-r-uid", "web-2 on od of web/web-r-uid", "web-3 of web/web-r-uid",
			},
		},
		"terminating, released and unbound pods": {
			cluster: "node sp spot m/a\ndeployment web 5 sp !sp ~sp nowhere",
			want: []string{
				"Deployment web desired=5 ours floor=1 1 [web-r-uid 1+0 of 2]",
				"web-0 on sp of web/web-r-uid", "web-1 on sp of web/web-r-uid", "web-2 on sp released from web-r-uid", "web-3 of web/web-r-uid",
			},
		},
		"only released pods": {
			cluster: "node sp spot m/a\ndeployment web 1 ~sp",
			want:    []string{"Deployment web desired=1 ours floor=1 1 [web-r-uid 0+0 of 0]", "web-0 on sp released from web-r-uid"},
		},
		"released from a deleted ReplicaSet": {
			cluster: "node sp spot m/a\ndeployment web 1 ~sp",
			change: func(w *clustertest.World) {
				w.Remove(&appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("web-r")})
			},
			want: []string{"web-0 on sp released"},
		},
		"other profiles": {
			cluster: "node sp spot m/a\ndeployment web 2 sp sp profile=default-scheduler",
			want: []string{
				"Deployment web desired=2 [web-r-uid 2+0 of 2]", "web-0 on sp of web/web-r-uid", "web-1 on sp of web/web-r-uid",
			},
		},
		"one live pod of another profile is enough": {
			cluster: "node sp spot m/a\ndeployment web 2 sp\ndeployment app 2 !sp sp",
			change: func(w *clustertest.World) {
				w.Build("pod web-1 - owner=ReplicaSet/web-r profile=other")
				leaving := w.Pods["app-0"].DeepCopy()
				leaving.Spec.SchedulerName = "other"
				w.Put(leaving)
			},
			want: []string{
				"Deployment app desired=2 ours floor=1 1 [app-r-uid 1+0 of 1]",
				"Deployment web desired=2 [web-r-uid 1+0 of 2]",
				"app-0 on sp of app/app-r-uid", "app-1 on sp of app/app-r-uid", "web-0 on sp of web/web-r-uid", "web-1 of web/web-r-uid",
			},
		},
		"a ReplicaSet of another group": {
			cluster: "deployment other 1\npod foreign - owner=example.com/v1/ReplicaSet/other-r",
			want:    []string{"ReplicaSet other-r desired=1 ours floor=1 1 [other-r-uid 0+0 of 1]", "foreign of other-r/other-r-uid"},
		},
		"pods without a workload": {
			cluster: "node od on-demand m/a",
			change:  func(w *clustertest.World) { w.Put(daemon, orphan, bare, done) },
			want:    []string{"Pod bare desired=1 ours floor=1 1 [bare-uid 0+0 of 1]", "bare of bare/bare-uid", "daemon on od", "orphan on od"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build(test.cluster)
			if test.change != nil {
				test.change(w)
			}
			if diff := cmp.Diff(test.want, describe(w.Snapshot())); diff != "" {
				t.Errorf("snapshot (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, describe(w.Snapshot())); diff != "" {
				t.Errorf("second snapshot, cached (-want +got):\n%s", diff)
			}
		})
	}
}

// Owner references and release annotations that tenants forge do not affect other pods and
// workloads.
func TestForgedOwners(t *testing.T) {
	const genuineCluster = "node sp spot m/a\nnode od on-demand m/a\ndeployment web 3 sp od -\nstatefulset db 1 od\njob batch 1 sp"
	keys := map[workload.OwnerKey]bool{} // of the genuine workloads
	describe := func(s *snapshot.Snapshot) (lines []string) {
		for _, workload := range s.Workloads {
			if !keys[workload.Key] {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s %d %d %+v", workload.Kind, workload.Name, workload.Desired, workload.Floor, s.PodsInTransition()[workload.Key]))
			for _, r := range workload.Revisions {
				lines = append(lines, fmt.Sprintf("  %s %+v", r.Key.UID, r.Placed))
				for _, p := range r.Pods {
					lines = append(lines, "    "+p.Namespace+"/"+p.Name)
				}
			}
		}
		return lines
	}
	w := clustertest.NewWorld(t)
	w.Build(genuineCluster)
	before := w.Snapshot()
	for _, workload := range before.Workloads {
		keys[workload.Key] = true
	}
	want := describe(before)
	for _, name := range []string{"web-0", "db-0", "batch-0"} {
		genuine := w.Pods[name]
		for _, pod := range nodetest.Forged(genuine) {
			if pod.Name != "" {
				pod.Name += "-" + name
			}
			pod.UID += types.UID("-" + name)
			w.Put(pod)
		}
		direct := genuine.DeepCopy() // names the owner of its owner
		direct.Name, direct.UID = "direct-"+name, types.UID("direct-"+name)
		direct.OwnerReferences[0].Kind, direct.OwnerReferences[0].Name, direct.OwnerReferences[0].UID = "Deployment", "web", "web-uid"
		w.Put(direct)
		released := genuine.DeepCopy()
		owner := released.OwnerReferences[0]
		released.Namespace, released.Name, released.UID, released.OwnerReferences = "aaa", "released-"+name, types.UID("released-"+name), nil
		released.Annotations = map[string]string{spot.ReleasedAnnotation: fmt.Sprintf(`{"replicaSet":%q,"replicaSetUID":%q,"hash":"r"}`, owner.Name, owner.UID)}
		w.Put(released)
	}
	for _, when := range []string{"first", "cached"} {
		if diff := cmp.Diff(want, describe(w.Snapshot())); diff != "" {
			t.Errorf("%s: the workloads of shop (-before +after the forged pods):\n%s", when, diff)
		}
	}
}

// The Reader's cached facts about a pod must not outlive the objects that they were read from.
func TestSnapshotFollowsChanges(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node sp spot m/a\nnode od on-demand m/a\ndeployment web 2 sp sp\nstatefulset db 2 od od")
	w.Snapshot()
	steps := []struct {
		name   string
		change func()
		want   []string
	}{
		{"pods are created, deleted and moved", func() {
			w.Remove(w.Pods["web-0"])
			w.Put(clustertest.NewPod("web-2", clustertest.OwnedBy("ReplicaSet", "web-r")), clustertest.NewPod("aaa", clustertest.OwnedBy("ReplicaSet", "web-r")))
			moved := w.Pods["web-1"].DeepCopy()
			moved.Spec.NodeName = "od"
			w.Put(moved)
		}, []string{
			"Deployment web desired=2 ours floor=1 1 [web-r-uid 0+1 of 3]", "StatefulSet db desired=2 ours floor=1 1 [db-uid 0+2 of 2]",
			"aaa of web/web-r-uid", "db-0 on od of db/db-uid", "db-1 on od of db/db-uid", "web-1 on od of web/web-r-uid", "web-2 of web/web-r-uid",
		}},
		{"owners change", func() {
			web, db := clustertest.Meta("web"), clustertest.Meta("db")
			web.Annotations = map[string]string{spot.MinOnDemandAnnotation: "50%"}
			w.Put(&appsv1.Deployment{ObjectMeta: web, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](4)}},
				&appsv1.StatefulSet{ObjectMeta: db, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), Ordinals: &appsv1.StatefulSetOrdinals{Start: 1}}})
		}, []string{
			"Deployment web desired=4 ours floor=2 50% [web-r-uid 0+1 of 3]", "StatefulSet db desired=3 ours floor=1 1 [db-uid 0+2 of 2]",
			"aaa of web/web-r-uid", "db-0 on od of db/db-uid", "db-1 on od of db/db-uid", "web-1 on od of web/web-r-uid", "web-2 of web/web-r-uid",
		}},
		{"an owner is deleted", func() { w.Remove(&appsv1.Deployment{ObjectMeta: clustertest.Meta("web")}) }, []string{
			"StatefulSet db desired=3 ours floor=1 1 [db-uid 0+2 of 2]",
			"aaa", "db-0 on od of db/db-uid", "db-1 on od of db/db-uid", "web-1 on od", "web-2",
		}},
	}
	for _, step := range steps {
		step.change()
		s := w.Snapshot()
		if diff := cmp.Diff(step.want, describe(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		for _, p := range s.Pods {
			if p.Subject == nil {
				continue
			}
			if w := p.Subject.Pod.Workload; w.Desired != p.Workload.Desired {
				t.Errorf("%s: workload of %s has %d replicas in Subject, %d in Workload", step.name, p.Name, w.Desired, p.Workload.Desired)
			}
		}
	}
	ordinals := map[string]int{}
	w.Build("statefulset db 2 od od od")
	for _, p := range w.Snapshot().Pods {
		if p.Workload != nil && p.Workload.StatefulSet != nil {
			ordinals[p.Name] = p.Subject.Pod.Workload.Ordinal
		}
	}
	if diff := cmp.Diff(map[string]int{"db-0": 0, "db-1": 1, "db-2": 2}, ordinals); diff != "" {
		t.Errorf("ordinals after the start was set back (-want +got):\n%s", diff)
	}
}

func TestRollingOut(t *testing.T) {
	deployment := func(replicas int32, observed int64) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: clustertest.Meta("web"), Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
		d.Generation, d.Status.ObservedGeneration = 2, observed
		return d
	}
	set := func(name, number string, replicas int32) *appsv1.ReplicaSet {
		rs := &appsv1.ReplicaSet{ObjectMeta: clustertest.Meta(name, clustertest.OwnedBy("Deployment", "web")), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
		rs.Annotations = map[string]string{"deployment.kubernetes.io/revision": number}
		return rs
	}
	pod := func(set string) *v1.Pod {
		return &v1.Pod{ObjectMeta: clustertest.Meta("p-"+set, clustertest.OwnedBy("ReplicaSet", set))}
	}
	leaving := pod("old")
	leaving.DeletionTimestamp = &metav1.Time{Time: clustertest.Now}
	stateful := func(current, update string, observed int64) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: clustertest.Meta("db")}
		s.Generation, s.Status = 2, appsv1.StatefulSetStatus{ObservedGeneration: observed, CurrentRevision: current, UpdateRevision: update}
		return s
	}
	ordinal := &v1.Pod{ObjectMeta: clustertest.Meta("db-0", clustertest.OwnedBy("StatefulSet", "db"))}
	type rollingOutCase struct {
		put           func(*clustertest.World)
		want          bool
		wantRevisions []types.UID
	}
	cases := map[string]rollingOutCase{
		"settled": {func(w *clustertest.World) {
			w.Put(deployment(2, 2), set("old", "9", 0), set("new", "10", 2), pod("new"))
		}, false, []types.UID{"new-uid"}},
		"specification not observed yet": {func(w *clustertest.World) { w.Put(deployment(2, 1), set("new", "2", 2), pod("new")) }, true, []types.UID{"new-uid"}},
		"an older revision wants pods": {func(w *clustertest.World) {
			w.Put(deployment(2, 2), set("old", "9", 1), set("new", "10", 2), pod("new"))
		},
			true, []types.UID{"old-uid", "new-uid"}},
		"an older revision has pods": {func(w *clustertest.World) {
			w.Put(deployment(2, 2), set("old", "9", 0), set("new", "10", 2), pod("new"), pod("old"))
		},
			true, []types.UID{"old-uid", "new-uid"}},
		"the last old pod terminates": {func(w *clustertest.World) {
			w.Put(deployment(2, 2), set("old", "9", 0), set("new", "10", 2), pod("new"), leaving)
		},
			false, []types.UID{"old-uid", "new-uid"}},
		"the newest revision wants fewer pods": {func(w *clustertest.World) { w.Put(deployment(3, 2), set("new", "10", 2), pod("new")) }, true, []types.UID{"new-uid"}},
		"the newest revision wants no pods yet": {func(w *clustertest.World) {
			w.Put(deployment(2, 2), set("old", "9", 2), set("new", "10", 0), pod("old"))
		},
			true, []types.UID{"old-uid"}},
		"a rollback": {func(w *clustertest.World) {
			w.Put(deployment(2, 2), set("old", "11", 2), set("new", "10", 1), pod("new"), pod("old"))
		},
			true, []types.UID{"new-uid", "old-uid"}},
		"a pod is missing":             {func(w *clustertest.World) { w.Put(deployment(9, 2), set("new", "10", 9), pod("new")) }, false, []types.UID{"new-uid"}},
		"StatefulSet":                  {func(w *clustertest.World) { w.Put(stateful("a", "a", 2), ordinal) }, false, []types.UID{"db-uid"}},
		"StatefulSet in a rollout":     {func(w *clustertest.World) { w.Put(stateful("a", "b", 2), ordinal) }, true, []types.UID{"db-uid"}},
		"StatefulSet not observed yet": {func(w *clustertest.World) { w.Put(stateful("a", "a", 1), ordinal) }, true, []types.UID{"db-uid"}},
		"the newest ReplicaSet is being deleted": {func(w *clustertest.World) {
			w.Put(deployment(2, 2), set("new", "10", 2), pod("new"), terminatingReplicaSet())
		}, false, []types.UID{"new-uid"}},
	}
	argo := func(name, number string, replicas int32) *appsv1.ReplicaSet {
		rs := set(name, number, replicas)
		clustertest.AsRollout([]runtime.Object{rs})
		rs.Annotations["rollout.argoproj.io/desired-replicas"] = "10"
		return rs
	}
	for name, put := range map[string]struct {
		sets      []*appsv1.ReplicaSet
		pods      []*v1.Pod
		want      bool
		revisions []types.UID
	}{
		"Rollout":                         {[]*appsv1.ReplicaSet{argo("old", "9", 0), argo("new", "10", 10)}, []*v1.Pod{pod("new")}, false, []types.UID{"new-uid"}},
		"Rollout, canary":                 {[]*appsv1.ReplicaSet{argo("old", "9", 9), argo("new", "10", 1)}, []*v1.Pod{pod("old"), pod("new")}, true, []types.UID{"old-uid", "new-uid"}},
		"Rollout, canary without pods":    {[]*appsv1.ReplicaSet{argo("old", "9", 9), argo("new", "10", 1)}, []*v1.Pod{pod("old")}, true, []types.UID{"old-uid", "new-uid"}},
		"Rollout, aborted":                {[]*appsv1.ReplicaSet{argo("old", "9", 10), argo("new", "10", 0)}, []*v1.Pod{pod("old")}, false, []types.UID{"old-uid"}},
		"Rollout, aborted, a pod is left": {[]*appsv1.ReplicaSet{argo("old", "9", 10), argo("new", "10", 0)}, []*v1.Pod{pod("old"), pod("new")}, true, []types.UID{"old-uid", "new-uid"}},
		"Rollout, some scaled to 0":       {[]*appsv1.ReplicaSet{argo("old", "9", 0), argo("new", "10", 0)}, []*v1.Pod{pod("new")}, true, []types.UID{"new-uid"}},
	} {
		cases[name] = rollingOutCase{func(w *clustertest.World) {
			for _, rs := range put.sets {
				w.Put(rs)
			}
			for _, pod := range put.pods {
				w.Put(pod)
			}
		}, put.want, put.revisions}
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			test.put(w)
			s := w.Snapshot()
			var revisions []types.UID
			for _, r := range s.Workloads[0].Revisions {
				revisions = append(revisions, r.Key.UID)
			}
			if diff := cmp.Diff(test.wantRevisions, revisions); diff != "" {
				t.Errorf("revisions (-want +got):\n%s", diff)
			}
			if got := s.Workloads[0].RollingOut; got != test.want {
				t.Errorf("rolling out: got %v, want %v", got, test.want)
			}
		})
	}
}

// terminatingReplicaSet returns a ReplicaSet that is being deleted.
func terminatingReplicaSet() *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("last", clustertest.OwnedBy("Deployment", "web"))}
	rs.Annotations = map[string]string{"deployment.kubernetes.io/revision": "12"}
	rs.DeletionTimestamp = &metav1.Time{Time: clustertest.Now}
	return rs
}

func TestSnapshotOfNodes(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node b spot m/a\nnode a on-demand m/a taint=spot-aware-scheduler.io/interruption\nnode c spot m/b notready\nnode d spot m/b notready")
	late := clustertest.NewNode("d", "spot", "m/b", "notready")
	late.Status.Conditions[0].Status = v1.ConditionUnknown
	late.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clustertest.Now.Add(-node.NotReadyReclaimAfter))
	young := clustertest.NewNode("e", "", "m/b")
	young.CreationTimestamp = metav1.NewTime(clustertest.Now.Add(-29 * time.Second))
	w.Put(late, young)
	got := map[string]decision.Node{}
	var names []string
	s := w.Snapshot()
	for _, node := range s.Nodes {
		names = append(names, node.Name)
		got[node.Name] = node.Facts
	}
	if want := clustertest.Now.Add(time.Second); !s.Until.Equal(want) {
		t.Errorf("Until = %v, want %v, when the label grace ends", s.Until, want)
	}
	if !slices.IsSorted(names) {
		t.Errorf("nodes are not in order: %v", names)
	}
	want := map[string]decision.Node{
		"a": {Capacity: decision.Capacity{Type: decision.OnDemand}, Pool: decision.Pool{InstanceType: "m", Zone: "a"}, Zone: "a", Signal: decision.Reclaim},
		"b": {Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.Pool{InstanceType: "m", Zone: "a"}, Zone: "a"},
		"c": {Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.Pool{InstanceType: "m", Zone: "b"}, Zone: "b"},
		"d": {Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.Pool{InstanceType: "m", Zone: "b"}, Zone: "b", Signal: decision.Reclaim},
		"e": {Capacity: decision.Capacity{Type: decision.Spot, Source: decision.Settling}, Pool: decision.Pool{InstanceType: "m", Zone: "b"}, Zone: "b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestSnapshotOfBudgetsAndServices(t *testing.T) {
	w := clustertest.NewWorld(t)
	web := map[string]string{"app": "web"}
	budget := func(name string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: clustertest.Meta(name), Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		}}
	}
	w.Build("deployment b 1 -")
	service := &v1.Service{ObjectMeta: clustertest.Meta("web"), Spec: v1.ServiceSpec{Selector: web}}
	external := &v1.Service{ObjectMeta: clustertest.Meta("external")}
	w.Put(budget("b"), budget("a"), service, external)
	s := w.Snapshot()
	if diff := cmp.Diff(map[string][]*v1.Service{"shop": {external, service}}, s.Services, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	want := map[string][]*policyv1.PodDisruptionBudget{"shop": {budget("a"), budget("b")}}
	if diff := cmp.Diff(want, s.Budgets, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want["shop"][1:], s.BudgetsOf(s.Pods[0])); diff != "" {
		t.Errorf("budgets of the pod (-want +got):\n%s", diff)
	}
}

// Informers returns every informer that a Snapshot reads. All were registered before the factory
// starts.
func TestInformers(t *testing.T) {
	w := clustertest.NewWorld(t)
	if got := len(w.Reader.Informers()); got != 16 {
		t.Errorf("got %d informers, want one for nodes, pods, six kinds of owners, budgets, services, claims, volumes and their classes, "+
			"LimitRanges, CSINodes and VolumeAttachments each", got)
	}
	stop := make(chan struct{})
	w.Factory.Start(stop)
	defer w.Factory.Shutdown()
	defer close(stop)
	w.Factory.WaitForCacheSync(stop)
	for _, informer := range w.Reader.Informers() {
		if !informer.HasSynced() {
			t.Error("informer not started")
		}
	}
}
