package migration_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

func TestWays(t *testing.T) {
	strategy := func(maxSurge intstr.IntOrString) appsv1.DeploymentStrategy {
		return appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &maxSurge},
		}
	}
	antiAffinity := func(topology string, matches map[string]string, namespaces ...string) *v1.Affinity {
		return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: matches}, Namespaces: namespaces,
		}}}}
	}
	budget := func(matches map[string]string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: clustertest.Meta("pdb"),
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: matches}},
		}
	}
	for name, test := range map[string]struct {
		// given changes the objects of Deployment web and its pod.
		given func(*world)
		// wantNo is why no surge is possible; "" if one is.
		wantNo string
	}{
		"a Deployment":                           {given: func(*world) {}},
		"a bare ReplicaSet that selects by hash": {given: func(w *world) { w.replicaSets["web-1"].OwnerReferences = nil }},
		"a bare ReplicaSet": {
			given: func(w *world) {
				w.replicaSets["web-1"].OwnerReferences = nil
				delete(w.replicaSets["web-1"].Spec.Selector.MatchLabels, hashKey)
			},
			wantNo: "does not select by pod-template-hash",
		},
		"a ReplicaSet with another controller": {
			given: func(w *world) {
				w.replicaSets["web-1"].OwnerReferences[0].Kind, w.replicaSets["web-1"].OwnerReferences[0].Name = "Rollout", "rollout"
			},
			wantNo: "is not a Deployment",
		},
		"no longer of its revision": {given: func(w *world) { w.pods["web"].Labels[hashKey] = "debug" }, wantNo: "does not select by pod-template-hash"},
		"strategy Recreate":         {given: func(w *world) { w.deployments["web"].Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }, wantNo: "strategy allows no surge"},
		"maxSurge 0":                {given: func(w *world) { w.deployments["web"].Spec.Strategy = strategy(intstr.FromInt32(0)) }, wantNo: "strategy allows no surge"},
		"maxSurge 0%":               {given: func(w *world) { w.deployments["web"].Spec.Strategy = strategy(intstr.FromString("0%")) }, wantNo: "strategy allows no surge"},
		"maxSurge 1% of one":        {given: func(w *world) { w.deployments["web"].Spec.Strategy = strategy(intstr.FromString("1%")) }},
		"a rollout":                 {given: func(w *world) { w.deployments["web"].Generation = 1 }, wantNo: "a rollout is in progress"},
		"an annotation":             {given: func(w *world) { w.deployments["web"].Annotations = map[string]string{spot.SurgeAnnotation: "false"} }, wantNo: spot.SurgeAnnotation},
		"not ready":                 {given: func(w *world) { w.setReady(w.pods["web"], v1.ConditionFalse) }, wantNo: "not ready"},
		"a claim": {
			given: func(w *world) {
				w.pods["web"].Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}}
			},
			wantNo: "persistent volume",
		},
		"a ConfigMap": {given: func(w *world) {
			w.pods["web"].Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}}
		}},
		"a port of the node": {
			given: func(w *world) {
				w.pods["web"].Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}
			},
			wantNo: "host port",
		},
		"a port": {given: func(w *world) {
			w.pods["web"].Spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80}}}}
		}},
		"a Service that selects the revision": {given: func(w *world) { w.service(map[string]string{"app": "web", hashKey: "web-1"}) }, wantNo: "a Service selects"},
		"a Service that selects another revision": {
			given: func(w *world) {
				w.service(map[string]string{"app": "shop", hashKey: "web-1"})
				w.service(map[string]string{"app": "web"})
			},
		},
		"a budget of the revision": {
			given: func(w *world) {
				w.budgets = append(w.budgets, budget(map[string]string{hashKey: "web-1"}))
			},
			wantNo: "PodDisruptionBudget pdb selects",
		},
		"a budget":                         {given: func(w *world) { w.budgets = append(w.budgets, budget(map[string]string{"app": "web"})) }},
		"a DaemonSet that selects the app": {given: func(w *world) { w.daemonSet("agent", "web") }, wantNo: "DaemonSet agent would adopt it"},
		"a DaemonSet of another app":       {given: func(w *world) { w.daemonSet("agent", "agent") }},
		"one per zone": {
			given: func(w *world) {
				w.pods["web"].Spec.Affinity = antiAffinity(v1.LabelTopologyZone, map[string]string{"app": "web"})
			},
			wantNo: "anti-affinity forbids two in one topology.kubernetes.io/zone",
		},
		"one of a revision per zone": {
			given: func(w *world) {
				w.pods["web"].Spec.Affinity = antiAffinity(v1.LabelTopologyZone, map[string]string{"app": "web", hashKey: "web-1"})
			},
		},
		"away from others": {given: func(w *world) {
			w.pods["web"].Spec.Affinity = antiAffinity(v1.LabelTopologyZone, map[string]string{"app": "db"})
		}},
		"away from pods of another namespace": {
			given: func(w *world) {
				w.pods["web"].Spec.Affinity = antiAffinity(v1.LabelTopologyZone, map[string]string{"app": "web"}, "staging")
			},
		},
		"one per host": {given: func(w *world) {
			w.pods["web"].Spec.Affinity = antiAffinity(v1.LabelHostname, map[string]string{"app": "web"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			w.pod("web", w.replicaSets["web-1"], "reclaimed")
			test.given(w)
			w.sync()
			s := w.snapshot()
			actions := migration.Plan(s, &room{left: 1}, moves(s, migration.Interruption, w.now.Add(2*time.Minute), "web"), settings, nil)
			want := "release web by surge"
			if test.wantNo != "" {
				want = "evict web by evict"
			}
			if len(actions) != 1 || describe(actions)[0] != want || !strings.Contains(actions[0].Why, test.wantNo) {
				t.Errorf("%v: %+v, want %s because %q", describe(actions), actions, want, test.wantNo)
			}
		})
	}
}

