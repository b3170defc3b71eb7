package answers_test

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

const (
	reclaimed = "node is being reclaimed"
	drained   = "node is being drained"
	settling  = "node has no capacity label yet and is too young to count as on-demand"
	held      = "node has no capacity label yet and is reserved for pods that wait for on-demand"
	waits     = " (waits for on-demand room)"
)

// usedUp returns the reason for a budget that is used up.
func usedUp(n, of int, revision string) string {
	return fmt.Sprintf("spot budget used up: %d of at most %d replicas of shop/%s run on spot%s", n, of, revision, waits)
}

// usedUpOnlySpot returns the reason for a pod that admits only spot, with exemptions ignored.
func usedUpOnlySpot(n, of int, revision string) string {
	return fmt.Sprintf("spot budget used up: %d of at most %d replicas of shop/%s run on spot; its own constraints admit only spot, "+
		"but exemptions are ignored (waits for room in the spot budget)", n, of, revision)
}

// floorMet returns the reason for on-demand nodes if the floor is met and overflow is Never.
func floorMet(floor int, revision string) string {
	return fmt.Sprintf("overflow Never: the floor of %d of shop/%s is met (waits for room on spot)", floor, revision)
}

// noOverflow are the default settings with overflow Never.
var noOverflow = strings.Replace(defaultSettings, "overflow=Allow", "overflow=Never", 1)

// withFloor returns the default settings with another floor.
func withFloor(value string) string {
	return "minOnDemand=" + value + " maxPerPool=no cap whenUnsatisfiable=DoNotSchedule fallbackAfter=never" + others
}

