package migration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// recorder records events as "reason kind-of-object".
type recorder struct {
	mu       sync.Mutex
	reported []string
	notes    []string // of the reported events
}

func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := strings.TrimPrefix(fmt.Sprintf("%T", regarding), "*v1.")
	if ref, ok := regarding.(*v1.ObjectReference); ok {
		kind = ref.Kind
	}
	r.reported = append(r.reported, reason+" "+kind)
	r.notes = append(r.notes, fmt.Sprintf(note, args...))
}

// quiet is a context that logs nothing.
var quiet = klog.NewContext(context.Background(), klog.Logger{})

// bench is an Executor with a world as a mock API server.
type bench struct {
	*world
	*recorder
	clock    *clocktesting.FakePassiveClock
	executor *execution.Executor
	// unconfirmed: the breaker is open for the moves of second.
	unconfirmed bool
}

func newBench(w *world, dryRun bool) *bench {
	b := &bench{world: w, recorder: &recorder{}, clock: clocktesting.NewFakePassiveClock(w.now)}
	b.executor = execution.New(w.client(), b.recorder, b.clock, execution.Settings{
		Concurrency: 2, RequestTimeout: time.Second, DryRun: dryRun,
	})
	return b
}

// round plans the moves of the named pods, performs the actions and waits for them.
func (b *bench) round(deadline time.Duration, names ...string) {
	s := b.snapshot()
	var at time.Time
	reason := migration.Heal
	if deadline > 0 {
		at, reason = start.Add(deadline), migration.Interruption
	}
	b.executor.Do(quiet, migration.Plan(s, &room{left: 10}, moves(s, reason, at, names...), settings, b.executor.Observe(s)))
	b.executor.Wait()
}

func (b *bench) pass(d time.Duration) {
	b.now = b.now.Add(d)
	b.clock.SetTime(b.now)
}

func (b *bench) want(t *testing.T, log, events []string) {
	t.Helper()
	clustertest.Equal(t, "requests", log, b.log)
	clustertest.Equal(t, "events", events, b.reported)
}

// TestSurge moves a singleton by surge, step by step.
func TestSurge(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.pod("old", w.replicaSets["web-1"], "reclaimed")
	w.budget("web", 1)
	w.sync()
	b := newBench(w, false)
	for range 3 { // released once, however often it is planned before the caches show it
		b.round(2*time.Minute, "old")
	}
	var release snapshot.Release
	unmarshal(t, w.pods["old"].Annotations[spot.ReleasedAnnotation], &release)
	want := snapshot.Release{
		ReplicaSet: "web-1", ReplicaSetUID: w.replicaSets["web-1"].UID, Pod: w.pods["old"].UID, Hash: "web-1", Reason: string(migration.Interruption), At: start,
	}
	clustertest.Equal(t, "release", want, release)
	w.control()
	w.sync()
	b.round(2*time.Minute, "old")
	w.startPods()
	w.sync()
	for range 3 {
		b.round(2*time.Minute, "old")
	}
	w.sync()
	b.round(2*time.Minute, "old")
	b.want(t, []string{"patch old", "evict old"}, []string{"ReleasedToMove Pod", "MovingPods Deployment", "EvictedToMove Pod"})
	w.endPods()
	w.control()
	w.sync()
	b.round(2 * time.Minute)
	if len(w.pods) != 1 || len(w.log) != 2 {
		t.Errorf("%d pods, want the replacement only; requests %v", len(w.pods), w.log)
	}
}