// A pod with thousands of terms of anti-affinity is not moved by surge. Otherwise the planner would
// parse each term, for each pod, in each round.
func TestSurgeOfManyTerms(t *testing.T) {
	for terms, surges := range map[int]bool{0: true, 90: true, 10000: false} {
		w := newWorld(t)
		w.deployment("web", 1)
		a := &v1.PodAntiAffinity{}
		for i := range terms {
			a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution, v1.PodAffinityTerm{
				TopologyKey: "z", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpExists}}}})
		}
		w.pod("web", w.replicaSets["web-1"], "reclaimed").Spec.Affinity = &v1.Affinity{PodAntiAffinity: a}
		w.sync()
		s := w.snapshot()
		no := migration.NoSurgeReason(s)
		if why := no(s.Pods[0]); (why == "") != surges {
			t.Errorf("%d terms: no surge because %q, want surge %t", terms, why, surges)
		}
		if got := testing.AllocsPerRun(1, func() { no(s.Pods[0]) }); got > 2000 {
			t.Errorf("%d terms: %.0f allocations for one pod", terms, got)
		}
	}
}

// A pod that asked not to be disrupted gets a deletion cost when it is restored: its ReplicaSet
// then has one pod too many, and deletes another.
func TestRestoredPodIsSpared(t *testing.T) {
	for name, test := range map[string]struct {
		annotations  map[string]string
		byReplicaSet bool
		want         map[string]string
	}{
		"not protected": {},
		"protected": {annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true"},
			want: map[string]string{v1.PodDeletionCost: "2000", spot.DeletionCostAnnotation: "2000"}},
		"protected, of a bare ReplicaSet": {annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true"}, byReplicaSet: true,
			want: map[string]string{v1.PodDeletionCost: "2000", spot.DeletionCostAnnotation: "2000"}},
		"protected, with the controller's cost": {annotations: map[string]string{
			"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", v1.PodDeletionCost: "1000", spot.DeletionCostAnnotation: "1000"},
			want: map[string]string{v1.PodDeletionCost: "2000", spot.DeletionCostAnnotation: "2000"}},
		"protected, with the user's cost": {annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true", v1.PodDeletionCost: "5"},
			want: map[string]string{v1.PodDeletionCost: "5"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.calm = true
			w.deployment("web", 1)
			pod := w.releasedFor(w.pod("old", w.replicaSets["web-1"], "remaining"), migration.Drain, time.Second)
			if !test.byReplicaSet {
				handOver(w)
			}
			maps.Copy(pod.Annotations, test.annotations)
			w.sync()
			b := newBench(w, false)
			b.round(0)
			got := map[string]string{}
			for _, key := range []string{v1.PodDeletionCost, spot.DeletionCostAnnotation} {
				if value, ok := w.pods["old"].Annotations[key]; ok {
					got[key] = value
				}
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" || w.pods["old"].Labels[hashKey] != "web-1" {
				t.Errorf("label %s, costs (-want +got):\n%s", w.pods["old"].Labels[hashKey], diff)
			}
		})
	}
}

