package gating

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// nodes reports nodes for which the affinity of floors and the policy disagree.
type nodes struct {
	settings Settings
	recorder events.EventRecorder
	lister   corelisters.NodeLister

	mu sync.Mutex
	// reported contains the reported note of each node.
	reported map[types.UID]string
}

// observe reports, once, a node for which autoscalers and the policy see different capacity types.
func (n *nodes) observe(node *v1.Node) {
	note := n.disagreement(node)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reported[node.UID] == note {
		return
	}
	if n.reported[node.UID] = note; note == "" {
		delete(n.reported, node.UID)
	} else {
		n.recorder.Eventf(node, nil, v1.EventTypeWarning, spot.ReasonHiddenCapacity, "Compare", "%s", note)
	}
	hiddenNodes.Set(float64(len(n.reported)))
}

// disagreement describes how the affinity of floors and the policy disagree about a node; empty if
// they agree.
func (n *nodes) disagreement(node *v1.Node) string {
	capacity := n.capacity(node)
	open := n.settings.Labels.admitsFloor(node)
	switch {
	case !capacity.Labeled():
	case capacity.Type == decision.Spot && open:
		return "Autoscalers consider this spot node on-demand and start no on-demand node while it has room: it has none of the labels in " +
			"gating.labels that mark spot nodes"
	case capacity.Type == decision.OnDemand && !open:
		return "Pods of a floor do not fit on this on-demand node: a label in gating.labels marks it as spot"
	}
	return ""
}

// capacity returns the capacity type of a node according to the policy.
func (n *nodes) capacity(node *v1.Node) decision.Capacity {
	return n.settings.Policy.Capacity(node.Labels, time.Since(node.CreationTimestamp.Time))
}

// onDemand reports whether the named node exists and is on-demand.
func (n *nodes) onDemand(name string) bool {
	node, err := n.lister.Get(name)
	return err == nil && n.capacity(node).Type == decision.OnDemand
}

func (n *nodes) list() []*v1.Node {
	all, _ := n.lister.List(labels.Everything()) // a cache lister returns no error
	return all
}

func (n *nodes) forget(node *v1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.reported, node.UID)
	hiddenNodes.Set(float64(len(n.reported)))
}
