package placement

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

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
}

func (r *room) GetMilliCPU() int64                            { return r.cpu }
func (r *room) GetMemory() int64                              { return r.memory }
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
	labels := map[string]string{v1.LabelInstanceTypeStable: "m", v1.LabelTopologyZone: zone}
	if capacity != "" {
		labels[spot.CapacityLabel] = capacity
	}
	info := &nodeInfo{
		node:       &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}},
		generation: 1,
		has:        room{cpu: 4000, memory: 16 << 30, pods: 110},
	}
	for _, pod := range pods {
		info.pods = append(info.pods, podInfo{pod: pod})
	}
	return info
}

// podOf returns a running pod of that ReplicaSet, or a pod without a controller for "".
func podOf(name, replicaSet string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	if replicaSet != "" {
		pod.OwnerReferences = []metav1.OwnerReference{ownedBy("ReplicaSet", replicaSet)}
	}
	return pod
}

func ownedBy(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true)}
}

// replicaSetKey returns the key of the ReplicaSet in podOf.
func replicaSetKey(name string) workload.OwnerKey {
	return workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: types.UID(name)}
}

func terminating(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: now}
	return pod
}

func snapshot(infos ...*nodeInfo) []fwk.NodeInfo {
	list := make([]fwk.NodeInfo, len(infos))
	for i, info := range infos {
		list[i] = info
	}
	return list
}
