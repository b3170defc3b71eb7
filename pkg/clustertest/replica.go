package clustertest

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// NewReplica returns the ready pod of a new Deployment with one replica, as a snapshot contains it.
// The pod runs on node. Subject and Settings are not set. NewReplica does not add the pod to node.
func NewReplica(deployment string, node *snapshot.Node) *snapshot.Pod {
	objects := NewDeployment(deployment, 1)
	d, rs := objects[0].(*appsv1.Deployment), objects[1].(*appsv1.ReplicaSet)
	workload := &snapshot.Workload{Kind: "Deployment", Namespace: Namespace, Name: deployment, Desired: 1, Deployment: d}
	revision := &snapshot.Revision{Workload: workload, ReplicaSet: rs}
	workload.Revisions = []*snapshot.Revision{revision}
	object := NewPod(deployment+"-0", OwnedBy("ReplicaSet", rs.Name))
	object.Labels = rs.Spec.Selector.DeepCopy().MatchLabels
	pod := &snapshot.Pod{Pod: Run(node.Name, object), Node: node, Workload: workload, Revision: revision}
	revision.Pods = []*snapshot.Pod{pod}
	return pod
}