// A pod that cannot surge, and whose template requests more than the pod, is not evicted
// voluntarily. The room of a successor is sought for what it requests.
func TestLargerSuccessor(t *testing.T) {
	const larger = "its owner's template requests more than the pod uses, and no surge is possible: it does not belong to a ReplicaSet"
	for name, test := range map[string]struct {
		template string // CPUs; the pod requests 1
		reason   migration.Reason
		deadline time.Duration // 0: none
		lower    string        // another workload
		want     []string
		wantWhy  string
	}{
		"equal": {template: "1", reason: migration.Heal, want: []string{"evict db-0 by evict"},
			wantWhy: "by requests, node od has room for a replacement; no surge: it does not belong to a ReplicaSet"},
		"larger":                 {template: "2", reason: migration.Heal, want: []string{"stay db-0 by evict"}, wantWhy: larger},
		"smaller":                {template: "500m", reason: migration.Heal, want: []string{"evict db-0 by evict"}, wantWhy: "by requests, node od has room for a replacement; no surge: it does not belong to a ReplicaSet"},
		"larger, advisory":       {template: "2", reason: migration.Advisory, want: []string{"stay db-0 by evict"}, wantWhy: larger},
		"larger, with a request": {template: "2", reason: migration.Requested, want: []string{"evict db-0 by evict"}, wantWhy: "by requests, node od has room for a replacement; no surge: it does not belong to a ReplicaSet"},
		"larger, with a deadline": {template: "2", reason: migration.Interruption, deadline: 2 * time.Minute, want: []string{"evict db-0 by evict"},
			wantWhy: "by requests, node od has room for a replacement; no surge: it does not belong to a ReplicaSet"},
		"after preemption": {template: "1", reason: migration.Heal, lower: "deployment room 1 od profile=other priority=-1 cpu=4", want: []string{"evict db-0 by evict"},
			wantWhy: "by requests, node od has room for a replacement " + simulation.AfterPlaceholders + "; no surge: it does not belong to a ReplicaSet"},
		"an assignment preempts no working pod": {template: "1", reason: migration.Assign, lower: "deployment app 1 od profile=other priority=1 cpu=4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			w.Build("node od on-demand\nnode sp spot\nstatefulset db 1 sp priority=5\n" + test.lower)
			w.Pods["db-0"].Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(clustertest.Now.Add(-time.Hour))}}
			s := w.Snapshot()
			set := clustertest.Find(t, s, "db-0").Workload.StatefulSet.DeepCopy()
			set.Spec.Template.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(test.template)
			w.Put(set)
			s = w.Snapshot()
			var deadline time.Time
			if test.deadline > 0 {
				deadline = s.Now.Add(test.deadline)
			}
			actions := migration.Plan(s, simulation.NewRoom(s), moves(s, test.reason, deadline, "db-0"), settings, nil)
			if diff := cmp.Diff(test.want, describe(actions)); diff != "" {
				t.Fatalf("actions (-want +got):\n%s", diff)
			}
			if len(actions) > 0 && actions[0].Why != test.wantWhy {
				t.Errorf("why %q, want %q", actions[0].Why, test.wantWhy)
			}
		})
	}
}
