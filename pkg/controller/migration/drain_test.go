package migration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// On a node that is being drained, the controller releases pods that the drain would wait for, and
// pods whose workload would have no ready replica.
func TestBeginDrain(t *testing.T) {
	for name, test := range map[string]struct {
		given        func(*world)
		full         bool
		provisioning []migration.Reason
		want         []string
	}{
		"a singleton whose budget allows nothing": {func(w *world) { w.deployment("web", 1); w.budget("web", 1) }, false, nil, []string{"release web-0 by surge"}},
		"a singleton without a budget":            {func(w *world) { w.deployment("web", 1) }, false, nil, []string{"release web-0 by surge"}},
		"a budget that allows its eviction": {func(w *world) {
			w.deployment("web", 2)
			w.budget("web", 1)
			w.pod("web-1", w.replicaSets["web-1"], "remaining")
		}, false, nil, nil},
		"a budget that does not": {func(w *world) {
			w.deployment("web", 2)
			w.budget("web", 2)
			w.pod("web-1", w.replicaSets["web-1"], "remaining")
		}, false, nil, []string{"release web-0 by surge"}},
		"no budget, and another replica": {func(w *world) {
			w.deployment("web", 2)
			w.pod("web-1", w.replicaSets["web-1"], "remaining")
		}, false, nil, nil},
		"no budget, and another replica is not ready": {func(w *world) {
			w.deployment("web", 2)
			w.setReady(w.pod("web-1", w.replicaSets["web-1"], "remaining"), v1.ConditionFalse)
		}, false, nil, []string{"release web-0 by surge"}},
		"two budgets": {func(w *world) { w.deployment("web", 1); w.budget("web", 1); w.budget("web", 1) }, false, nil, nil},
		"no surge": {func(w *world) {
			w.deployment("web", 1).Annotations = map[string]string{spot.SurgeAnnotation: "false"}
		}, false, nil, []string{"stay web-0 by evict"}},
		"no room":                                {func(w *world) { w.deployment("web", 1) }, true, nil, []string{"stay web-0"}},
		"no room, and an autoscaler adds a node": {func(w *world) { w.deployment("web", 1) }, true, []migration.Reason{migration.Drain}, []string{"release web-0 by surge"}},
		"no room, and no other node can run it":  {func(w *world) { w.deployment("web", 1) }, true, []migration.Reason{migration.Drain}, []string{"stay web-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.calm, w.drained = true, []string{"reclaimed"}
			test.given(w)
			pod := w.pod("web-0", w.replicaSets["web-1"], "reclaimed")
			if name == "no room, and no other node can run it" {
				pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: "reclaimed"}
			}
			w.sync()
			s := w.snapshot()
			requested := moves(s, migration.Drain, time.Time{}, "web-0")
			requested[0].OnlySurge = true
			settings, room := settings, &room{left: 10}
			settings.ProvisionFor = test.provisioning
			if test.full {
				room.left = 0
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, room, requested, settings, nil)))
		})
	}
}

