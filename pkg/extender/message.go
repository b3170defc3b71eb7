package extender

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// maxCandidates is how many nodes a request may name.
const maxCandidates = 100_000

var errTooMany = fmt.Errorf("expected at most %d nodes", maxCandidates)

// request is the content of an ExtenderArgs of k8s.io/kube-scheduler/extender/v1: a pod and the
// nodes that fit it.
type request struct {
	pod *v1.Pod
	// candidates are the nodes that fit the pod.
	candidates []*nodeState
	// nodes are the candidates as kube-scheduler sent them, in the same order. They are nil if
	// kube-scheduler sent only names, because the extender is nodeCacheCapable.
	nodes []jsontext.Value
}

// withoutContainers ignores containers, which are the largest part of a pod. No decision depends on
// them.
var withoutContainers = json.WithUnmarshalers(json.UnmarshalFromFunc(func(decoder *jsontext.Decoder, _ *[]v1.Container) error {
	return decoder.SkipValue()
}))

// readRequest decodes a request. It appends the candidates to reused if the request contains only
// their names. An error names the field, and the expected value.
func readRequest(body []byte, x *index, reused []*nodeState) (*request, error) {
	var args struct {
		Pod       *v1.Pod
		NodeNames nodeNames
		Nodes     *struct {
			Items []jsontext.Value `json:"items"`
		}
	}
	args.NodeNames = nodeNames{index: x, nodes: reused}
	switch err := json.Unmarshal(body, &args, withoutContainers); {
	case errors.Is(err, errTooMany):
		return nil, fmt.Errorf("args.NodeNames: %w", errTooMany)
	case err != nil:
		return nil, fmt.Errorf("expected the JSON of an ExtenderArgs: %w", err)
	case args.Nodes != nil && len(args.Nodes.Items) > maxCandidates:
		return nil, fmt.Errorf("args.Nodes.items: %w", errTooMany)
	case args.Pod == nil:
		return nil, errors.New("args.Pod: expected the pod to schedule, got none")
	case args.Pod.Name == "" || args.Pod.UID == "":
		return nil, errors.New("args.Pod: expected one with metadata.name and metadata.uid")
	case args.NodeNames.present == (args.Nodes != nil):
		return nil, errors.New("expected either NodeNames (nodeCacheCapable: true) or Nodes")
	case args.NodeNames.present:
		return &request{pod: args.Pod, candidates: args.NodeNames.nodes}, nil
	}
	r := &request{pod: args.Pod, nodes: args.Nodes.Items}
	if r.nodes == nil {
		r.nodes = []jsontext.Value{}
	}
	names := make([]string, len(r.nodes))
	for i, item := range r.nodes {
		var node struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(item, &node); err != nil {
			return nil, fmt.Errorf("args.Nodes.items[%d]: %w", i, err)
		}
		names[i] = node.Metadata.Name
	}
	r.candidates = x.candidates(names)
	return r, nil
}

// nodeNames decodes an array of node names to the nodes with these names. Most of a request is
// thousands of names. For each name of a known node, it allocates nothing and searches the index
// once.
type nodeNames struct {
	index   *index
	nodes   []*nodeState
	present bool // false if the array is missing or null
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (n *nodeNames) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	switch token, err := decoder.ReadToken(); {
	case err != nil || token.Kind() == jsontext.KindNull:
		return err
	case token.Kind() != jsontext.KindBeginArray:
		return fmt.Errorf("expected an array of strings, got %s", token.Kind())
	}
	n.present = true
	n.index.mu.RLock()
	defer n.index.mu.RUnlock()
	for decoder.PeekKind() != jsontext.KindEndArray {
		value, err := decoder.ReadValue()
		switch {
		case err != nil:
			return err
		case value.Kind() != jsontext.KindString:
			return fmt.Errorf("expected a string, got %s", value.Kind())
		case len(n.nodes) == maxCandidates:
			return errTooMany
		}
		// Node names contain no backslashes, so a string with an escape never matches here.
		node := n.index.nodes[string(value[1:len(value)-1])]
		if node == nil {
			name, err := jsontext.AppendUnquote(nil, value)
			if err != nil {
				return err
			}
			node = n.index.node(string(name))
		}
		n.nodes = append(n.nodes, node)
	}
	_, err := decoder.ReadToken()
	return err
}

// nodeList is a v1.NodeList whose items are as kube-scheduler sent them.
type nodeList struct {
	Metadata struct{}         `json:"metadata"`
	Items    []jsontext.Value `json:"items"`
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
// preemption has nothing to look for there. The answer may share memory with b.
func (r *request) filtered(f *filtered, b *buffers) *filterResult {
	result := &filterResult{}
	admitted := f.admitted
	if f.admitsAll {
		admitted = make([]int, len(r.candidates))
		for i := range admitted {
			admitted[i] = i
		}
	}
	if r.nodes != nil {
		result.Nodes = &nodeList{Items: make([]jsontext.Value, len(admitted))}
		for at, i := range admitted {
			result.Nodes.Items[at] = r.nodes[i]
		}
	} else {
		b.names = slices.Grow(b.names[:0], len(admitted))
		for _, i := range admitted {
			b.names = append(b.names, r.candidates[i].name)
		}
		result.NodeNames = &b.names
	}
	if len(f.reasons) > 0 {
		result.FailedAndUnresolvableNodes = make(map[string]string, len(f.reasons))
		for i, reason := range f.reasons {
			result.FailedAndUnresolvableNodes[r.candidates[i].name] = reason
		}
	}
	return result
}

// priorities returns the answer to a prioritize request, in the order of the candidates. Without
// scores, all are 0. The answer shares memory with b.
func (r *request) priorities(scores []int64, b *buffers) extenderv1.HostPriorityList {
	b.priorities = slices.Grow(b.priorities[:0], len(r.candidates))
	for i, node := range r.candidates {
		priority := extenderv1.HostPriority{Host: node.name}
		if scores != nil {
			priority.Score = scores[i]
		}
		b.priorities = append(b.priorities, priority)
	}
	return b.priorities
}