// cases returns new objects each time, because tests change them.
func cases() map[string]scenario {
	nodes := objects(onDemand("od"), spotNode("sp"))
	job2 := by("Job", "batch")
	return map[string]scenario{
		// Sources of the floor.
		"on-demand first, for the floor": {
			objects: objects(nodes, web(3, "sp")), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},
		"spot after the floor is met": {
			objects: objects(nodes, web(3, "sp", "od")), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"},
		},
		"the default floor": {
			objects: objects(nodes, web(3, "sp", "sp")), pod: next(),
			want: answers{"od": "", "sp": usedUp(2, 2, "web-1")}, first: []string{"od"},
		},
		"a count": {
			policy: "minOnDemand: 2", objects: objects(nodes, web(3, "sp")), pod: next(),
			want: answers{"od": "", "sp": usedUp(1, 1, "web-1")}, first: []string{"od"}, settings: withFloor("2"),
		},
		"a percentage is rounded up": {
			policy: "minOnDemand: 34%", objects: objects(nodes, web(3, "sp")), pod: next(),
			want: answers{"od": "", "sp": usedUp(1, 1, "web-1")}, first: []string{"od"}, settings: withFloor("34%"),
		},
		"an annotation on the owner": {
			objects: objects(nodes, webWith(spot.MinOnDemandAnnotation, "100%", 3)), pod: next(),
			want: answers{"od": "", "sp": usedUp(0, 0, "web-1")}, first: []string{"od"}, settings: withFloor("100%"),
		},
		"an annotation on the pod": {
			objects: objects(nodes, deployment("web", 3), revision("web", 1, 3),
				podOf(by("ReplicaSet", "web-1"), "a", on("sp"), withAnnotation(spot.MinOnDemandAnnotation, "2"))),
			pod:  next(withAnnotation(spot.MinOnDemandAnnotation, "2")),
			want: answers{"od": "", "sp": usedUp(1, 1, "web-1")}, first: []string{"od"}, settings: withFloor("2"),
		},
		"the owner's annotation wins over the pod's": {
			objects: objects(nodes, webWith(spot.MinOnDemandAnnotation, "0", 3)),
			pod:     next(withAnnotation(spot.MinOnDemandAnnotation, "3")),
			want:    answers{"od": "", "sp": ""}, first: []string{"sp"}, settings: withFloor("0"),
		},
		"an annotation that cannot be parsed": {
			objects: objects(nodes, webWith(spot.MinOnDemandAnnotation, "3O%", 3, "sp", "sp")), pod: next(),
			want: answers{"od": "", "sp": usedUp(2, 2, "web-1")}, first: []string{"od"},
		},
		"an annotation that is not stricter": {
			policy:  "annotationPolicy: StricterOnly, minOnDemand: 2",
			objects: objects(nodes, webWith(spot.MinOnDemandAnnotation, "1", 3, "sp")), pod: next(),
			want: answers{"od": "", "sp": usedUp(1, 1, "web-1")}, first: []string{"od"}, settings: withFloor("2"),
		},
		"an annotation that is ignored": {
			policy:  "annotationPolicy: Ignore",
			objects: objects(nodes, webWith(spot.MinOnDemandAnnotation, "3", 3, "sp")), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},
		"a rule": {
			policy: `rules: [{name: tiers, podSelector: {matchLabels: {tier: other}}, minOnDemand: 0},
				{name: critical, namespaces: [shop], minPriority: 1000, ownerKinds: [Deployment], minOnDemand: 100%, fallbackAfter: never}]`,
			objects: objects(nodes, web(3)), pod: next(func(p *v1.Pod) { p.Spec.Priority = ptr.To(int32(1000)) }),
			want: answers{"od": "", "sp": usedUp(0, 0, "web-1")}, first: []string{"od"}, settings: withFloor("100%"),
		},
		"a rule by QOS class and labels": {
			policy:  `minOnDemand: 100%, rules: [{name: cheap, qosClasses: [Burstable], podSelector: {matchLabels: {tier: cheap}}, minOnDemand: 0}]`,
			objects: objects(nodes, web(3)), pod: next(func(p *v1.Pod) {
				p.Labels["tier"], p.Status.QOSClass = "cheap", v1.PodQOSBurstable
			}),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"}, settings: withFloor("0"),
		},
		"fallback to come": {
			policy: "fallbackAfter: 5m", objects: objects(nodes, web(3, "sp", "sp")), pod: next(),
			want: answers{"od": "", "sp": "spot budget used up: 2 of at most 2 replicas of shop/web-1 run on spot " +
				"(waits for on-demand room, may run on any spot node after 5m)"},
			first: []string{"od"}, settings: "minOnDemand=1 maxPerPool=no cap whenUnsatisfiable=DoNotSchedule fallbackAfter=5m" + others,
		},
		"ScheduleAnyway": {
			policy:  "maxPerPool: 1",
			objects: objects(nodes, webWith(spot.WhenUnsatisfiableAnnotation, "ScheduleAnyway", 3, "sp", "sp")), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
			settings: "minOnDemand=1 maxPerPool=1 whenUnsatisfiable=ScheduleAnyway fallbackAfter=never" + others,
		},
		"a pod without a controller": {
			objects: nodes, pod: pod("alone"),
			want: answers{"od": "", "sp": usedUp(0, 0, "alone")}, first: []string{"od"},
		},
		"a Deployment of one": {
			objects: objects(nodes, web(1)), pod: next(),
			want: answers{"od": "", "sp": usedUp(0, 0, "web-1")}, first: []string{"od"},
		},

		// Kinds of owners.
		"a Job that retries": {
			policy: "minOnDemand: 100%", objects: objects(nodes, job("batch", 2), pods(job2, "sp")), pod: podOf(job2, "x"),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"}, settings: withFloor("0"),
		},
		"a Job that fails if one pod is lost": {
			objects: objects(nodes, job("batch", 2, func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To(int32(0)) })), pod: podOf(job2, "x"),
			want: answers{"od": "", "sp": usedUp(0, 0, "batch")}, first: []string{"od"}, settings: withFloor("100%"),
		},
		"a Job below its disruption limit": {
			policy: "disruptionLimit: 3", objects: objects(nodes, annotated(job("batch", 2), spot.DisruptionsAnnotation, "2")), pod: podOf(job2, "x"),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"},
			settings: withFloor("0") + " disruptionLimit=3 onDisruptionLimit=RequireOnDemand disruptions=2",
		},
		"a Job at its disruption limit": {
			policy: "disruptionLimit: 3", objects: objects(nodes, annotated(job("batch", 2), spot.DisruptionsAnnotation, "3")), pod: podOf(job2, "x"),
			want:  answers{"od": "", "sp": "disruption limit reached: after 3 disruptions, its pods run on on-demand" + waits},
			first: []string{"od"}, settings: withFloor("0") + " disruptionLimit=3 onDisruptionLimit=RequireOnDemand disruptions=3",
		},
		"a Job at its disruption limit of 1, with overflow Never": {
			policy:  "overflow: Never, rules: [{name: batch, ownerKinds: [Job], disruptionLimit: 1}]",
			objects: objects(nodes, annotated(job("batch", 2), spot.DisruptionsAnnotation, "1"), pods(job2, "od")), pod: podOf(job2, "x"),
			want:     answers{"od": "", "sp": "disruption limit reached: after 1 disruption, its pods run on on-demand" + waits},
			first:    []string{"od"},
			settings: strings.Replace(noOverflow, "minOnDemand=1", "minOnDemand=0", 1) + " disruptionLimit=1 onDisruptionLimit=RequireOnDemand disruptions=1",
		},
		"a Job that prefers on-demand at its disruption limit": {
			policy:  "onDisruptionLimit: PreferOnDemand",
			objects: objects(nodes, annotated(annotated(job("batch", 2), spot.DisruptionsAnnotation, "5"), spot.DisruptionLimitAnnotation, "3"), pods(job2, "od")),
			pod:     podOf(job2, "x"), want: answers{"od": "", "sp": ""}, first: []string{"od"},
			settings: withFloor("0") + " disruptionLimit=3 onDisruptionLimit=PreferOnDemand disruptions=5",
		},
		"a Job with an invalid number of disruptions": {
			policy: "disruptionLimit: 1", objects: objects(nodes, annotated(job("batch", 2), spot.DisruptionsAnnotation, "many")), pod: podOf(job2, "x"),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"},
			settings: withFloor("0") + " disruptionLimit=1 onDisruptionLimit=RequireOnDemand disruptions=0",
		},
		"a Job with a rule, nearly done": {
			policy: "rules: [{name: half, ownerKinds: [Job], minOnDemand: 50%}]",
			objects: objects(nodes, pods(job2, "sp"), func() *batchv1.Job {
				j := job("batch", 4, func(s *batchv1.JobSpec) { s.Completions = ptr.To(int32(6)) })
				j.Status.Succeeded = 4
				return j
			}()),
			pod:  podOf(job2, "x"),
			want: answers{"od": "", "sp": usedUp(1, 1, "batch")}, first: []string{"od"}, settings: withFloor("50%"),
		},
		"an ordinal of the floor": {
			objects: objects(nodes, statefulSet("db", 3)), pod: podOf(by("StatefulSet", "db"), "0"),
			want: answers{"od": "", "sp": "ordinal belongs to the floor: the first 1 ordinals of shop/db must run on on-demand, " +
				"and later ordinals wait for this one" + waits},
			first: []string{"od"},
		},
		"an ordinal beyond the floor": {
			objects: objects(nodes, statefulSet("db", 3), pods(by("StatefulSet", "db"), "sp", "sp")), pod: podOf(by("StatefulSet", "db"), "1"),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"},
		},
		"ordinals that do not start with 0, in parallel": {
			policy: "minOnDemand: 2",
			objects: objects(nodes, statefulSet("db", 3, func(s *appsv1.StatefulSet) {
				s.Spec.Ordinals, s.Spec.PodManagementPolicy = &appsv1.StatefulSetOrdinals{Start: 5}, appsv1.ParallelPodManagement
			})),
			pod:   podOf(by("StatefulSet", "db"), "6"),
			want:  answers{"od": "", "sp": "ordinal belongs to the floor: the first 2 ordinals of shop/db must run on on-demand" + waits},
			first: []string{"od"}, settings: withFloor("2"),
		},
		"a ReplicaSet without a Deployment": {
			objects: objects(nodes, annotated(replicaSet("lone", 4), spot.MinOnDemandAnnotation, "3"), pods(by("ReplicaSet", "lone"), "sp")),
			pod:     podOf(by("ReplicaSet", "lone"), "x"),
			want:    answers{"od": "", "sp": usedUp(1, 1, "lone")}, first: []string{"od"}, settings: withFloor("3"),
		},
		"a ReplicaSet with an owner of an unknown kind": {
			objects: objects(nodes, func() *appsv1.ReplicaSet {
				rs := replicaSet("canary", 2)
				rs.OwnerReferences = []metav1.OwnerReference{by("Rollout", "shop")}
				return rs
			}(), pods(by("ReplicaSet", "canary"), "sp")),
			pod:  podOf(by("ReplicaSet", "canary"), "x"),
			want: answers{"od": "", "sp": usedUp(1, 1, "canary")}, first: []string{"od"},
		},
		"a canary starts on spot while on-demand is full to the floor": {
			objects: objects(nodes, objects(func() (sets []any) {
				for i, name := range []string{"stable", "canary"} {
					rs := annotated(replicaSet(name, int32(9-8*i)), "rollout.argoproj.io/desired-replicas", "10")
					rs.Annotations["rollout.argoproj.io/revision"], rs.OwnerReferences = fmt.Sprint(i+1), []metav1.OwnerReference{by("Rollout", "shop")}
					sets = append(sets, rs)
				}
				return sets
			}()...), pods(by("ReplicaSet", "stable"), "od", "od")),
			pod:  podOf(by("ReplicaSet", "canary"), "x"),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},
		"an executor, whose group does not include its driver": {
			objects: objects(nodes, podOf(by("Pod", "driver"), "e", on("sp"))),
			pod:     podOf(by("Pod", "driver"), "x"),
			want:    answers{"od": "", "sp": usedUp(1, 1, "driver (c, i)")}, first: []string{"od"},
		},
		"a pod that a Deployment controls without a ReplicaSet": {
			objects: objects(nodes, web(3, "sp"), podOf(by("Deployment", "web"), "t", on("sp"))),
			pod:     podOf(by("Deployment", "web"), "x"),
			want:    answers{"od": "", "sp": usedUp(1, 1, "web (c, i)")}, first: []string{"od"},
		},
		"a ReplicationController": {
			objects: objects(nodes,
				&v1.ReplicationController{ObjectMeta: meta("rc"), Spec: v1.ReplicationControllerSpec{Replicas: ptr.To(int32(2))}},
				pods(by("ReplicationController", "rc"), "sp")),
			pod:  podOf(by("ReplicationController", "rc"), "x"),
			want: answers{"od": "", "sp": usedUp(1, 1, "rc")}, first: []string{"od"},
		},
		"an owner of an unknown kind has as many replicas as live pods": {
			objects: objects(nodes, pods(by("CloneSet", "clones"), "sp", "sp"), podOf(by("CloneSet", "clones"), "gone", on("sp"), terminating)),
			pod:     podOf(by("CloneSet", "clones"), "x"),
			want:    answers{"od": "", "sp": usedUp(2, 2, "clones")}, first: []string{"od"},
		},

		// Counted pods.
		"terminating pods do not count": {
			objects: objects(nodes, web(3, "sp"), podOf(by("ReplicaSet", "web-1"), "gone", on("sp"), terminating)), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},
		"terminal pods do not count": {
			objects: objects(nodes, web(3, "sp"), podOf(by("ReplicaSet", "web-1"), "failed", on("sp"), phase(v1.PodFailed)),
				podOf(by("ReplicaSet", "web-1"), "done", on("sp"), phase(v1.PodSucceeded))),
			pod:  next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},
		"released pods do not count": {
			objects: objects(nodes, web(3, "sp"), released(podOf(by("ReplicaSet", "web-1"), "released", on("sp")))), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},
		"pods of an older revision do not count": {
			objects: objects(nodes, web(3, "sp", "sp", "od"), revision("web", 2, 3)), pod: podOf(by("ReplicaSet", "web-2"), "x"),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},
		// The rebalancer reserves room for waiting pods, unless they have scheduling gates.
		"pods with scheduling gates do not count": {
			objects: objects(nodes, web(3, "sp"), podOf(by("ReplicaSet", "web-1"), "gated", func(p *v1.Pod) {
				p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
			})),
			pod:  next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"},
		},

		// Caps.
		"a full pool": {
			policy:  "maxPerPool: 1",
			objects: objects(onDemand("od"), spotNode("a1"), spotNode("a2"), spotNode("b1", inZone("b")), spotNode("loose", noPool), web(5, "od", "a1", "loose")),
			pod:     next(),
			want: answers{
				"od": "", "b1": "", "loose": "",
				"a1": "spot pool full: at most 1 replicas of shop/web-1 may run in one pool (waits for room in another spot pool or on on-demand)",
				"a2": "spot pool full: at most 1 replicas of shop/web-1 may run in one pool (waits for room in another spot pool or on on-demand)",
			},
			first: []string{"b1"}, settings: "minOnDemand=1 maxPerPool=1 whenUnsatisfiable=DoNotSchedule fallbackAfter=never" + others,
		},
		"a full pool by percentage": {
			objects: objects(onDemand("od"), spotNode("a1"), spotNode("b1", inZone("b")),
				webWith(spot.MaxPerPoolAnnotation, "50%", 5, "od", "a1", "a1", "a1")),
			pod: next(),
			want: answers{
				"od": "", "b1": "",
				"a1": "spot pool full: at most 3 replicas of shop/web-1 may run in one pool (waits for room in another spot pool or on on-demand)",
			},
			first: []string{"b1"}, settings: "minOnDemand=1 maxPerPool=50% whenUnsatisfiable=DoNotSchedule fallbackAfter=never" + others,
		},
		"on-demand nodes do not fill a pool": {
			policy: "maxPerPool: 2", objects: objects(nodes, web(5, "od", "sp")), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"},
			settings: "minOnDemand=1 maxPerPool=2 whenUnsatisfiable=DoNotSchedule fallbackAfter=never" + others,
		},

		// loose-a2 and loose-b rank equally by zone and node. The pools of nodes without an
		// instance type differ by zone.
		"spot nodes without an instance type share a pool with their zone": {
			policy: "maxPerPool: 2",
			objects: objects(onDemand("od"), spotNode("loose-a1", noPool), spotNode("loose-a2", noPool), spotNode("loose-b", noPool, inZone("b")),
				spotNode("b1", inZone("b")), web(5, "od", "loose-a1", "b1")),
			pod:  next(),
			want: answers{"od": "", "loose-a1": "", "loose-a2": "", "loose-b": "", "b1": ""}, first: []string{"loose-b"},
			settings: "minOnDemand=1 maxPerPool=2 whenUnsatisfiable=DoNotSchedule fallbackAfter=never" + others,
		},

		// Exemptions. The clusters have only spot nodes: explain and the rebalancer would also
		// report that the selector rejects other nodes.
		"its own selector admits only spot": {
			policy:  "minOnDemand: 100%",
			objects: objects(newNode("sp", label("karpenter.sh/capacity-type", "spot")), web(3, "sp", "sp")),
			pod:     next(selects("karpenter.sh/capacity-type", "spot")),
			want:    answers{"sp": ""}, first: []string{"sp"}, settings: withFloor("100%"),
		},
		"its own selector admits only spot, and the cap applies": {
			policy:  "maxPerPool: 1",
			objects: objects(spotNode("a1"), spotNode("b1", inZone("b")), web(3, "a1")), pod: next(selects(spot.CapacityLabel, "spot")),
			want: answers{
				"a1": "spot pool full: at most 1 replicas of shop/web-1 may run in one pool (waits for room in another spot pool)", "b1": "",
			},
			first: []string{"b1"}, settings: "minOnDemand=1 maxPerPool=1 whenUnsatisfiable=DoNotSchedule fallbackAfter=never" + others,
		},

		"exemptions are ignored": {
			policy: "exemptions: Ignore", objects: objects(spotNode("sp"), web(3, "sp", "sp")), pod: next(selects(spot.CapacityLabel, "spot")),
			want: answers{"sp": usedUpOnlySpot(2, 2, "web-1")}, first: []string{},
			settings: strings.Replace(defaultSettings, "exemptions=Allow protect=false", "exemptions=Ignore protect=false", 1),
		},
		"exemptions are ignored, and the budget has room": {
			policy:  "rules: [{name: shop, namespaces: [shop], exemptions: Ignore}]",
			objects: objects(spotNode("sp"), web(3, "sp")), pod: next(selects(spot.CapacityLabel, "spot")),
			want: answers{"sp": ""}, first: []string{"sp"},
			settings: strings.Replace(defaultSettings, "exemptions=Allow protect=false", "exemptions=Ignore protect=false", 1),
		},

		// Overflow.
		"overflow Never: on-demand admits the floor": {
			policy: "overflow: Never", objects: objects(nodes, web(3, "sp")), pod: next(),
			want: answers{"od": "", "sp": ""}, first: []string{"od"}, settings: noOverflow,
		},
		"overflow Never: on-demand admits only the floor": {
			policy: "overflow: Never", objects: objects(nodes, web(3, "sp", "od")), pod: next(),
			want: answers{"od": floorMet(1, "web-1"), "sp": ""}, first: []string{"sp"}, settings: noOverflow,
		},
		"overflow Never: all nodes are on-demand": {
			objects: objects(onDemand("od"), onDemand("more"), webWith(spot.OverflowAnnotation, "Never", 3, "od")), pod: next(),
			want: answers{"od": floorMet(1, "web-1"), "more": floorMet(1, "web-1")}, first: []string{}, settings: noOverflow,
		},
		"overflow Never without a floor": {
			policy: "overflow: Never, rules: [{name: all, minOnDemand: 0}]", objects: objects(nodes, web(3)), pod: next(),
			want:  answers{"od": "overflow Never: shop/web-1 has no floor (waits for room on spot)", "sp": ""},
			first: []string{"sp"}, settings: strings.Replace(noOverflow, "minOnDemand=1", "minOnDemand=0", 1),
		},
		"overflow Never: an ordinal beyond the floor": {
			policy: "overflow: Never", objects: objects(nodes, statefulSet("db", 3)), pod: podOf(by("StatefulSet", "db"), "1"),
			want: answers{"od": "overflow Never: only the first 1 ordinals of shop/db may run on on-demand, and later ordinals wait for this one " +
				"(waits for room on spot)", "sp": ""},
			first: []string{"sp"}, settings: noOverflow,
		},
		"overflow Never: an ordinal of the floor": {
			policy: "overflow: Never", objects: objects(onDemand("od"), statefulSet("db", 3)), pod: podOf(by("StatefulSet", "db"), "0"),
			want: answers{"od": ""}, first: []string{"od"}, settings: noOverflow,
		},
		"overflow Never: the pod admits only on-demand": {
			policy: "overflow: Never", objects: objects(onDemand("od"), web(3, "od")), pod: next(selects(spot.CapacityLabel, "on-demand")),
			want: answers{"od": ""}, first: []string{"od"}, settings: noOverflow,
		},
		"overflow Never: ScheduleAnyway applies only to spot": {
			policy: "overflow: Never, whenUnsatisfiable: ScheduleAnyway, maxPerPool: 1", objects: objects(nodes, web(4, "sp", "od")), pod: next(),
			want: answers{"od": floorMet(1, "web-1"), "sp": ""}, first: []string{"sp"},
			settings: strings.NewReplacer("DoNotSchedule", "ScheduleAnyway", "maxPerPool=no cap", "maxPerPool=1").Replace(noOverflow),
		},

		// Capacity types.
		"a young node without a label": {
			objects: objects(nodes, newNode("new", young), web(2, "new")), pod: next(),
			want: answers{"od": "", "sp": usedUp(1, 1, "web-1"), "new": settling}, first: []string{"od"},
		},
		"an ordinal of the floor, with a young node": {
			objects: objects(onDemand("od"), newNode("new", young), statefulSet("db", 3)), pod: podOf(by("StatefulSet", "db"), "0"),
			want: answers{"od": "", "new": settling}, first: []string{"od"},
		},
		"a young node is the last resort": {
			objects: objects(spotNode("sp"), newNode("new", young), onDemand("advised", taint("DeletionCandidateOfClusterAutoscaler", v1.TaintEffectPreferNoSchedule)),
				web(3)),
			pod: next(), closed: []string{"new"},
			want: answers{"sp": "", "new": "", "advised": ""}, first: []string{"sp"},
		},
		"a young node, and no node has a label": {
			objects: objects(newNode("old"), newNode("new", young)), pod: pod("alone"),
			want: answers{"old": "", "new": settling}, first: []string{"old"},
		},
		"a young node without a grace": {
			policy: "labelGrace: 0s", objects: objects(nodes, newNode("new", young)), pod: pod("alone"),
			want: answers{"od": "", "sp": usedUp(0, 0, "alone"), "new": ""}, first: []string{"new", "od"},
		},
		"unlabeledNodes: Spot": {
			policy: "unlabeledNodes: Spot", objects: objects(nodes, newNode("plain")), pod: pod("alone"),
			want: answers{"od": "", "sp": usedUp(0, 0, "alone"), "plain": usedUp(0, 0, "alone")}, first: []string{"od"},
		},
		"aliases": {
			policy: "capacityLabels: [{key: example.com/life, spot: [short], onDemand: [long]}]",
			objects: objects(
				newNode("karpenter", label("karpenter.sh/capacity-type", "spot")), newNode("gke", label("cloud.google.com/gke-spot", "true")),
				newNode("eks", label("eks.amazonaws.com/capacityType", "ON_DEMAND")), newNode("short", label("example.com/life", "short")),
				newNode("long", label("example.com/life", "long")),
				// The two labels contradict each other, so the node counts as spot.
				newNode("both", label("karpenter.sh/capacity-type", "spot"), label("eks.amazonaws.com/capacityType", "ON_DEMAND")),
				// The project's own label takes precedence. An unknown value is ignored if another
				// label has a known value.
				onDemand("own", label("karpenter.sh/capacity-type", "spot")), newNode("typo", label(spot.CapacityLabel, "ondemand")),
				newNode("bought", label(spot.CapacityLabel, "5958825377106311128"), label("karpenter.sh/capacity-type", "on-demand")),
				newNode("free", label("karpenter.sh/capacity-type", "free"))),
			pod: pod("alone"),
			want: answers{
				"karpenter": usedUp(0, 0, "alone"), "gke": usedUp(0, 0, "alone"), "short": usedUp(0, 0, "alone"), "both": usedUp(0, 0, "alone"),
				"typo": usedUp(0, 0, "alone"), "free": usedUp(0, 0, "alone"), "eks": "", "long": "", "own": "", "bought": "",
			},
			first: []string{"bought", "eks", "long", "own"},
		},

		// Signals.
		"nodes with reclaim and drain signals": {
			policy: "signals: [{taint: example.com/upkeep=now, class: drain}, {annotation: example.com/leaves, class: reclaim}]",
			objects: objects(
				onDemand("od"), spotNode("sp"),
				onDemand("marked", taint("spot-aware-scheduler.io/interruption", v1.TaintEffectNoSchedule)),
				spotNode("event", event("Preempt Scheduled")), spotNode("unreachable", unreachable),
				spotNode("leaves", func(n *v1.Node) { n.Annotations["example.com/leaves"] = "soon" }),
				spotNode("disrupted", taint("karpenter.sh/disrupted", v1.TaintEffectNoSchedule)), onDemand("deleted", deleted),
				onDemand("upkeep", func(n *v1.Node) {
					n.Spec.Taints = []v1.Taint{{Key: "example.com/upkeep", Value: "now", Effect: v1.TaintEffectNoSchedule}}
				}),
				web(3)),
			pod: next(),
			want: answers{
				"od": "", "sp": "", "marked": reclaimed, "event": reclaimed, "unreachable": reclaimed, "leaves": reclaimed,
				"disrupted": drained, "deleted": drained, "upkeep": drained,
			},
			first: []string{"od"},
		},
		"the reason names the signal, not the used-up budget": {
			objects: objects(onDemand("od"), spotNode("event", event("Preempt Scheduled")),
				spotNode("disrupted", taint("karpenter.sh/disrupted", v1.TaintEffectNoSchedule))),
			pod:  pod("alone"),
			want: answers{"od": "", "event": reclaimed, "disrupted": drained}, first: []string{"od"},
		},
		"ScheduleAnyway does not admit a node with a reclaim signal": {
			policy:  "whenUnsatisfiable: ScheduleAnyway",
			objects: objects(spotNode("sp"), spotNode("event", event("Preempt Scheduled"))), pod: pod("alone"),
			want: answers{"sp": "", "event": reclaimed}, first: []string{"sp"},
			settings: "minOnDemand=1 maxPerPool=no cap whenUnsatisfiable=ScheduleAnyway fallbackAfter=never" + others,
		},
		"a reclaim signal of spot is advisory on on-demand": {
			objects: objects(onDemand("od"), onDemand("preempted", event("Preempt Scheduled")),
				onDemand("itn", taint("aws-node-termination-handler/spot-itn", v1.TaintEffectPreferNoSchedule)),
				spotNode("frozen", event("Freeze Scheduled")), spotNode("stopped", event("Preempt Scheduled")), web(3)),
			pod:   pod("alone"),
			want:  answers{"od": "", "preempted": "", "itn": "", "frozen": usedUp(0, 0, "alone"), "stopped": reclaimed},
			first: []string{"od"},
		},
		"a node that the controller has marked for an advisory signal is the last": {
			objects: objects(onDemand("od", event("Freeze Scheduled"), taint("spot-aware-scheduler.io/interruption", v1.TaintEffectPreferNoSchedule),
				func(n *v1.Node) {
					n.Spec.Taints[0].Value = "VMEventScheduled"
					n.Annotations[spot.InterruptionStateAnnotation] = `{"class":"advisory","taint":"VMEventScheduled"}`
				}), spotNode("sp"), web(3)),
			pod:  next(),
			want: answers{"od": "", "sp": ""}, first: []string{"sp"},
		},
		"a node with an advisory signal is the last": {
			objects: objects(onDemand("od", taint("DeletionCandidateOfClusterAutoscaler", v1.TaintEffectPreferNoSchedule)), spotNode("sp"), web(3)),
			pod:     next(),
			want:    answers{"od": "", "sp": ""}, first: []string{"sp"},
		},
	}
}

