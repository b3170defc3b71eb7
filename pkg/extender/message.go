package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxCandidates limits the nodes in a request. maxPod limits the pod in it, in bytes; etcd
	// stores at most 1.5 MiB. Without these limits, a few bytes of input could decode to many times
	// as much memory.
	maxCandidates = 100_000
	maxPod        = 2 << 20
)

var errTooMany = fmt.Errorf("expected at most %d nodes", maxCandidates)

// podFields maps field names to their destinations in a Pod. A func(*v1.Pod) any returns the
// address of the variable; a podFields has the fields of a nested object.
type podFields map[string]any

// decisionFields are the fields that a decision reads, and the fields by which an event names the
// pod. Decoding only these saves time, and bounds the memory that a body can cause to be allocated.
var decisionFields = podFields{
	"metadata": podFields{
		"namespace":         func(p *v1.Pod) any { return &p.Namespace },
		"name":              func(p *v1.Pod) any { return &p.Name },
		"uid":               func(p *v1.Pod) any { return (*string)(&p.UID) },
		"resourceVersion":   func(p *v1.Pod) any { return &p.ResourceVersion },
		"labels":            func(p *v1.Pod) any { return &p.Labels },
		"annotations":       func(p *v1.Pod) any { return &p.Annotations },
		"ownerReferences":   func(p *v1.Pod) any { return &p.OwnerReferences },
		"deletionTimestamp": func(p *v1.Pod) any { return &p.DeletionTimestamp },
	},
	"spec": podFields{
		"schedulerName":     func(p *v1.Pod) any { return &p.Spec.SchedulerName },
		"nodeName":          func(p *v1.Pod) any { return &p.Spec.NodeName },
		"priorityClassName": func(p *v1.Pod) any { return &p.Spec.PriorityClassName },
		"priority":          func(p *v1.Pod) any { return &p.Spec.Priority },
		"nodeSelector":      func(p *v1.Pod) any { return &p.Spec.NodeSelector },
		"affinity":          func(p *v1.Pod) any { return &p.Spec.Affinity },
	},
	"status": podFields{
		"phase":    func(p *v1.Pod) any { return (*string)(&p.Status.Phase) },
		"qosClass": func(p *v1.Pod) any { return (*string)(&p.Status.QOSClass) },
	},
}

