package round

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// spotNotices reports, once, each node with a signal that only spot nodes get although no label
// says that the node is spot. It remembers the notes of the nodes that have one.
type spotNotices struct {
	reported map[types.UID]string
}

func (n *spotNotices) observe(s *snapshot.Snapshot, signals []providers.Signal, recorder events.EventRecorder) {
	reported := map[types.UID]string{}
	for _, node := range s.Nodes {
		note := ""
		switch capacity := node.Facts.Capacity; {
		case capacity.Source == decision.FromSignal:
			note = "the node has no capacity label, and counts as spot only while it has the signal: label your spot nodes"
		case capacity.Type == decision.OnDemand:
			note = "the node is labelled on-demand, so the signal is only advisory, and no pod is moved by a deadline: correct the label"
		default:
			continue
		}
		signal := providers.SpotNotice(signals, node.Node)
		if signal == nil {
			continue
		}
		if n.reported[node.UID] != note {
			recorder.Eventf(node.Node, nil, v1.EventTypeWarning, spot.ReasonUnexpectedNotice, "Compare", "Only spot nodes get %s: %s", signal, note)
		}
		reported[node.UID] = note
	}
	n.reported = reported
}