// heldCase is a scenario in which another pod waits for on-demand.
type heldCase struct {
	scenario
	waits *v1.Pod
}

func heldCases() map[string]heldCase {
	// No on-demand node exists for the floor of another workload.
	single := objects(deployment("single", 1), revision("single", 1, 1))
	waiting := func(edits ...func(*v1.Pod)) *v1.Pod {
		return podOf(by("ReplicaSet", "single-1"), "waits", append(edits, func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(began),
			}}
		})...)
	}
	huge := func(p *v1.Pod) {
		p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("65")},
		}}}
	}
	nodes := objects(spotNode("sp"), newNode("new", young))
	open := answers{"sp": "", "new": ""}
	return map[string]heldCase{
		"a pod within its budget": {
			scenario{objects: objects(nodes, single, web(3)), pod: next(), want: answers{"sp": "", "new": held}, first: []string{"sp"}}, waiting(),
		},
		"a pod that may run on any node": {
			scenario{
				policy:  "whenUnsatisfiable: ScheduleAnyway, rules: [{name: single, podSelector: {matchLabels: {app: single}}, whenUnsatisfiable: DoNotSchedule}]",
				objects: objects(nodes, single, web(3, "sp", "sp")), pod: next(), want: answers{"sp": "", "new": held}, first: []string{"sp"},
			},
			waiting(func(p *v1.Pod) { p.Labels["app"] = "single" }),
		},
		"not reserved: the waiting pod does not fit": {
			scenario{objects: objects(nodes, single, web(3)), pod: next(), want: open, first: []string{"sp"}, closed: []string{"new"}}, waiting(huge),
		},
		"not reserved: the waiting pod does not tolerate a taint": {
			scenario{
				objects: objects(spotNode("sp"), newNode("new", young, taint("team", v1.TaintEffectNoSchedule)), single, web(3)),
				pod:     next(func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} }), want: open, first: []string{"sp"}, closed: []string{"new"},
			},
			waiting(),
		},
		"not reserved: the waiting pod requires another zone": {
			scenario{objects: objects(nodes, single, web(3)), pod: next(), want: open, first: []string{"sp"}, closed: []string{"new"}},
			waiting(selects(v1.LabelTopologyZone, "b")),
		},
	}
}