// TestAnswers checks, for each answer of the API server, the events and the time of the next
// attempt: at once, later or never.
func TestAnswers(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	several := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
	for name, test := range map[string]struct {
		verb string
		err  error
		// done: the API server performs the request, and its answer is lost.
		done bool
		// wantTries are the requests in nine rounds: four at once, one after 250 ms, and four after
		// 10 s each.
		wantTries int
		wantTold  []string
		wantLog   []string
	}{
		"429": {
			verb: "evict", err: tooManyRequests(), wantTries: 6, wantTold: []string{"EvictionBlocked Pod"},
		},
		"429 of a busy server": {verb: "evict", err: apierrors.NewTooManyRequests("busy", 1), wantTries: 6},
		"404":                  {verb: "evict", err: apierrors.NewNotFound(pods, "db-0"), wantTries: 2},
		"409":                  {verb: "evict", err: apierrors.NewConflict(pods, "db-0", errors.New("uid")), wantTries: 6},
		"500, several budgets": {verb: "evict", err: several, wantTries: 6, wantTold: []string{"EvictionBlocked Pod"}},
		"500":                  {verb: "evict", err: apierrors.NewInternalError(errors.New("etcd")), wantTries: 6},
		"504":                  {verb: "evict", err: apierrors.NewTimeoutError("conflicts", 10), wantTries: 6},
		"time-out, not done":   {verb: "evict", err: context.DeadlineExceeded, wantTries: 6},
		"time-out, done":       {verb: "evict", err: context.DeadlineExceeded, done: true, wantTries: 1, wantLog: []string{"evict db-0"}},
		"404 before":           {verb: "get", err: apierrors.NewNotFound(pods, "db-0"), wantTries: 2},
		"time-out before":      {verb: "get", err: context.DeadlineExceeded, wantTries: 6},
		"forbidden": {verb: "evict", err: apierrors.NewForbidden(pods, "db-0", errors.New("no")), wantTries: 6,
			wantTold: []string{"EvictionBlocked Pod", "EvictionBlocked StatefulSet"}}, // after 10 s
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
			w.sync()
			tries := 0
			w.fail = func(verb, _, _ string) (error, bool) {
				if verb != test.verb {
					return nil, false
				}
				tries++
				return test.err, !test.done
			}
			b := newBench(w, false)
			for range 4 {
				b.round(10*time.Minute, "db-0")
			}
			b.pass(250 * time.Millisecond)
			b.round(10*time.Minute, "db-0")
			for range 4 {
				b.pass(10 * time.Second)
				b.round(10*time.Minute, "db-0")
			}
			if tries != test.wantTries {
				t.Errorf("%d tries, want %d", tries, test.wantTries)
			}
			b.want(t, test.wantLog, test.wantTold)
		})
	}
}

// refuseEvictions makes the API server refuse all evictions because of a PodDisruptionBudget. It
// returns the times of the requests, in seconds.
func (w *world) refuseEvictions() *[]float64 {
	at := &[]float64{}
	w.fail = func(verb, _, _ string) (error, bool) {
		if verb != "evict" {
			return nil, false
		}
		*at = append(*at, w.now.Sub(start).Seconds())
		return tooManyRequests(), true
	}
	return at
}

// An eviction that the PodDisruptionBudget would refuse is requested when the caches show that it
// is allowed. The caches may be stale, so it is also requested from time to time for one pod of the
// budget, and at least once before the pod is deleted.
func TestWaitsForItsBudget(t *testing.T) {
	for name, test := range map[string]struct {
		notice time.Duration
		// In the caches, the PodDisruptionBudget allows an eviction before until and after from.
		// The API server never allows one.
		until, from time.Duration
		want        []float64 // times of the eviction requests, in seconds
	}{
		"never":                     {10 * time.Minute, 0, time.Hour, []float64{10}},
		"from 20 s on":              {10 * time.Minute, 0, 20 * time.Second, []float64{10, 20, 20.5, 21.5, 23.5}},
		"from 23 s on":              {10 * time.Minute, 0, 23 * time.Second, []float64{10, 23, 23.5, 24.5}},
		"until 1 s and from 8 s on": {10 * time.Minute, time.Second, 8 * time.Second, []float64{0, 0.25, 0.75, 8, 10, 14, 22}},
		// the grace period of the pod is 30 s
		"never, with little time left": {38 * time.Second, 0, time.Hour, []float64{2.75}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
			w.budget("db", 1)
			w.sync()
			got := w.refuseEvictions()
			b := newBench(w, false)
			for ; w.now.Sub(start) < 25*time.Second; b.pass(250 * time.Millisecond) {
				at := w.now.Sub(start)
				w.seen.budgets[0].Status.DisruptionsAllowed = 0
				if at < test.until || at >= test.from {
					w.seen.budgets[0].Status.DisruptionsAllowed = 1
				}
				b.round(test.notice, "db-0")
			}
			clustertest.Equal(t, "requested at", test.want, *got)
		})
	}
}

