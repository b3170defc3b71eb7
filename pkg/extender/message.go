package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxCandidates is how many nodes a request may name: of a short name's few bytes decoding makes many times as much memory.
const maxCandidates = 100_000

var errTooMany = fmt.Errorf("expected at most %d nodes", maxCandidates)

// podFields are fields of a Pod by name: a func(*v1.Pod) any that returns the variable for the value, or podFields for those of an object.
type podFields map[string]any

// podRead are those that a decision reads, and those that an event about a pod says. To decode no more takes less time, and no body makes
// much more memory of it than it has bytes.
var podRead = podFields{
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

// read reads an object's fields into the pod, and no others. What it reads shares no memory with what the scanner reads.
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
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
}

// request is an ExtenderArgs of k8s.io/kube-scheduler/extender/v1, read as far as a decision needs it. Most of it are the names of
// nodes, thousands of them: encoding/json takes longer to read them than everything else takes together.
type request struct {
	pod *v1.Pod
	// names are the candidates.
	names *nameList
	// verbatim: the names stand in JSON as they are, because they stood so in the request.
	verbatim bool
	// items are the candidates as they came, if the scheduler does not believe this extender to know its nodes; nil otherwise.
	items []json.RawMessage
}

// readRequest reads body, which must not be changed as long as the request is in use, and the names of the candidates into names.
func readRequest(body []byte, names *nameList) (*request, error) {
	r := &request{names: names}
	names.reset(body)
	var nodes []byte
	given := false
	s := &scanner{data: body}
	err := s.object(func(key string) (err error) {
		switch {
		case s.null():
		case strings.EqualFold(key, "Pod"):
			r.pod = &v1.Pod{}
			if err = podRead.read(s, r.pod); err != nil {
				err = fmt.Errorf("args.Pod: %w", err)
			}
		case strings.EqualFold(key, "Nodes"):
			nodes, err = s.value()
		case strings.EqualFold(key, "NodeNames"):
			given = true
			err = s.names(r.names, maxCandidates)
		default:
			_, err = s.value()
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	switch {
	case errors.Is(err, errTooMany):
		return nil, fmt.Errorf("args.NodeNames: %w", err)
	case err != nil:
		return nil, fmt.Errorf("expected the JSON of an ExtenderArgs: %w", err)
	}
	if r.pod == nil {
		return nil, errors.New("args.Pod: expected the pod to place, got none")
	}
	if r.pod.Name == "" || r.pod.UID == "" {
		return nil, errors.New("args.Pod: expected one with metadata.name and metadata.uid")
	}
	switch {
	case given == (nodes != nil):
		return nil, errors.New("expected either NodeNames (nodeCacheCapable: true) or Nodes")
	case given:
		r.verbatim = !names.copied
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
	r.names.reset(nil)
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

// appendFiltered appends the ExtenderFilterResult that tells of a decision. All refusals are unresolvable: removing other pods from the
// node changes neither the budget nor the node's fate, so preemption has nothing to look for there.
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

// appendScores appends the HostPriorityList with the scores, in the order of the candidates; nil are all the same.
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
	if r.verbatim {
		return append(append(append(out, '"'), r.names.at(i)...), '"')
	}
	return appendString(out, r.names.at(i))
}

// appendError appends the ExtenderFilterResult that says why nothing could be decided.
func appendError(out []byte, err error) []byte {
	return append(appendString(append(out, `{"Error":`...), err.Error()), '}')
}

// appendString appends s as JSON.
func appendString(out []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string has no error
	return append(out, quoted...)
}