// read reads the fields in f of an object into the pod and skips all others. The pod shares no
// memory with data: the register and events use parts of the pod after the body's memory is reused.
func (f podFields) read(s *scanner, pod *v1.Pod) error {
	return s.object(func(key string) (err error) {
		if s.null() {
			return nil
		}
		switch field := f[key].(type) {
		case podFields:
			err = field.read(s, pod)
		case func(*v1.Pod) any:
			err = s.into(field(pod))
		default:
			_, err = s.value()
		}
		if err != nil && f[key] != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
}

// readPod reads a pod of at most maxPod bytes.
func readPod(s *scanner) (*v1.Pod, error) {
	s.firstBackslash() // so that the copy does not search for it again
	pod, head := &v1.Pod{}, *s
	head.data = s.data[:min(len(s.data), s.at+maxPod)]
	if err := decisionFields.read(&head, pod); err != nil {
		if whole, _ := s.value(); len(whole) > maxPod {
			err = fmt.Errorf("expected at most %d bytes, got %d", maxPod, len(whole))
		}
		return nil, err
	}
	s.at = head.at
	return pod, nil
}

// request is an ExtenderArgs of k8s.io/kube-scheduler/extender/v1, with the fields that a decision
// needs. Most of it is thousands of node names. encoding/json needs more time for these than the
// rest of the request needs.
type request struct {
	pod *v1.Pod
	// names has the names of the candidates.
	names *nameList
	// items has the candidates as raw JSON if the scheduler sent Nodes (nodeCacheCapable: false);
	// nil otherwise.
	items []json.RawMessage
}

// readRequest reads body, and the names of the candidates into names. body must not change while
// the request is in use.
func readRequest(body []byte, names *nameList) (*request, error) {
	r := &request{names: names}
	names.reset(body)
	var nodes []byte
	var given []string // the arguments that were read, in lower case
	s := &scanner{data: body}
	err := s.object(func(key string) (err error) {
		if s.null() {
			return nil
		}
		argument := strings.ToLower(key)
		switch {
		case slices.Contains(given, argument):
			err = errors.New("expected no more than one")
		case argument == "pod":
			r.pod, err = readPod(s)
		case argument == "nodes":
			nodes, err = s.value()
		case argument == "nodenames":
			err = s.names(r.names)
		default:
			_, err = s.value()
			return err
		}
		given = append(given, argument)
		if err != nil {
			err = fmt.Errorf("args.%s: %w", key, err)
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, fmt.Errorf("expected the JSON of an ExtenderArgs: %w", err)
	}
	if r.pod == nil {
		return nil, errors.New("args.Pod: expected the pod to place, got none")
	}
	if r.pod.Name == "" || r.pod.UID == "" {
		return nil, errors.New("args.Pod: expected one with metadata.name and metadata.uid")
	}
	byName := slices.Contains(given, "nodenames")
	if byName == (nodes != nil) {
		return nil, errors.New("expected either NodeNames (nodeCacheCapable: true) or Nodes")
	}
	if byName {
		return r, nil
	}
	return r, r.readNodes(nodes)
}

// readNodes reads a NodeList.
func (r *request) readNodes(data []byte) error {
	r.items = []json.RawMessage{}
	s := &scanner{data: data}
	err := s.object(func(key string) error {
		if s.null() {
			return nil
		}
		if !strings.EqualFold(key, "items") {
			_, err := s.value()
			return err
		}
		return s.array(func() error {
			if len(r.items) == maxCandidates {
				return errTooMany
			}
			item, err := s.value()
			r.items = append(r.items, item)
			return err
		})
	})
	switch {
	case errors.Is(err, errTooMany):
		return fmt.Errorf("args.Nodes.items: %w", err)
	case err != nil:
		return fmt.Errorf("args.Nodes: %w", err)
	}
	for i, item := range r.items {
		var node struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(item, &node); err != nil {
			return fmt.Errorf("args.Nodes.items[%d]: %w", i, err)
		}
		r.names.add(node.Metadata.Name)
	}
	return nil
}

// appendFiltered appends the ExtenderFilterResult of a decision. All refusals are unresolvable:
// evicting other pods from the node changes neither the budget nor the node's interruption signals.
// So preemption cannot help.
func (r *request) appendFiltered(out []byte, f *Filtered) []byte {
	out = append(out, '{')
	kept := func(each func(i int)) {
		if f.All {
			for i := range r.names.len() {
				each(i)
			}
			return
		}
		for _, i := range f.Kept {
			each(i)
		}
	}
	first := true
	comma := func() {
		if !first {
			out = append(out, ',')
		}
		first = false
	}
	if r.items != nil {
		out = append(out, `"Nodes":{"metadata":{},"items":[`...)
		kept(func(i int) {
			comma()
			out = append(out, r.items[i]...)
		})
		out = append(out, `]}`...)
	} else {
		out = append(out, `"NodeNames":[`...)
		kept(func(i int) {
			comma()
			out = r.appendName(out, i)
		})
		out = append(out, ']')
	}
	if len(f.Reasons) > 0 {
		out = append(out, `,"FailedAndUnresolvableNodes":{`...)
		first = true
		quoted := map[string][]byte{}
		for i, reason := range f.Reasons {
			comma()
			out = append(r.appendName(out, i), ':')
			if quoted[reason] == nil {
				quoted[reason] = appendString(nil, reason)
			}
			out = append(out, quoted[reason]...)
		}
		out = append(out, '}')
	}
	return append(out, '}')
}

// appendScores appends the HostPriorityList with the scores, in the order of the candidates. If
// scores is nil, all are 0.
func (r *request) appendScores(out []byte, scores []int64) []byte {
	out = append(out, '[')
	for i := range r.names.len() {
		if i > 0 {
			out = append(out, ',')
		}
		score := int64(0)
		if scores != nil {
			score = scores[i]
		}
		out = append(r.appendName(append(out, `{"Host":`...), i), `,"Score":`...)
		out = append(strconv.AppendInt(out, score, 10), '}')
	}
	return append(out, ']')
}

// appendName appends the name of a candidate as JSON.
func (r *request) appendName(out []byte, i int) []byte {
	if len(r.names.copies) == 0 { // no name in the request has an escape, so it can be copied
		return append(append(append(out, '"'), r.names.at(i)...), '"')
	}
	return appendString(out, r.names.at(i))
}

// appendError appends an ExtenderFilterResult with an error.
func appendError(out []byte, err error) []byte {
	return append(appendString(append(out, `{"Error":`...), err.Error()), '}')
}

// appendString appends s as JSON.
func appendString(out []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string cannot fail
	return append(out, quoted...)
}
