package responder

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

const replacementTimeout = 2 * time.Minute

var now = clustertest.Now

// newPod returns a ready pod of a Deployment that can be replaced first.
func newPod() *snapshot.Pod {
	return clustertest.NewReplica("web", &snapshot.Node{Node: clustertest.NewNode("n", "spot", "m/a")})
}

// newEviction returns an Eviction of the pod in which this responder has been active for some time.
// beat, if not negative, is the age of its last heartbeat.
func newEviction(since, beat time.Duration) map[string]any {
	at := func(ago time.Duration) string { return now.Add(-ago).Format(time.RFC3339) }
	own := map[string]any{"name": spot.EvictionResponder, "startTime": at(since)}
	if beat >= 0 {
		own["heartbeatTime"] = at(beat)
	}
	return map[string]any{
		"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction",
		"metadata": map[string]any{"namespace": "shop", "name": "e", "uid": "e"},
		"spec":     map[string]any{"target": map[string]any{"pod": map[string]any{"name": "web-0", "uid": "web-0-uid"}}},
		"status": map[string]any{
			"targetResponders": []any{
				map[string]any{"name": spot.EvictionResponder, "priority": int64(10000), "state": "Active"},
				map[string]any{"name": "imperative-eviction.k8s.io/evictor", "priority": int64(100), "state": "Inactive"},
			},
			"responders": []any{own, map[string]any{"name": "imperative-eviction.k8s.io/evictor"}},
		},
	}
}

func TestNew(t *testing.T) {
	const starts = "its replacement starts; the pod is evicted when the replacement is ready"
	type answer struct {
		Moved, Requested, Done bool
		Message                string
	}
	moved, nothing := answer{Moved: true, Requested: true}, answer{}
	released := func(pod *snapshot.Pod) {
		pod.Release, pod.ReleasedFrom = &snapshot.Release{At: now, Reason: string(migration.Requested)}, pod.Revision
		pod.Workload, pod.Revision = nil, nil
	}
	state := func(value string) func(map[string]any) {
		return func(e map[string]any) {
			e["status"].(map[string]any)["targetResponders"].([]any)[0].(map[string]any)["state"] = value
		}
	}
	condition := func(name string) func(map[string]any) {
		return func(e map[string]any) {
			e["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": name, "status": "True"}}
		}
	}
	for name, test := range map[string]struct {
		since, beat time.Duration
		pod         func(*snapshot.Pod)
		eviction    func(map[string]any)
		want        answer
	}{
		"requested just now":             {beat: -1, want: moved},
		"no room in time":                {since: replacementTimeout, beat: -1, want: answer{Requested: true, Done: true, Message: "no replacement could start within 2m0s"}},
		"released, no heartbeat yet":     {beat: -1, pod: released, want: answer{Moved: true, Requested: true, Message: starts}},
		"released, recent heartbeat":     {beat: time.Minute, pod: released, want: moved},
		"released, old heartbeat":        {beat: heartbeatInterval, pod: released, want: answer{Moved: true, Requested: true, Message: starts}},
		"restored":                       {beat: time.Minute, want: answer{Requested: true, Done: true, Message: "its replacement was not ready in time"}},
		"released, but not in the cache": {since: 3 * time.Second, beat: 2 * time.Second, want: answer{Requested: true}},
		"responder inactive":             {beat: -1, eviction: state("Inactive"), want: answer{Requested: true}},
		"responder completed":            {beat: -1, eviction: state("Completed"), want: answer{Requested: true}},
		"cancelled":                      {beat: -1, eviction: condition("Failed"), want: nothing},
		"evicted":                        {beat: -1, eviction: condition("TargetEvicted"), want: nothing},
		"completion time set":            {beat: 0, eviction: func(e map[string]any) { ownOf(e)["completionTime"] = now.Format(time.RFC3339) }, want: answer{Requested: true}},
		"another responder's":            {beat: -1, eviction: func(e map[string]any) { ownOf(e)["name"] = "example.com/other" }, want: answer{Requested: true}},
		"a target of another kind":       {beat: -1, eviction: func(e map[string]any) { e["spec"] = map[string]any{"target": map[string]any{}} }, want: nothing},
		"invalid status":                 {beat: -1, eviction: func(e map[string]any) { e["status"] = "gone" }, want: nothing},
		"a pod of another namespace":     {beat: -1, pod: func(p *snapshot.Pod) { p.Namespace = "other" }, want: nothing},
		"another pod of that name":       {beat: -1, pod: func(p *snapshot.Pod) { p.UID = "q" }, want: nothing},
		"a pod that terminates":          {beat: -1, pod: func(p *snapshot.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }, want: nothing},
		"a namespace that is not selected": {beat: -1, pod: func(p *snapshot.Pod) { p.Namespace = "left-out" }, eviction: func(e map[string]any) { e["metadata"].(map[string]any)["namespace"] = "left-out" },
			want: answer{Requested: true, Done: true, Message: "the controller is configured not to move it"}},
		"a strategy without surge": {beat: -1, pod: func(p *snapshot.Pod) {
			p.Workload.Deployment.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		},
			want: answer{Requested: true, Done: true, Message: "it cannot be replaced before it is evicted: its Deployment's strategy allows no surge"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, object := newPod(), newEviction(test.since, test.beat)
			if test.pod != nil {
				test.pod(pod)
			}
			if test.eviction != nil {
				test.eviction(object)
			}
			s := &snapshot.Snapshot{Now: now, Pods: []*snapshot.Pod{pod}}
			moves, requested, responses := Plan(s, []*unstructured.Unstructured{{Object: object}},
				Settings{ReplacementTimeout: replacementTimeout, Selects: func(namespace string) bool { return namespace == "shop" }})
			got := answer{Moved: len(moves) > 0, Requested: requested[clustertest.UID("web-0")]}
			for _, r := range responses {
				got.Done, got.Message = r.Done, r.Message
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func ownOf(e map[string]any) map[string]any {
	return e["status"].(map[string]any)["responders"].([]any)[0].(map[string]any)
}

// TestApply: Apply writes only this responder's entry, and only its fields.
func TestApply(t *testing.T) {
	object := &unstructured.Unstructured{Object: newEviction(time.Minute, -1)}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), object)
	want := object.DeepCopy()
	r := Response{Eviction: object, Message: "why"}
	for _, r.Done = range []bool{false, true} {
		if err := r.Apply(t.Context(), client, now); err != nil {
			t.Fatal(err)
		}
		own := ownOf(want.Object)
		own["heartbeatTime"], own["message"] = now.Format(time.RFC3339), "why"
		if r.Done {
			own["completionTime"] = now.Format(time.RFC3339)
		}
		got, err := client.Resource(Resource).Namespace("shop").Get(t.Context(), "e", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clustertest.Equal(t, fmt.Sprintf("done %t", r.Done), want.Object, got.Object)
	}
}

// TestApplyWithClockBehind: the API server refuses times before the responder's start and before
// its last heartbeat.
func TestApplyWithClockBehind(t *testing.T) {
	at := func(after time.Duration) string { return now.Add(after).Format(time.RFC3339) }
	for name, test := range map[string]struct {
		own  map[string]any
		want string
	}{
		"started in this second":  {map[string]any{"startTime": at(0)}, at(0)},
		"start in the future":     {map[string]any{"startTime": at(3 * time.Second)}, at(3 * time.Second)},
		"heartbeat in the past":   {map[string]any{"startTime": at(-time.Minute), "heartbeatTime": at(-time.Second)}, at(0)},
		"heartbeat in the future": {map[string]any{"startTime": at(-time.Minute), "heartbeatTime": at(2 * time.Second)}, at(2 * time.Second)},
		"no start yet":            {map[string]any{"startTime": nil}, at(0)},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: newEviction(0, -1)}
			maps.Copy(ownOf(object.Object), test.own)
			client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), object)
			r := Response{Eviction: object, Message: "why", Done: true}
			if err := r.Apply(t.Context(), client, now.Add(time.Second/2)); err != nil {
				t.Fatal(err)
			}
			got, err := client.Resource(Resource).Namespace("shop").Get(t.Context(), "e", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"heartbeatTime", "completionTime"} {
				if is := ownOf(got.Object)[field]; is != test.want {
					t.Errorf("%s is %v, want %s", field, is, test.want)
				}
			}
		})
	}
}

