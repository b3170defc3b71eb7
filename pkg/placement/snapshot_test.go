package placement

import (
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var now = clustertest.Now

// testReader returns a reader whose policy has a label grace of 30 s.
func testReader() *node.Reader {
	return &node.Reader{
		Policy:  &decision.Policy{LabelGrace: 30 * time.Second, CapacityLabels: providers.CapacityLabels()},
		Signals: providers.Signals(),
	}
}

// nodeInfo implements the methods of NodeInfo that this package uses.
type nodeInfo struct {
	fwk.NodeInfo
	node       *v1.Node
	pods       []fwk.PodInfo
	generation int64
	has, used  room
}

func (i *nodeInfo) Node() *v1.Node               { return i.node }
func (i *nodeInfo) GetPods() []fwk.PodInfo       { return i.pods }
func (i *nodeInfo) GetGeneration() int64         { return i.generation }
func (i *nodeInfo) GetAllocatable() fwk.Resource { return &i.has }
func (i *nodeInfo) GetRequested() fwk.Resource   { return &i.used }

// room implements the methods of Resource that this package uses.
type room struct {
	fwk.Resource
	cpu, memory int64
	pods        int
	scalar      map[v1.ResourceName]int64
	ephemeral   int64
}

func (r *room) GetMilliCPU() int64                            { return r.cpu }
func (r *room) GetMemory() int64                              { return r.memory }
func (r *room) GetEphemeralStorage() int64                    { return r.ephemeral }
func (r *room) GetAllowedPodNumber() int                      { return r.pods }
func (r *room) GetScalarResources() map[v1.ResourceName]int64 { return r.scalar }

// podInfo implements the method of PodInfo that this package uses.
type podInfo struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (i podInfo) GetPod() *v1.Pod { return i.pod }

// nodeOf returns a node of that capacity type ("" for none) in the pool "m/<zone>", one hour old.
func nodeOf(name, capacity, zone string, pods ...*v1.Pod) *nodeInfo {
	info := &nodeInfo{node: clustertest.NewNode(name, capacity, "m/"+zone), generation: 1, has: room{cpu: 4000, memory: 16 << 30, pods: 110}}
	for _, pod := range pods {
		info.pods = append(info.pods, podInfo{pod: pod})
	}
	return info
}

// podOf returns a pod of that ReplicaSet, or a pod without a controller for "".
func podOf(name, replicaSet string) *v1.Pod {
	if replicaSet == "" {
		return clustertest.NewPod(name)
	}
	return clustertest.NewPod(name, clustertest.OwnedBy("ReplicaSet", replicaSet))
}

// replicaSetKey returns the key of the ReplicaSet in podOf.
func replicaSetKey(name string) workload.OwnerKey {
	return workload.OwnerKey{Namespace: clustertest.Namespace, Group: "apps", Kind: "ReplicaSet", UID: clustertest.UID(name)}
}

func terminating(pod *v1.Pod) *v1.Pod { return clustertest.Terminate(pod.DeepCopy()) }

func snapshot(infos ...*nodeInfo) []fwk.NodeInfo {
	list := make([]fwk.NodeInfo, len(infos))
	for i, info := range infos {
		list[i] = info
	}
	return list
}