// If all serving replicas of a workload are on nodes that do not remain, one is replaced first.
func TestDrainOfAllReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		// given may change a Deployment of three, whose pods are on two nodes that are drained.
		given    func(*world)
		moves    []string // all pods if nil
		progress map[string]migration.PodProgress
		want     []string
	}{
		"no budget":                      {want: []string{"release web-0 by surge"}},
		"a budget that allows evictions": {given: func(w *world) { w.budget("web", 1) }, want: []string{"release web-0 by surge"}},
		"a budget that allows none": {given: func(w *world) { w.budget("web", 3) },
			want: []string{"release web-0 by surge", "release web-1 by surge", "release web-2 by surge"}},
		"several budgets":                     {given: func(w *world) { w.budget("web", 1); w.budget("web", 1) }},
		"a replica on a node that remains":    {given: func(w *world) { w.pod("web-3", w.replicaSets["web-1"], "remaining") }},
		"that replica is not ready":           {given: func(w *world) { w.setReady(w.pod("web-3", w.replicaSets["web-1"], "remaining"), v1.ConditionFalse) }, want: []string{"release web-0 by surge"}},
		"that replica is about to be removed": {given: func(w *world) { w.pod("web-3", w.replicaSets["web-1"], "remaining") }, progress: map[string]migration.PodProgress{"web-3": {InFlight: migration.EvictPod}}, want: []string{"release web-0 by surge"}},
		"that node is cordoned": {given: func(w *world) {
			w.pod("web-3", w.replicaSets["web-1"], "remaining")
			w.nodes["remaining"].Spec.Unschedulable = true
		}, want: []string{"release web-0 by surge"}},
		"a replica on a node that is reclaimed": {given: func(w *world) {
			w.node("dying")
			w.pod("web-3", w.replicaSets["web-1"], "dying")
			w.reclaimed = []string{"dying"}
		}, want: []string{"release web-0 by surge"}},
		"one is released": {given: func(w *world) { w.releasedFor(w.pods["web-1"], migration.Drain, time.Second) }},
		"one is released, and its replacement is on a drained node": {given: func(w *world) {
			w.releasedFor(w.pods["web-1"], migration.Drain, time.Second)
			w.pod("web-3", w.replicaSets["web-1"], "drained")
		}},
		"one is being released":                 {progress: map[string]migration.PodProgress{"web-1": {InFlight: migration.Release}}},
		"the first is not evicted by the drain": {moves: []string{"web-1", "web-2"}, want: []string{"release web-1 by surge"}},
		"the first cannot be released":          {progress: map[string]migration.PodProgress{"web-0": {Unreleasable: true}}, want: []string{"release web-1 by surge"}},
		"the first is not ready":                {given: func(w *world) { w.setReady(w.pods["web-0"], v1.ConditionFalse) }, want: []string{"release web-1 by surge"}},
		"none can be released": {given: func(w *world) { w.deployments["web"].Annotations = map[string]string{spot.SurgeAnnotation: "false"} },
			want: []string{"stay web-0 by evict"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("drained")
			w.calm, w.drained = true, []string{"reclaimed", "drained"}
			w.deployment("web", 3)
			for i, node := range []string{"reclaimed", "drained", "drained"} {
				w.pod(fmt.Sprintf("web-%d", i), w.replicaSets["web-1"], node)
			}
			if test.given != nil {
				test.given(w)
			}
			w.sync()
			s, progress := w.snapshot(), migration.Progress{}
			for name, known := range test.progress {
				progress[w.pods[name].UID] = known
			}
			if test.moves == nil {
				test.moves = []string{"web-0", "web-1", "web-2"}
			}
			requested := moves(s, migration.Drain, time.Time{}, test.moves...)
			for i := range requested {
				requested[i].OnlySurge = true
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: 10}, requested, settings, progress)))
		})
	}
}

// The replicas of an unknown workload, whose ReplicaSet is not in the caches, count too.
func TestDrainOfAnUnknownWorkload(t *testing.T) {
	for name, test := range map[string]struct {
		other string // the node of the other pod
		want  []string
	}{
		"all on drained nodes":             {"reclaimed", []string{"stay web-0 by evict"}},
		"a replica on a node that remains": {"remaining", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.calm, w.drained = true, []string{"reclaimed"}
			w.deployment("web", 2)
			w.pod("web-0", w.replicaSets["web-1"], "reclaimed")
			w.pod("web-1", w.replicaSets["web-1"], test.other)
			delete(w.replicaSets, "web-1")
			w.sync()
			s := w.snapshot()
			if s.Pods[0].Workload != nil {
				t.Fatal("the workload is known")
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: 10}, moves(s, migration.Drain, time.Time{}, "web-0"), settings, nil)))
		})
	}
}

// A replica that the same plan evicts from a node that remains does not count.
func TestDrainAfterTheEvictionOfTheLastReplica(t *testing.T) {
	w := newWorld(t)
	w.calm, w.drained = true, []string{"reclaimed"}
	w.deployment("web", 3)
	w.pod("web-0", w.replicaSets["web-1"], "remaining")
	w.pod("web-1", w.replicaSets["web-1"], "reclaimed")
	w.pod("web-2", w.replicaSets["web-1"], "reclaimed")
	w.sync()
	s := w.snapshot()
	requested := append(moves(s, migration.Requested, time.Time{}, "web-0"), moves(s, migration.Drain, time.Time{}, "web-1", "web-2")...)
	progress := migration.Progress{w.pods["web-0"].UID: {Unreleasable: true}} // it is evicted without a replacement
	want := []string{"evict web-0 by evict", "release web-1 by surge"}
	clustertest.Equal(t, "actions", want, describe(migration.Plan(s, &room{left: 10}, requested, settings, progress)))
}