// TestReleased: released pods stay released while the Evictions are not in the cache.
func TestReleased(t *testing.T) {
	pod, healed := newPod(), newPod()
	pod.Release = &snapshot.Release{At: now, Reason: string(migration.Requested)}
	healed.Release = &snapshot.Release{At: now, Reason: string(migration.Heal)}
	moves := Released(&snapshot.Snapshot{Now: now, Pods: []*snapshot.Pod{pod, healed, newPod()}})
	if len(moves) != 1 || moves[0].Pod != pod || moves[0].Reason != migration.Requested {
		t.Errorf("got %v, want the move of the first pod", moves)
	}
}

// Evictions that have ended are not decoded: Kubernetes keeps them for long, and a round must not
// wait for them.
func TestEndedEvictions(t *testing.T) {
	const n = 1000
	var all []*unstructured.Unstructured
	for i := range n {
		object := newEviction(time.Hour, time.Hour)
		object["metadata"].(map[string]any)["uid"] = fmt.Sprint(i)
		object["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": "TargetEvicted", "status": "True"}}
		all = append(all, &unstructured.Unstructured{Object: object})
	}
	s := &snapshot.Snapshot{Now: now, Pods: []*snapshot.Pod{newPod()}}
	if got := testing.AllocsPerRun(1, func() { Plan(s, all, Settings{ReplacementTimeout: replacementTimeout}) }); got > 3*n {
		t.Errorf("%.0f allocations for %d ended Evictions, want at most 3 for each", got, n)
	}
}
