// Package clustertest builds clusters for tests: API objects, clusters described in lines of text,
// and a World, which is a snapshot.Reader with the contents of its caches.
//
// # Objects
//
// Every builder returns a new object with default values. A test changes the fields that matter to
// it. Namespaced objects are in namespace shop. All objects are an hour old at Now. The UID of an
// object is "<name>-uid", so objects of one kind have different names.
//
// # Notation
//
// Objects and World.Build read clusters from lines. A line describes one object, or a workload with
// its pods. The words of a line are separated by spaces. Empty lines are ignored.
//
//	node NAME CAPACITY [TYPE/ZONE] [OPTION...]
//	deployment|statefulset|job NAME REPLICAS [PLACE...] [OPTION...]
//	daemonset|pod NAME PLACE [OPTION...]
//	class NAME PRIORITY
//	namespace NAME OPT-IN   a namespace with this value of the opt-in label
//	budget APP N            a PodDisruptionBudget that allows N disruptions of the pods of an app,
//	                        with minAvailable=VALUE or maxUnavailable=VALUE
//
// A node is ready. CAPACITY is spot, on-demand, or "-" for a node without capacity label. Its pool
// is m/a by default. The options of a node:
//
//	cpu=4  pods=110         the allocatable amounts
//	born=DURATION           the age
//	cordoned
//	notready                since a second
//	taint=KEY  taint=KEY=VALUE  effect NoSchedule
//	label=KEY=VALUE  without=KEY  annotation=KEY=VALUE
//
// A workload has a pod for each PLACE: a node, !NODE (terminating), ~NODE (released from its
// ReplicaSet) or "-" (pending). The pods of Deployment web are web-0, web-1 and so on. They have
// the label app=web. The ReplicaSet is web-r, and its pod-template-hash is r, as in the pods of all
// workloads. The options of a workload:
//
//	min=N                   the annotation min-on-demand; also of a single pod
//	cap=N                   the annotation max-per-pool; also of a single pod
//	disruptions=N           the annotation disruptions of a Job
//	old=N                   the first N pods belong to an older ReplicaSet, web-old
//	start=N                 the first ordinal of a StatefulSet
//	volume=ZONE             each pod has a volume that is bound in this zone; unbound for none
//	local  hostpath         the volume is a disk of the node; each pod has a hostPath volume
//	by=KIND/NAME            the controller of the workload itself, as in OwnedBy
//	mixed                   the labels of the pods differ
//
// The options of pods, which apply to all pods of a workload. Only pending pods use waits and
// nominated:
//
//	owner=KIND/NAME         the controller of a single pod, as in OwnedBy
//	profile=NAME            the schedulerName
//	cpu=1  port=N           requested CPU, and the host port
//	priority=N  class=NAME  the priority, and the name of the priority class
//	preempts=POLICY         the preemption policy
//	born=DURATION           the age
//	waits=DURATION          the age of the condition PodScheduled=False
//	nominated=NODE
//	gated  gated=NAME,...   scheduling gates, by default example.com/gate
//	assigned=TEXT           the annotation with the assigned capacity; _ is a space
//	optin=VALUE             the opt-in label
//	granted=TEXT            the annotation with the grant
//	kept                    the controller's deletion cost
//	tolerates=KEY           any taint with this key
//	zone=Z  only=CAPACITY   the node selector
//	requires=KEY=V,KEY!=V   the required node affinity
//	anti=KEY                anti-affinity to the pods of the same app by this topology key
//	near=APP/KEY            affinity to the pods of an app by this topology key
//	spread=KEY,...          a hard spread constraint by each topology key, with
//	                        skew=N domains=N taints=POLICY selector=POLICY perrevision
package clustertest
