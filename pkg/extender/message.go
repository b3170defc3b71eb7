package extender

import (
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// maxCandidates is how many nodes a request may name.
const maxCandidates = 100_000

var errTooMany = fmt.Errorf("expected at most %d nodes", maxCandidates)

// request is what kube-scheduler asks about one pod: an ExtenderArgs of
// k8s.io/kube-scheduler/extender/v1.
type request struct {
	pod *v1.Pod
	// names are the names of the candidates.
	names []string
	// nodes are the candidates as kube-scheduler sent them, in the order of names. They are nil if
	// kube-scheduler sent only names, because the extender is nodeCacheCapable.
	nodes []json.RawMessage
}

// readRequest decodes a request. An error names the field, and what was expected.
func readRequest(body []byte) (*request, error) {
	var args struct {
		Pod       *v1.Pod
		NodeNames *[]string
		Nodes     *struct{ Items []json.RawMessage }
	}
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, fmt.Errorf("expected the JSON of an ExtenderArgs: %w", err)
	}
	switch {
	case args.NodeNames != nil && len(*args.NodeNames) > maxCandidates:
		return nil, fmt.Errorf("args.NodeNames: %w", errTooMany)
	case args.Nodes != nil && len(args.Nodes.Items) > maxCandidates:
		return nil, fmt.Errorf("args.Nodes.items: %w", errTooMany)
	case args.Pod == nil:
		return nil, errors.New("args.Pod: expected the pod to schedule, got none")
	case args.Pod.Name == "" || args.Pod.UID == "":
		return nil, errors.New("args.Pod: expected one with metadata.name and metadata.uid")
	case (args.NodeNames == nil) == (args.Nodes == nil):
		return nil, errors.New("expected either NodeNames (nodeCacheCapable: true) or Nodes")
	case args.NodeNames != nil:
		return &request{pod: args.Pod, names: *args.NodeNames}, nil
	}
	r := &request{pod: args.Pod, nodes: args.Nodes.Items}
	if r.nodes == nil {
		r.nodes = []json.RawMessage{}
	}
	for i, item := range r.nodes {
		var node struct {
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(item, &node); err != nil {
			return nil, fmt.Errorf("args.Nodes.items[%d]: %w", i, err)
		}
		r.names = append(r.names, node.Metadata.Name)
	}
	return r, nil
}

// nodeList is a v1.NodeList whose items are as kube-scheduler sent them.
type nodeList struct {
	Metadata struct{}          `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

// filterResult is an extenderv1.ExtenderFilterResult with such a list.
type filterResult struct {
	Nodes                      *nodeList         `json:",omitempty"`
	NodeNames                  *[]string         `json:",omitempty"`
	FailedAndUnresolvableNodes map[string]string `json:",omitempty"`
	Error                      string            `json:",omitempty"`
}

// filtered returns the answer to a filter request. All refusals are unresolvable: to remove other
// pods from a node changes neither the budget nor whether the node is about to be reclaimed, so
// preemption has nothing to look for there.
func (r *request) filtered(f *Filtered) *filterResult {
	result := &filterResult{}
	kept := f.Kept
	if f.All {
		kept = make([]int, len(r.names))
		for i := range kept {
			kept[i] = i
		}
	}
	if r.nodes != nil {
		result.Nodes = &nodeList{Items: make([]json.RawMessage, len(kept))}
		for at, i := range kept {
			result.Nodes.Items[at] = r.nodes[i]
		}
	} else {
		names := make([]string, len(kept))
		for at, i := range kept {
			names[at] = r.names[i]
		}
		result.NodeNames = &names
	}
	if len(f.Reasons) > 0 {
		result.FailedAndUnresolvableNodes = make(map[string]string, len(f.Reasons))
		for i, reason := range f.Reasons {
			result.FailedAndUnresolvableNodes[r.names[i]] = reason
		}
	}
	return result
}

// priorities returns the answer to a prioritize request, in the order of the candidates. Without
// scores, all are 0.
func (r *request) priorities(scores []int64) extenderv1.HostPriorityList {
	list := make(extenderv1.HostPriorityList, len(r.names))
	for i, name := range r.names {
		list[i].Host = name
		if scores != nil {
			list[i].Score = scores[i]
		}
	}
	return list
}