// A pod that the draining client does not evict is replaced just in time before its node is
// terminated. The controller evicts it.
func TestDrainWithDeadline(t *testing.T) {
	const grace, timeout = 30 * time.Second, 2 * time.Minute
	for name, test := range map[string]struct {
		left               time.Duration
		released, replaced bool
		given              func(*world)
		want               []string
	}{
		"time is left":            {left: grace + timeout + time.Second},
		"just in time":            {left: grace + timeout, want: []string{"release web-0 by surge"}},
		"later":                   {left: grace + time.Second, want: []string{"release web-0 by surge"}},
		"the last moment":         {left: grace, want: []string{"delete web-0 by delete 30s"}},
		"released":                {left: grace + time.Second, released: true},
		"released, and replaced":  {left: grace + time.Second, released: true, replaced: true, want: []string{"evict web-0 by surge"}},
		"released, last moment":   {left: grace, released: true, want: []string{"delete web-0 by delete 30s"}},
		"a slow start takes time": {left: grace + timeout + time.Minute, given: func(w *world) { w.replicaSets["web-1"].Spec.MinReadySeconds = 60 }, want: []string{"release web-0 by surge"}},
		"it cannot be released": {left: grace + timeout, given: func(w *world) { w.deployments["web"].Annotations = map[string]string{spot.SurgeAnnotation: "false"} },
			want: []string{"stay web-0 by evict"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.calm, w.drained = true, []string{"reclaimed"}
			w.deployment("web", 1)
			pod := w.pod("web-0", w.replicaSets["web-1"], "reclaimed")
			if test.given != nil {
				test.given(w)
			}
			if test.released {
				w.releasedFor(pod, migration.Drain, 20*time.Minute)
			}
			if test.replaced {
				w.pod("web-1", w.replicaSets["web-1"], "remaining")
			}
			w.sync()
			s := w.snapshot()
			got := describe(migration.Plan(s, &room{left: 10}, moves(s, migration.Drain, w.now.Add(test.left), "web-0"), settings, nil))
			clustertest.Equal(t, "actions", test.want, got)
		})
	}
}

// A pod whose eviction is requested is released whatever PodDisruptionBudgets allow, and whether or
// not a drain of its node would wait for it. The controller evicts it when its replacement is
// ready, because the requester waits for that. The pod is restored if the request is withdrawn or
// no replacement becomes ready.
func TestRequested(t *testing.T) {
	for name, test := range map[string]struct {
		drained, requested, replaced bool
		releasedFor                  migration.Reason
		ago                          time.Duration
		want                         []string
	}{
		"requested":                       {requested: true, want: []string{"release web-0 by surge"}},
		"a replacement is not ready yet":  {releasedFor: migration.Requested, requested: true, ago: time.Minute},
		"a replacement is ready":          {releasedFor: migration.Requested, requested: true, replaced: true, want: []string{"evict web-0 by surge"}},
		"no replacement in time":          {releasedFor: migration.Requested, requested: true, ago: 2 * time.Minute, want: []string{"restore web-0 by surge"}},
		"cancelled":                       {releasedFor: migration.Requested, ago: time.Second, want: []string{"restore web-0 by surge"}},
		"cancelled, with the replacement": {releasedFor: migration.Requested, replaced: true, want: []string{"restore web-0 by surge"}},

		"the drain need not wait":                    {drained: true, requested: true, want: []string{"release web-0 by surge"}},
		"the drain need not wait, and not requested": {drained: true},
		"released for the drain":                     {drained: true, releasedFor: migration.Drain, ago: time.Second, requested: true},
		"released for the drain, and replaced": {
			drained: true, releasedFor: migration.Drain, ago: time.Second, requested: true, replaced: true, want: []string{"evict web-0 by surge"}},
		"released for the request, and replaced": {
			drained: true, releasedFor: migration.Requested, ago: time.Second, requested: true, replaced: true, want: []string{"evict web-0 by surge"}},
		"the request is withdrawn": {
			drained: true, releasedFor: migration.Requested, ago: time.Second, replaced: true, want: []string{"restore web-0 by surge"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.calm, w.drained = true, []string{"reclaimed"}
			w.deployment("web", 2)
			pod := w.pod("web-0", w.replicaSets["web-1"], "reclaimed")
			w.pod("web-1", w.replicaSets["web-1"], "remaining")
			if test.releasedFor != "" {
				w.releasedFor(pod, test.releasedFor, test.ago)
			}
			if test.replaced {
				w.pod("web-2", w.replicaSets["web-1"], "remaining")
			}
			w.sync()
			s := w.snapshot()
			var requested []migration.Move
			if test.drained {
				requested = moves(s, migration.Drain, time.Time{}, "web-0")
			}
			if test.requested {
				requested = append(requested, moves(s, migration.Requested, time.Time{}, "web-0")...)
			}
			for i := range requested {
				requested[i].OnlySurge = true
			}
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: 10}, requested, settings, nil)))
		})
	}
}

