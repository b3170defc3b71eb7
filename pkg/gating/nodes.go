package gating

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// nodes reports nodes about which the affinity of floors and the policy disagree.
type nodes struct {
	settings Settings
	recorder events.EventRecorder
	lister   corelisters.NodeLister

	mu sync.Mutex
	// told is what was reported of each node.
	told map[types.UID]string
}

// observe reports a node once that autoscalers take for another capacity type than the policy does.
func (n *nodes) observe(node *v1.Node) {
	note := n.disagreement(node)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told[node.UID] == note {
		return
	}
	if n.told[node.UID] = note; note == "" {
		delete(n.told, node.UID)
	} else {
		n.recorder.Eventf(node, nil, v1.EventTypeWarning, kube.ReasonHiddenCapacity, "Compare", "%s", note)
	}
	hiddenNodes.Set(float64(len(n.told)))
}

// disagreement says how the affinity of floors and the policy disagree about a node; empty if they do not.
func (n *nodes) disagreement(node *v1.Node) string {
	capacity := n.capacity(node)
	open := n.settings.Labels.takesForOnDemand(node.Labels)
	switch {
	case !capacity.Labeled():
	case capacity.Type == decision.Spot && open:
		return "This spot node looks like on-demand to autoscalers, so that none starts an on-demand node while it has room: it has none of the labels of " +
			"gating.labels that say spot"
	case capacity.Type == decision.OnDemand && !open:
		return "This on-demand node takes no pods of a floor: a label of gating.labels says spot"
	}
	return ""
}

// capacity returns the capacity type of a node as the policy reads it.
func (n *nodes) capacity(node *v1.Node) decision.Capacity {
	return n.settings.Policy.Capacity(node.Labels, time.Since(node.CreationTimestamp.Time), true)
}

// onDemand reports whether the node of that name is there and on-demand.
func (n *nodes) onDemand(name string) bool {
	node, err := n.lister.Get(name)
	return err == nil && n.capacity(node).Type == decision.OnDemand
}

func (n *nodes) list() []*v1.Node {
	all, _ := n.lister.List(labels.Everything()) // a cache returns no error
	return all
}

func (n *nodes) forget(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if node, ok := obj.(*v1.Node); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.told, node.UID)
		hiddenNodes.Set(float64(len(n.told)))
	}
}
