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
	// candidates are the names of the nodes that fit the pod.
	candidates []string
	// nodes are the candidates as kube-scheduler sent them, in the same order. They are nil if
	// kube-scheduler sent only names, because the extender is nodeCacheCapable.
	nodes []jsontext.Value
}

// withoutContainers ignores containers, which are the largest part of a pod. No decision depends on
// them.
var withoutContainers = json.WithUnmarshalers(json.UnmarshalFromFunc(func(decoder *jsontext.Decoder, _ *[]v1.Container) error {
	return decoder.SkipValue()
}))

// readRequest decodes a request. An error names the field, and the expected value.
func readRequest(body []byte) (*request, error) {
	var args struct {
		Pod       *v1.Pod
		NodeNames *[]string
		Nodes     *struct {
			Items []jsontext.Value `json:"items"`
		}
	}
	switch err := json.Unmarshal(body, &args, withoutContainers); {
	case err != nil:
		return nil, fmt.Errorf("expected the JSON of an ExtenderArgs: %w", err)
	case args.NodeNames != nil && len(*args.NodeNames) > maxCandidates:
		return nil, fmt.Errorf("args.NodeNames: %w", errTooMany)
	case args.Nodes != nil && len(args.Nodes.Items) > maxCandidates:
		return nil, fmt.Errorf("args.Nodes.items: %w", errTooMany)
	case args.Pod == nil:
		return nil, errors.New("args.Pod: expected the pod to schedule, got none")
	case args.Pod.Name == "" || args.Pod.UID == "":
		return nil, errors.New("args.Pod: expected one with metadata.name and metadata.uid")
	case (args.NodeNames != nil) == (args.Nodes != nil):
		return nil, errors.New("expected either NodeNames (nodeCacheCapable: true) or Nodes")
	case args.NodeNames != nil:
		return &request{pod: args.Pod, candidates: *args.NodeNames}, nil
	}
	r := &request{pod: args.Pod, nodes: args.Nodes.Items}
	if r.nodes == nil {
		r.nodes = []jsontext.Value{}
	}
	r.candidates = make([]string, len(r.nodes))
	for i, item := range r.nodes {
		var node struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(item, &node); err != nil {
			return nil, fmt.Errorf("args.Nodes.items[%d]: %w", i, err)
		}
		r.candidates[i] = node.Metadata.Name
	}
	return r, nil
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
// preemption has nothing to look for there.
func (r *request) filtered(f *filtered) *filterResult {
	result := &filterResult{}
	if r.nodes != nil {
		result.Nodes = &nodeList{Items: make([]jsontext.Value, len(f.admitted))}
		for at, i := range f.admitted {
			result.Nodes.Items[at] = r.nodes[i]
		}
	} else {
		names := make([]string, len(f.admitted))
		for at, i := range f.admitted {
			names[at] = r.candidates[i]
		}
		result.NodeNames = &names
	}
	if len(f.reasons) > 0 {
		result.FailedAndUnresolvableNodes = make(map[string]string, len(f.reasons))
		for i, reason := range f.reasons {
			result.FailedAndUnresolvableNodes[r.candidates[i]] = reason
		}
	}
	return result
}

// priorities returns the answer to a prioritize request, in the order of the candidates.
func (r *request) priorities(scores []int64) extenderv1.HostPriorityList {
	priorities := make(extenderv1.HostPriorityList, len(r.candidates))
	for i, name := range r.candidates {
		priorities[i] = extenderv1.HostPriority{Host: name, Score: scores[i]}
	}
	return priorities
}

// readPreemption decodes a preemption request. It returns the pod to make room for and its victims
// by the name of their node.
func readPreemption(body []byte) (*v1.Pod, map[string]*extenderv1.MetaVictims, error) {
	var args extenderv1.ExtenderPreemptionArgs
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, nil, fmt.Errorf("expected the JSON of an ExtenderPreemptionArgs: %w", err)
	}
	if args.Pod == nil {
		return nil, nil, errors.New("args.Pod: expected the pod to make room for, got none")
	}
	permitted := map[string]*extenderv1.MetaVictims{}
	for name, victims := range args.NodeNameToMetaVictims {
		if victims == nil || slices.Contains(victims.Pods, nil) {
			return nil, nil, fmt.Errorf("args.NodeNameToMetaVictims[%q]: expected an object whose Pods are objects, got null", name)
		}
		permitted[name] = victims
	}
	for name, victims := range args.NodeNameToVictims {
		if victims == nil || slices.Contains(victims.Pods, nil) {
			return nil, nil, fmt.Errorf("args.NodeNameToVictims[%q]: expected an object whose Pods are objects, got null", name)
		}
		permitted[name] = &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
		for _, pod := range victims.Pods {
			permitted[name].Pods = append(permitted[name].Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
		}
	}
	return args.Pod, permitted, nil
}