// The draining client evicts a pod that was released for the drain. The pod is restored if the
// drain ends, or if no replacement becomes ready. A replacement on a new node may take longer to
// start than a pod usually waits for its eviction.
func TestFinishDrain(t *testing.T) {
	const drained, reclaimed = "drained", "reclaimed"
	const startup = 15 * time.Minute
	for name, test := range map[string]struct {
		node     string
		ago      time.Duration
		replaced bool
		startup  time.Duration // of a new node
		want     []string
	}{
		"a replacement is ready":                {drained, time.Minute, true, 0, nil},
		"a replacement is not ready yet":        {drained, time.Minute, false, 0, nil},
		"no replacement in time":                {drained, 2 * time.Minute, false, 0, []string{"restore web-0 by surge"}},
		"ready, not evicted yet":                {drained, 10*time.Minute - time.Second, true, 0, nil},
		"ready, not evicted in time":            {drained, 10 * time.Minute, true, 0, []string{"restore web-0 by surge"}},
		"the drain ended":                       {"", time.Second, true, 0, []string{"restore web-0 by surge"}},
		"the drain ended before a replacement":  {"", time.Second, false, 0, []string{"restore web-0 by surge"}},
		"reclaimed, and a replacement is ready": {reclaimed, time.Second, true, 0, []string{"evict web-0 by surge"}},

		"a slow node, not ready yet":              {drained, 10 * time.Minute, false, startup, nil},
		"a slow node, ready at last":              {drained, startup - time.Second, true, startup, nil},
		"a slow node, not ready in time":          {drained, startup, false, startup, []string{"restore web-0 by surge"}},
		"a slow node, ready, not evicted in time": {drained, startup + time.Minute, true, startup, []string{"restore web-0 by surge"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.calm, w.drained = true, []string{"reclaimed"}
			w.deployment("web", 1)
			w.releasedFor(w.pod("web-0", w.replicaSets["web-1"], "reclaimed"), migration.Drain, test.ago)
			if test.replaced {
				w.pod("web-1", w.replicaSets["web-1"], "remaining")
			}
			w.sync()
			s := w.snapshot()
			var requested []migration.Move
			switch test.node {
			case drained:
				requested = moves(s, migration.Drain, time.Time{}, "web-0")
			case reclaimed:
				requested = moves(s, migration.Interruption, w.now.Add(time.Minute), "web-0")
			}
			settings := settings
			settings.ProvisionFor, settings.NodeStartup = []migration.Reason{migration.Drain}, test.startup
			clustertest.Equal(t, "actions", test.want, describe(migration.Plan(s, &room{left: 10}, requested, settings, nil)))
		})
	}
}

// A PodDisruptionBudget may select one pod of a ReplicaSet only, such as the leader. It decides
// about this pod and about no other.
func TestBudgetOfTheLeader(t *testing.T) {
	for _, leader := range []string{"web-a", "web-b"} {
		w := newWorld(t)
		w.calm = true
		w.deployment("web", 3)
		w.pod("web-a", w.replicaSets["web-1"], "reclaimed")
		w.pod("web-b", w.replicaSets["web-1"], "reclaimed")
		w.pod("web-z", w.replicaSets["web-1"], "remaining")
		w.pods[leader].Labels["role"] = "leader"
		w.budget("web", 1)
		w.budgets[0].Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "leader"}}
		w.sync()
		s := w.snapshot()
		s.Budgets[namespace][0].Status.DisruptionsAllowed = 0
		got := describe(migration.Plan(s, &room{left: 10}, moves(s, migration.Drain, time.Time{}, "web-a", "web-b"), settings, nil))
		if want := []string{"release " + leader + " by surge"}; !slices.Equal(got, want) {
			t.Errorf("the leader is %s: %v, want %v", leader, got, want)
		}
	}
}
