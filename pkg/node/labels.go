package node

import (
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
)

// LabelReporter records events about invalid and missing capacity labels of nodes. Its Handler must
// be added to the informer of nodes, whose lister is Nodes.
type LabelReporter struct {
	Policy   *decision.Policy
	Nodes    corelisters.NodeLister
	Recorder events.EventRecorder
	Clock    clock.WithDelayedExecution
}

// Handler returns the handler for the events of nodes.
func (r *LabelReporter) Handler() informer.Handler[*v1.Node] {
	return informer.Handler[*v1.Node]{
		Add: func(node *v1.Node) {
			r.reportInvalid(nil, node)
			r.reportMissing(node)
		},
		Update: func(before, after *v1.Node) {
			if !maps.Equal(before.Labels, after.Labels) {
				r.reportInvalid(before, after)
			}
		},
	}
}

// reportInvalid records an event if the capacity labels of after are invalid, unless before
// had the same fault. before is nil for a new node.
func (r *LabelReporter) reportInvalid(before, after *v1.Node) {
	reason, note := LabelFault(r.Policy, after.Labels)
	if before != nil {
		if _, reported := LabelFault(r.Policy, before.Labels); note == reported {
			return
		}
	}
	if note != "" {
		r.Recorder.Eventf(after, nil, v1.EventTypeWarning, reason, "Scheduling", "%s", note)
	}
}

// reportMissing records an event and a log line if a new node still has no capacity label when
// its grace ends. It does not depend on a scheduling attempt at that time.
func (r *LabelReporter) reportMissing(n *v1.Node) {
	age := r.Clock.Since(n.CreationTimestamp.Time)
	if r.Policy.Capacity(n.Labels, age).Source != decision.Settling {
		return
	}
	r.Clock.AfterFunc(r.Policy.LabelGrace-age, func() {
		current, err := r.Nodes.Get(n.Name)
		if err != nil || current.UID != n.UID {
			return // the node is gone
		}
		capacity := r.Policy.Capacity(current.Labels, r.Policy.LabelGrace)
		if capacity.Source != decision.FromDefault {
			return
		}
		klog.Background().Info("Node not labeled within its grace", "node", klog.KObj(current), "labelGrace", r.Policy.LabelGrace,
			"capacityType", capacity.Type)
		r.Recorder.Eventf(current, nil, v1.EventTypeNormal, spot.ReasonNoLabel, "Scheduling",
			"no capacity label was set within labelGrace (%s): the node counts as %s", r.Policy.LabelGrace, capacity.Type)
	})
}

// LabelFault returns the event reason and note for a fault in a node's capacity labels. Both are
// empty if there is no fault.
func LabelFault(policy *decision.Policy, labels map[string]string) (reason, note string) {
	unknown := policy.UnknownLabels(labels)
	for i, key := range unknown {
		unknown[i] = key + "=" + labels[key]
	}
	values := strings.Join(unknown, ", ")
	capacity := policy.Capacity(labels, 0)
	switch contradiction := capacity.Source == decision.FromContradiction; {
	case contradiction && values == "":
		return spot.ReasonContradictoryLabels, "capacity labels contradict each other: the node counts as spot"
	case contradiction:
		return spot.ReasonContradictoryLabels,
			fmt.Sprintf("capacity labels contradict each other or have unknown values (%s): the node counts as spot", values)
	case values != "":
		return spot.ReasonUnknownLabel,
			fmt.Sprintf("ignored unknown values of capacity labels: %s; the node counts as %s by its other labels", values, capacity.Type)
	}
	return "", ""
}