// While the caches show that a PodDisruptionBudget allows no eviction, one of its pods is enough to
// find out that they are stale. In a mass reclaim, a request for each pod would delay evictions
// that can succeed.
func TestOnePodFindsStaleBudget(t *testing.T) {
	w := newWorld(t)
	names := []string{"db-0", "db-1", "db-2"}
	for set := w.statefulSet("db", 3); len(w.pods) < len(names); {
		w.pod(names[len(w.pods)], set, "reclaimed")
	}
	w.budget("db", 3)
	w.sync()
	got := w.refuseEvictions()
	b := newBench(w, false)
	for ; w.now.Sub(start) < 45*time.Second; b.pass(250 * time.Millisecond) {
		b.round(10*time.Minute, names...)
	}
	clustertest.Equal(t, "requested at", []float64{10, 40}, *got)
}

// No eviction is requested for a new pod with the same name. The PodDisruptionBudget would be
// charged in vain.
func TestNewPodWithSameName(t *testing.T) {
	w := newWorld(t)
	set := w.statefulSet("db", 1)
	w.pod("db-0", set, "reclaimed")
	w.sync()
	w.pod("db-0", set, "remaining")
	// it is not deleted either
	for _, deadline := range []time.Duration{10 * time.Minute, time.Second} {
		requested := map[string]int{}
		w.fail = func(verb, _, _ string) (error, bool) { requested[verb]++; return nil, false }
		b := newBench(w, false)
		for range 3 {
			b.round(deadline, "db-0")
			b.pass(time.Second)
		}
		b.want(t, nil, nil)
		if requested["get"] != 1 || requested["evict"] != 0 || requested["delete"] > 1 {
			t.Errorf("requests %v, want one read only", requested)
		}
	}
}

// The last moment does not wait for the retry of a refused eviction.
func TestDeadlineOvertakesPause(t *testing.T) {
	w := newWorld(t)
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed").Spec.TerminationGracePeriodSeconds = new(int64(5))
	w.budget("db", 1)
	w.sync()
	b := newBench(w, false)
	for range 6 {
		b.round(30*time.Second, "db-0")
		b.pass(4 * time.Second)
	}
	b.want(t, nil, []string{"EvictionBlocked Pod"})
	b.round(30*time.Second, "db-0")
	b.pass(time.Second)
	b.round(30*time.Second, "db-0")
	b.round(30*time.Second, "db-0")
	b.want(t, []string{"delete db-0 5s"}, []string{"EvictionBlocked Pod", "DeletedAtDeadline Pod", "DeletedAtDeadline StatefulSet"})
}

// An object that is missing in the caches may exist. The executor asks the API server before it
// deletes: a pod is not deleted while its ReplicaSet, its Deployment, or a new ReplicaSet that
// would select it wants replicas.
func TestOrphansAreVerified(t *testing.T) {
	newReplicaSet := func(w *world) { w.replicaSet("web-1", "web", 1, nil) }
	scaled := func(w *world) { w.replicaSets["web-1"].Spec.Replicas = new(int32(0)) }
	selectsOther := func(w *world) { w.replicaSets["web-1"].Spec.Selector.MatchLabels["app"] = "other" }
	for name, test := range map[string]struct {
		// exists changes the owners. The caches lack the ReplicaSet, and in the caches the
		// Deployment is scaled to 0.
		exists  func(*world)
		changed func(*world)
	}{
		"gone":                          {changed: func(w *world) { delete(w.replicaSets, "web-1") }},
		"reclaimed":                     {changed: func(w *world) { w.replicaSets["web-1"].DeletionTimestamp = new(metav1.NewTime(start)) }},
		"another":                       {changed: func(w *world) { w.replicaSets["web-1"].UID = "another"; selectsOther(w) }},
		"idle":                          {changed: scaled},
		"a ReplicaSet of the same name": {newReplicaSet, scaled},
		"one that selects it no more":   {newReplicaSet, selectsOther},
		"its Deployment":                {handOver, func(w *world) { delete(w.deployments, "web") }},
		"its Deployment, scaled to 0":   {handOver, func(w *world) { w.deployments["web"].Spec.Replicas = new(int32(0)) }},
		"its Deployment, created again": {handOver, func(w *world) { w.deployments["web"].UID = "another" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			d := w.deployment("web", 1)
			w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), time.Second)
			if test.exists != nil {
				test.exists(w)
			}
			rs := w.replicaSets["web-1"]
			delete(w.replicaSets, "web-1")
			w.deployments["web"] = d.DeepCopy()
			w.deployments["web"].Spec.Replicas = new(int32(0))
			w.sync()
			w.deployments["web"] = d
			if !workload.ControlledByDeployment(w.pods["old"]) {
				w.replicaSets["web-1"] = rs
			}
			b := newBench(w, false)
			b.round(0)
			b.want(t, nil, nil)
			test.changed(w)
			b.pass(time.Second)
			b.round(0)
			b.want(t, []string{"delete old"}, []string{"DeletedOrphan Pod"})
		})
	}
}

