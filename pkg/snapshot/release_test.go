package snapshot_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const hashKey = appsv1.DefaultDeploymentUniqueLabelKey

// claim returns a function that releases a pod and then edits the annotation.
func claim(edit func(*snapshot.Release)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		clustertest.Release(p)
		r := snapshot.Release{ReplicaSet: "web-r", ReplicaSetUID: "web-r-uid", Pod: p.UID, Hash: "r", Reason: "heal", At: clustertest.Now}
		edit(&r)
		text, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		p.Annotations[spot.ReleasedAnnotation] = string(text)
	}
}

// A release is trusted if its ReplicaSet exists in the pod's own namespace and selected the pod, or
// is gone. Any other claim is ignored and reported.
func TestRelease(t *testing.T) {
	released := snapshot.Release{ReplicaSet: "web-r", ReplicaSetUID: "web-r-uid", Pod: "web-0-uid", Hash: "r", Reason: "heal", At: clustertest.Now}
	back := func(p *v1.Pod) { clustertest.Release(p); p.Labels[hashKey] = "r" }
	handed := func(deployment string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			clustertest.Release(p)
			p.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("Deployment", deployment)}
		}
	}
	unmarked := func(edit func(*v1.Pod)) func(*v1.Pod) {
		return func(p *v1.Pod) {
			rs := p.OwnerReferences[0]
			rs.Controller = nil
			clustertest.Release(p)
			p.OwnerReferences = []metav1.OwnerReference{rs, clustertest.OwnedBy("Deployment", "web")}
			edit(p)
		}
	}
	gone := func(w *clustertest.World) { w.Remove(&appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("web-r")}) }
	selects := func(labels map[string]string) func(*clustertest.World) {
		return func(w *clustertest.World) {
			w.Put(&appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("web-r", clustertest.OwnedBy("Deployment", "web")), Spec: appsv1.ReplicaSetSpec{
				Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}}})
		}
	}
	again := func(owner ...metav1.OwnerReference) func(*clustertest.World) {
		return func(w *clustertest.World) {
			rs := clustertest.NewReplicaSet("web", "r", 1)
			rs.Name, rs.UID, rs.OwnerReferences = "web-r", "another", owner
			w.Put(rs)
			if len(owner) > 0 && owner[0].Name != "web" {
				w.Put(&appsv1.Deployment{ObjectMeta: clustertest.Meta(owner[0].Name)})
			}
		}
	}
	cases := map[string]struct {
		change  func(*v1.Pod)
		cluster func(*clustertest.World)
		// trusted reports whether the release counts. from is the revision of the release, or "" if
		// it is gone.
		trusted bool
		from    string
		// by is the Deployment that controls the pod although its ReplicaSet is gone.
		by string
		// wantDefect is a part of the defect's text; "" for no defect.
		wantDefect string
	}{
		"not released":           {change: func(*v1.Pod) {}},
		"released":               {change: clustertest.Release, trusted: true, from: "web-r-uid"},
		"released, still owned":  {change: func(p *v1.Pod) { refs := p.OwnerReferences; clustertest.Release(p); p.OwnerReferences = refs }, trusted: true, from: "web-r-uid"},
		"restored":               {change: back, trusted: true, from: "web-r-uid"},
		"adopted again":          {change: func(p *v1.Pod) { refs := p.OwnerReferences; back(p); p.OwnerReferences = refs }, trusted: true, from: "web-r-uid"},
		"the ReplicaSet is gone": {change: clustertest.Release, cluster: gone, trusted: true},
		"the ReplicaSet was recreated": {change: clustertest.Release, cluster: func(w *clustertest.World) {
			again := &appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("web-r")}
			again.UID = "another"
			w.Put(again)
		}, trusted: true},
		"the ReplicaSet was recreated with its selector":                   {change: clustertest.Release, cluster: again(), trusted: true, from: "another"},
		"handed over, the Deployment recreated the ReplicaSet":             {change: handed("web"), cluster: again(clustertest.OwnedBy("Deployment", "web")), trusted: true, from: "another"},
		"handed over, the ReplicaSet was recreated without the Deployment": {change: handed("web"), cluster: again(), trusted: true, by: "web"},
		"handed over, the ReplicaSet was recreated for another Deployment": {change: handed("web"), cluster: again(clustertest.OwnedBy("Deployment", "other")), trusted: true, by: "web"},
		"still owned by the old ReplicaSet, which was recreated":           {change: func(p *v1.Pod) { refs := p.OwnerReferences; clustertest.Release(p); p.OwnerReferences = refs }, cluster: again(), trusted: true},
		"a clock that is a little ahead":                                   {change: claim(func(r *snapshot.Release) { r.At = clustertest.Now.Add(time.Second) }), trusted: true, from: "web-r-uid"},

		"handed over":                         {change: handed("web"), trusted: true, from: "web-r-uid"},
		"handed over, restored":               {change: func(p *v1.Pod) { handed("web")(p); p.Labels[hashKey] = "r" }, trusted: true, from: "web-r-uid"},
		"only the Deployment exists":          {change: handed("web"), cluster: gone, trusted: true, by: "web"},
		"handed over to another":              {change: handed("other"), cluster: func(w *clustertest.World) { w.Put(&appsv1.Deployment{ObjectMeta: clustertest.Meta("other")}) }, wantDefect: "does not own ReplicaSet web-r"},
		"handed over to a missing Deployment": {change: handed("other"), wantDefect: "does not own ReplicaSet web-r"},
		"handed over, all owners are gone": {change: handed("web"), cluster: func(w *clustertest.World) {
			gone(w)
			w.Remove(&appsv1.Deployment{ObjectMeta: clustertest.Meta("web")})
		}, wantDefect: "which does not exist"},

		// Someone has removed marks. The owners still show the release.
		"handed over, the label removed":      {change: func(p *v1.Pod) { handed("web")(p); delete(p.Labels, hashKey) }, trusted: true, from: "web-r-uid"},
		"handed over, another label":          {change: func(p *v1.Pod) { handed("web")(p); p.Labels[hashKey] = "x" }, trusted: true, from: "web-r-uid"},
		"handed over, the annotation removed": {change: unmarked(func(p *v1.Pod) { p.Annotations = nil }), trusted: true, from: "web-r-uid"},
		"handed over, both removed":           {change: unmarked(func(p *v1.Pod) { p.Annotations = nil; delete(p.Labels, hashKey) }), trusted: true, from: "web-r-uid"},
		"the label removed":                   {change: func(p *v1.Pod) { clustertest.Release(p); delete(p.Labels, hashKey) }, trusted: true, from: "web-r-uid"},
		"owners of another ReplicaSet": {change: unmarked(func(p *v1.Pod) {
			p.Annotations, p.OwnerReferences[0].Name = nil, "web-x"
		}), wantDefect: "has the UID of ReplicaSet shop/web-r"},

		"only the label":             {change: func(p *v1.Pod) { clustertest.Release(p); p.Annotations = nil }, wantDefect: "without the annotation"},
		"invalid JSON":               {change: func(p *v1.Pod) { clustertest.Release(p); p.Annotations[spot.ReleasedAnnotation] = "yes" }, wantDefect: "does not parse"},
		"invalid JSON, on a replica": {change: func(p *v1.Pod) { p.Annotations = map[string]string{spot.ReleasedAnnotation: "{"} }, wantDefect: "does not parse"},
		"no time": {change: func(p *v1.Pod) {
			clustertest.Release(p)
			p.Annotations[spot.ReleasedAnnotation] = `{"replicaSet":"web-r","replicaSetUID":"web-r-uid","hash":"r","at":"noon"}`
		}, wantDefect: "does not parse"},
		"an empty object":           {change: func(p *v1.Pod) { clustertest.Release(p); p.Annotations[spot.ReleasedAnnotation] = "{}" }, wantDefect: "does not name a ReplicaSet"},
		"no hash":                   {change: claim(func(r *snapshot.Release) { r.Hash = "" }), wantDefect: "does not name a ReplicaSet"},
		"the hash of released pods": {change: claim(func(r *snapshot.Release) { r.Hash = spot.ReleasedHash }), wantDefect: "does not name a ReplicaSet"},
		"of another pod":            {change: claim(func(r *snapshot.Release) { r.Pod = "other" }), wantDefect: "this one is a copy"},
		"another label":             {change: func(p *v1.Pod) { clustertest.Release(p); p.Labels[hashKey] = "x" }, wantDefect: "neither that of a released pod"},
		"another controller": {change: func(p *v1.Pod) {
			clustertest.Release(p)
			p.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("StatefulSet", "db")}
		}, wantDefect: "its controller is StatefulSet db"},
		"of a DaemonSet": {change: func(p *v1.Pod) {
			clustertest.Release(p)
			p.OwnerReferences = []metav1.OwnerReference{clustertest.OwnedBy("DaemonSet", "agent")}
		}, wantDefect: "it is a DaemonSet pod or a static pod"},
		"a time in the future":           {change: claim(func(r *snapshot.Release) { r.At = clustertest.Now.Add(time.Hour) }), wantDefect: "in the future"},
		"labels that are not selected":   {change: func(p *v1.Pod) { clustertest.Release(p); p.Labels["app"] = "other" }, wantDefect: "ReplicaSet web-r does not select"},
		"another hash":                   {change: claim(func(r *snapshot.Release) { r.Hash = "x" }), wantDefect: "ReplicaSet web-r does not select"},
		"a ReplicaSet that selects both": {change: clustertest.Release, cluster: selects(map[string]string{"app": "web"}), wantDefect: "or also selects released pods"},
		"another namespace's ReplicaSet": {change: func(p *v1.Pod) { clustertest.Release(p); p.Namespace = "zoo" }, wantDefect: "has the UID of ReplicaSet shop/web-r"},
		"the ReplicaSet by another name": {change: claim(func(r *snapshot.Release) { r.ReplicaSet = "gone" }), wantDefect: "has the UID of ReplicaSet shop/web-r"},
		"the UID of a Deployment":        {change: claim(func(r *snapshot.Release) { r.ReplicaSetUID = "web-uid" }), wantDefect: "has the UID of Deployment shop/web"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("node sp spot m/a\ndeployment web 1 sp")
			pod := w.Pods["web-0"].DeepCopy()
			w.Remove(pod)
			test.change(pod)
			w.Put(pod)
			if test.cluster != nil {
				test.cluster(w)
			}
			for _, when := range []string{"first", "cached"} {
				s := w.Snapshot()
				got := clustertest.Find(t, s, "web-0")
				if (got.Release != nil) != test.trusted {
					t.Errorf("%s: release %+v, want trusted: %t", when, got.Release, test.trusted)
				}
				if from := ""; test.trusted {
					if got.ReleasedFrom != nil {
						from = string(got.ReleasedFrom.Key.UID)
					}
					if from != test.from || got.Live() || got.Workload != nil {
						t.Errorf("%s: released from %q, live: %t, has a workload: %t; want from %q and neither", when, from, got.Live(), got.Workload != nil, test.from)
					}
					if by := ptr.Deref(got.Deployment, appsv1.Deployment{}).Name; by != test.by {
						t.Errorf("%s: controlled by Deployment %q, want %q", when, by, test.by)
					}
				} else if !got.Live() || got.ReleasedFrom != nil {
					t.Errorf("%s: live: %t, released from %v; want an ordinary pod", when, got.Live(), got.ReleasedFrom)
				}
				var defects []string
				for _, d := range s.Defects {
					defects = append(defects, fmt.Sprintf("%s %s", d.Pod.Name, d.Kind))
					if !strings.Contains(d.Why, test.wantDefect) {
						t.Errorf("%s: defect %q, want %q in it", when, d.Why, test.wantDefect)
					}
				}
				var want []string
				if test.wantDefect != "" {
					want = []string{"web-0 release"}
				}
				if diff := cmp.Diff(want, defects); diff != "" {
					t.Errorf("%s: defects (-want +got):\n%s", when, diff)
				}
			}
		})
	}
	w := clustertest.NewWorld(t)
	w.Build("node sp spot m/a\ndeployment web 1 ~sp")
	if diff := cmp.Diff(&released, clustertest.Find(t, w.Snapshot(), "web-0").Release); diff != "" {
		t.Errorf("Release (-want +got):\n%s", diff)
	}
}