// waitingCase is a scenario in which the policy rejects all remaining nodes until the pod has
// waited.
type waitingCase struct {
	scenario
	waits time.Duration
	then  answers
}

func waitingCases() map[string]waitingCase {
	nodes := objects(onDemand("od"), spotNode("sp"), spotNode("event", event("Preempt Scheduled")))
	const fallback = "spot budget used up: 2 of at most 2 replicas of shop/web-1 run on spot " +
		"(waits for on-demand room, may run on any spot node after 5m)"
	rollout := objects(nodes, web(1, "od"), revision("web", 2, 1))
	return map[string]waitingCase{
		"fallback": {
			scenario: scenario{
				policy: "fallbackAfter: 5m", objects: objects(nodes, web(3, "sp", "sp")), pod: next(),
				want: answers{"od": "", "sp": fallback, "event": reclaimed},
			},
			waits: 5 * time.Minute, then: answers{"od": "", "sp": "", "event": reclaimed},
		},
		"before the fallback": {
			scenario: scenario{
				policy: "fallbackAfter: 5m", objects: objects(nodes, web(3, "sp", "sp")), pod: next(),
				want: answers{"od": "", "sp": fallback, "event": reclaimed},
			},
			waits: 5*time.Minute - 10*time.Second, then: answers{"od": "", "sp": fallback, "event": reclaimed},
		},
		"rollout relief": {
			scenario: scenario{
				objects: rollout, pod: podOf(by("ReplicaSet", "web-2"), "x"),
				want: answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
			},
			waits: 30 * time.Second, then: answers{"od": "", "sp": "", "event": reclaimed},
		},
		"before rollout relief": {
			scenario: scenario{
				objects: rollout, pod: podOf(by("ReplicaSet", "web-2"), "x"),
				want: answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
			},
			waits: 20 * time.Second, then: answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
		},
		"rollout relief after a configured time": {
			scenario: scenario{
				policy: "rolloutRelief: 2m", objects: rollout, pod: podOf(by("ReplicaSet", "web-2"), "x"),
				want: answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
			},
			waits: 2 * time.Minute, then: answers{"od": "", "sp": "", "event": reclaimed},
		},
		"before the configured time": {
			scenario: scenario{
				policy: "rolloutRelief: 2m", objects: rollout, pod: podOf(by("ReplicaSet", "web-2"), "x"),
				want: answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
			},
			waits: time.Minute, then: answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
		},
		"no rollout relief by an annotation": {
			scenario: scenario{
				objects: objects(nodes, webWith(spot.RolloutReliefAnnotation, "never", 1, "od"), revision("web", 2, 1)),
				pod:     podOf(by("ReplicaSet", "web-2"), "x"),
				want:    answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
			},
			waits: 5 * time.Minute, then: answers{"od": "", "sp": usedUp(0, 0, "web-2"), "event": reclaimed},
		},
		"no rollout relief without a rollout": {
			scenario: scenario{
				objects: objects(nodes, web(1)), pod: next(),
				want: answers{"od": "", "sp": usedUp(0, 0, "web-1"), "event": reclaimed},
			},
			waits: 5 * time.Minute, then: answers{"od": "", "sp": usedUp(0, 0, "web-1"), "event": reclaimed},
		},
	}
}
