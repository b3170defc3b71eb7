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

// readPod reads what a decision reads of a Pod. To decode no more takes less time, and no body makes much more memory of it than it has
// bytes.
func readPod(data []byte) (*v1.Pod, error) {
	pod := &v1.Pod{}
	var spec, status []byte
	err := errors.Join(
		readFields(data, map[string]any{"metadata": &pod.ObjectMeta, "spec": &spec, "status": &status}),
		readFields(spec, map[string]any{
			"schedulerName": &pod.Spec.SchedulerName, "nodeName": &pod.Spec.NodeName,
			"priorityClassName": &pod.Spec.PriorityClassName, "priority": &pod.Spec.Priority,
			"nodeSelector": &pod.Spec.NodeSelector, "affinity": &pod.Spec.Affinity,
		}),
		readFields(status, map[string]any{"phase": &pod.Status.Phase, "qosClass": &pod.Status.QOSClass}),
	)
	return pod, err
}

// readFields reads an object's fields into the variables of their names, and no others: a *[]byte gets the bytes. Without data it does
// nothing.
func readFields(data []byte, into map[string]any) error {
	if data == nil {
		return nil
	}
	s := &scanner{data: data}
	return s.object(func(key string) error {
		if s.null() {
			return nil
		}
		value, err := s.value()
		switch field := into[key].(type) {
		case nil:
		case *[]byte:
			*field = value
		default:
			if err == nil {
				err = json.Unmarshal(value, field)
			}
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
	var pod, nodes []byte
	given := false
	s := &scanner{data: body}
	err := s.object(func(key string) (err error) {
		switch {
		case s.null():
		case strings.EqualFold(key, "Pod"):
			pod, err = s.value()
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
	if pod == nil {
		return nil, errors.New("args.Pod: expected the pod to place, got none")
	}
	if r.pod, err = readPod(pod); err != nil {
		return nil, fmt.Errorf("args.Pod: %w", err)
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