// A release gains or loses trust when its ReplicaSet in the caches changes.
func TestReleaseFollowsItsReplicaSet(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node sp spot m/a\ndeployment web 2 ~sp sp")
	other := &appsv1.ReplicaSet{ObjectMeta: clustertest.Meta("web-r", clustertest.OwnedBy("Deployment", "web")), Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other", hashKey: "r"}}}}
	genuine, _, err := clustertest.CacheOf(t, w.Factory, other).Get(other)
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		change func()
		want   bool
	}{{func() {}, true}, {func() { w.Put(other) }, false}, {func() { w.Put(genuine.(*appsv1.ReplicaSet)) }, true}} {
		test.change()
		s := w.Snapshot()
		if got := clustertest.Find(t, s, "web-0"); (got.ReleasedFrom != nil) != test.want || (got.Release != nil) != test.want || got.Live() == test.want {
			t.Errorf("step %d: release %v from %v, live: %t; want trusted: %t", i, got.Release, got.ReleasedFrom, got.Live(), test.want)
		}
	}
}

// An owner reference that contradicts the caches is reported once per Snapshot. Other references
// are not reported.
func TestWrongOwners(t *testing.T) {
	w := clustertest.NewWorld(t)
	w.Build("node sp spot m/a\ndeployment web 1 sp\nstatefulset db 1 sp")
	for name, ref := range map[string]metav1.OwnerReference{
		"kind": clustertest.OwnedBy("example.com/v1/Foo", "web-r"), "group": clustertest.OwnedBy("example.com/v1/ReplicaSet", "web-r"), "level": clustertest.OwnedBy("ReplicaSet", "web"),
		"unknown": clustertest.OwnedBy("example.com/v1/Foo", "foo"), "not-yet": clustertest.OwnedBy("ReplicaSet", "other"),
	} {
		w.Put(clustertest.NewPod(name, ref))
	}
	renamed := clustertest.NewPod("name", clustertest.OwnedBy("ReplicaSet", "web-r"))
	renamed.OwnerReferences[0].Name = "other"
	elsewhere := clustertest.NewPod("elsewhere", clustertest.OwnedBy("StatefulSet", "db"))
	elsewhere.Namespace = "zoo"
	w.Put(renamed, elsewhere)
	want := []string{
		"group owner: ReplicaSet web-r has the UID of ReplicaSet shop/web-r",
		"kind owner: Foo web-r has the UID of ReplicaSet shop/web-r",
		"level owner: ReplicaSet web has the UID of Deployment shop/web",
		"name owner: ReplicaSet other has the UID of ReplicaSet shop/web-r",
		"elsewhere owner: StatefulSet db has the UID of StatefulSet shop/db",
	}
	for _, when := range []string{"first", "cached"} {
		s := w.Snapshot()
		var got []string
		for _, d := range s.Defects {
			got = append(got, fmt.Sprintf("%s %s: %s", d.Pod.Name, d.Kind, d.Why))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: defects (-want +got):\n%s", when, diff)
		}
		for _, name := range []string{"web-0", "db-0"} {
			if p := clustertest.Find(t, s, name); len(p.Revision.Pods) != 1 {
				t.Errorf("%s: the workload of %s has %d pods, want 1", when, name, len(p.Revision.Pods))
			}
		}
	}
}