// The release of a pod that was updated since has no effect. It is tried again with the updated
// pod.
func TestReleaseOfAnOlderPod(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	pod := w.pod("web", w.replicaSets["web-1"], "reclaimed")
	w.sync()
	w.touch(pod)
	b := newBench(w, false)
	b.round(2*time.Minute, "web")
	b.want(t, nil, nil)
	w.sync()
	b.pass(time.Second)
	b.round(2*time.Minute, "web")
	b.want(t, []string{"patch web"}, []string{"ReleasedToMove Pod", "MovingPods Deployment"})
}

func TestRestore(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), 2*time.Minute)
	w.sync()
	b := newBench(w, false)
	b.round(0)
	b.round(0)
	w.sync()
	b.round(0) // it waits for its adoption
	events := []string{"RestoredToReplicaSet Pod", "RestoredToReplicaSet Deployment"}
	b.want(t, []string{"patch old"}, events)
	w.control()
	for range 2 {
		w.sync()
		b.round(0)
	}
	b.want(t, []string{"patch old", "patch old"}, events)
	old := w.pods["old"]
	if _, ok := old.Annotations[spot.ReleasedAnnotation]; ok || old.Labels[hashKey] != "web-1" {
		t.Errorf("labels %v, annotations %v, want those from before the release", old.Labels, old.Annotations)
	}
}

// A released pod that its Deployment controls is restored in one request, with all its previous
// metadata.
func TestHandOver(t *testing.T) {
	w := newWorld(t)
	d := w.deployment("web", 1)
	pod := w.pod("old", w.replicaSets["web-1"], "reclaimed")
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other", Controller: ptr.To(false)}
	pod.OwnerReferences = append(pod.OwnerReferences, other)
	before := pod.DeepCopy()
	w.sync()
	b := newBench(w, false)
	b.round(2*time.Minute, "old")
	rs := before.OwnerReferences[0]
	rs.Controller = nil
	want := []metav1.OwnerReference{rs, other, {APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: d.UID, Controller: ptr.To(true)}}
	if diff := cmp.Diff(want, pod.OwnerReferences); diff != "" || pod.Labels[hashKey] != spot.ReleasedHash {
		t.Errorf("label %s, owners of the released pod (-want +got):\n%s", pod.Labels[hashKey], diff)
	}
	w.control() // a replacement that does not become ready
	w.sync()
	b.pass(2 * time.Minute)
	b.round(0)
	b.want(t, []string{"patch old", "patch old"}, []string{"ReleasedToMove Pod", "MovingPods Deployment", "RestoredToReplicaSet Pod", "RestoredToReplicaSet Deployment"})
	if diff := cmp.Diff(before.OwnerReferences, pod.OwnerReferences); diff != "" || len(pod.Annotations) > 0 || pod.Labels[hashKey] != "web-1" {
		t.Errorf("labels %v, annotations %v, owners of the restored pod (-want +got):\n%s", pod.Labels, pod.Annotations, diff)
	}
	for range 2 {
		w.control()
		w.sync()
		b.round(0)
	}
	if len(b.log) != 2 || len(w.pods) != 1 {
		t.Errorf("requests %q, %d pods, want nothing more to be done and one pod", b.log, len(w.pods))
	}
}

// The memory about a pod must not reference the Snapshot in which its move was planned.
func TestForgetsSnapshots(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), 2*time.Minute)
	w.sync()
	b := newBench(w, false)
	plan := func(ctx context.Context) weak.Pointer[snapshot.Pod] {
		s := w.snapshot()
		b.executor.Do(ctx, migration.Plan(s, &room{}, nil, settings, b.executor.Observe(s)))
		b.executor.Wait()
		return weak.Make(s.Pods[0])
	}
	gone := func(what string, pod weak.Pointer[snapshot.Pod]) {
		t.Helper()
		b.executor.Observe(w.snapshot())
		goruntime.GC()
		if pod.Value() != nil {
			t.Errorf("the pod whose move was %s is still in memory", what)
		}
	}
	done := plan(quiet)
	w.control()
	w.sync()
	gone("done", done)
	ended, end := context.WithCancel(quiet)
	end()
	queued := plan(ended)
	b.executor.Do(quiet, nil)
	gone("only queued", queued)
	goruntime.KeepAlive(b)
}

// A ReplicaSet that is deleted while a pod is restored never adopts the pod, and the garbage
// collector does not delete it.
func TestRestoreToDeletedReplicaSet(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(*world)
		wantLog       []string
	}{
		"before the request": {
			before:  func(w *world) { delete(w.replicaSets, "web-1") },
			wantLog: []string{"delete old"},
		},
		"before the adoption": {
			after:   func(w *world) { delete(w.replicaSets, "web-1") },
			wantLog: []string{"patch old", "delete old"},
		},
		"with its Deployment, before the adoption": {
			after:   func(w *world) { delete(w.deployments, "web"); delete(w.replicaSets, "web-1") },
			wantLog: []string{"patch old", "delete old"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), 2*time.Minute)
			w.sync()
			b := newBench(w, false)
			for _, step := range []func(*world){test.before, test.after} {
				if step != nil {
					step(w)
				}
				b.round(0)
			}
			w.control()
			w.sync()
			b.round(0)
			clustertest.Equal(t, "requests", test.wantLog, b.log)
		})
	}
}

func TestDryRun(t *testing.T) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.pod("web", w.replicaSets["web-1"], "reclaimed")
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	w.released(w.pod("old", w.replicaSets["web-1"], "reclaimed"), 0)
	w.sync()
	requested := 0
	w.fail = func(string, string, string) (error, bool) { requested++; return nil, false }
	b := newBench(w, true)
	before := counted(t)
	for range 3 {
		b.round(2*time.Minute, "web", "db-0")
		b.pass(time.Minute)
	}
	b.want(t, nil, nil)
	if requested != 0 {
		t.Errorf("%d requests, want none", requested)
	}
	want := map[string]float64{
		"surge interruption dry-run": 1, "evict interruption dry-run": 1, "surge heal dry-run": 1, "delete interruption dry-run": 2,
	}
	clustertest.Equal(t, "migrations", want, since(t, before))
}

// disrupted returns the pod's condition DisruptionTarget.
func disrupted(pod *v1.Pod) (found []v1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.DisruptionTarget {
			found = append(found, c)
		}
	}
	return found
}

// A pod that is deleted against its PodDisruptionBudget has the condition DisruptionTarget first. A
// failure to set the condition does not prevent the deletion.
func TestDisruptionTarget(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"set":       {want: 1},
		"forbidden": {err: apierrors.NewForbidden(pods, "db-0", errors.New("no right"))},
		"time-out":  {err: context.DeadlineExceeded},
		"gone":      {err: apierrors.NewNotFound(pods, "db-0")},
		"replaced":  {err: apierrors.NewConflict(pods, "db-0", errors.New("uid"))},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
			w.sync()
			marked := -1
			w.mayDelete = func(pod *v1.Pod) { marked = len(disrupted(pod)) }
			w.fail = func(verb, _, _ string) (error, bool) { return errOf(test.err, verb == "patch status"), true }
			b := newBench(w, false)
			b.round(30*time.Second, "db-0")
			if marked != test.want {
				t.Errorf("%d conditions when the pod was deleted, want %d", marked, test.want)
			}
			for _, c := range disrupted(w.pods["db-0"]) {
				if c.Status != v1.ConditionTrue || c.Reason != "SpotInterruption" || c.Message == "" || !c.LastTransitionTime.Time.Equal(w.now) {
					t.Errorf("%+v, want true since %s because of SpotInterruption", c, w.now)
				}
			}
			b.want(t, []string{"delete db-0 30s"}, []string{"DeletedAtDeadline Pod", "DeletedAtDeadline StatefulSet"})
		})
	}
}

func errOf(err error, applies bool) error {
	if applies {
		return err
	}
	return nil
}

// A pod that an eviction has marked is not marked again. A pod whose workload is gone is not
// marked.
func TestDisruptionTargetOnce(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue})
	w.deployment("web", 1)
	w.released(w.pod("left", w.replicaSets["web-1"], "remaining"), time.Second)
	delete(w.replicaSets, "web-1")
	w.sync()
	w.fail = func(verb, _, name string) (error, bool) {
		if verb == "patch status" {
			t.Errorf("%s is marked", name)
		}
		return nil, false
	}
	newBench(w, false).round(30*time.Second, "db-0")
	if len(w.log) != 2 {
		t.Errorf("requests %v, want two deletions", w.log)
	}
}
