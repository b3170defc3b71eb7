package extender

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The decoder accepts the JSON of kube-scheduler's own types, and they accept the encoder's output.
func TestMessages(t *testing.T) {
	pod := podOf("web", 0)
	names := []string{"a", `with "quotes", \ and ü`, ""}
	nodes := &v1.NodeList{Items: []v1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}},
	}}
	for name, test := range map[string]struct {
		args     extenderv1.ExtenderArgs
		filtered filtered
		want     extenderv1.ExtenderFilterResult
	}{
		"all":     {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}, filtered{admitted: []int{0, 1, 2}}, extenderv1.ExtenderFilterResult{NodeNames: &names}},
		"one":     {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}, filtered{admitted: []int{1}}, extenderv1.ExtenderFilterResult{NodeNames: &[]string{names[1]}}},
		"no node": {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{}}, filtered{}, extenderv1.ExtenderFilterResult{NodeNames: &[]string{}}},
		"none": {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}, filtered{reasons: []string{"why", "why", "not"}}, extenderv1.ExtenderFilterResult{
			NodeNames: &[]string{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{names[0]: "why", names[1]: "why", "": "not"},
		}},
		"all nodes": {extenderv1.ExtenderArgs{Pod: pod, Nodes: nodes}, filtered{admitted: []int{0, 1}}, extenderv1.ExtenderFilterResult{Nodes: nodes}},
		"one node": {extenderv1.ExtenderArgs{Pod: pod, Nodes: nodes}, filtered{admitted: []int{1}}, extenderv1.ExtenderFilterResult{
			Nodes: &v1.NodeList{Items: nodes.Items[1:]},
		}},
		"none of the nodes": {extenderv1.ExtenderArgs{Pod: pod, Nodes: nodes}, filtered{reasons: []string{"why", "not"}}, extenderv1.ExtenderFilterResult{
			Nodes: &v1.NodeList{Items: []v1.Node{}}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"a": "why", "b": "not"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := readRequest(asJSON(t, test.args))
			if err != nil {
				t.Fatal(err)
			}
			want := pod.DeepCopy()
			want.Spec.Containers = nil
			if diff := cmp.Diff(want, r.pod); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			var got extenderv1.ExtenderFilterResult
			if err := json.Unmarshal(asJSON(t, r.filtered(&test.filtered)), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			scores := make([]int64, len(r.candidates))
			for i := range scores {
				scores[i] = int64(10 * i)
			}
			var list extenderv1.HostPriorityList
			if err := json.Unmarshal(asJSON(t, r.priorities(scores)), &list); err != nil {
				t.Fatal(err)
			}
			for i, host := range list {
				if host != (extenderv1.HostPriority{Host: r.candidates[i], Score: scores[i]}) {
					t.Errorf("score %d: %+v", i, host)
				}
			}
			if len(list) != len(scores) {
				t.Errorf("%d scores, want %d", len(list), len(scores))
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	const pod = `{"metadata":{"name":"p","uid":"u"}}`
	for name, test := range map[string]struct{ body, want string }{
		"empty":                  {"", "expected the JSON of an ExtenderArgs"},
		"no object":              {"[]", "expected the JSON of an ExtenderArgs"},
		"truncated":              {`{"Pod":` + pod + `,"NodeNames":["a","b`, "expected the JSON of an ExtenderArgs"},
		"trailing data":          {`{"Pod":` + pod + `,"NodeNames":["a"]} x`, "expected the JSON of an ExtenderArgs"},
		"no pod":                 {`{"NodeNames":["a"]}`, "Pod: expected the pod to schedule"},
		"pod null":               {`{"Pod":null,"NodeNames":["a"]}`, "Pod: expected the pod to schedule"},
		"pod without name":       {`{"Pod":{},"NodeNames":["a"]}`, "Pod: expected one with metadata.name and metadata.uid"},
		"broken pod":             {`{"Pod":{"metadata":{"name":},"NodeNames":["a"]}`, "expected the JSON of an ExtenderArgs"},
		"pod of another type":    {`{"Pod":{"metadata":5},"NodeNames":["a"]}`, `"/Pod/metadata"`},
		"no nodes":               {`{"Pod":` + pod + `}`, "expected either NodeNames"},
		"names and nodes":        {`{"Pod":` + pod + `,"NodeNames":[],"Nodes":{"items":[]}}`, "expected either NodeNames"},
		"null for both":          {`{"Pod":` + pod + `,"NodeNames":null,"Nodes":null}`, "expected either NodeNames"},
		"numbers for names":      {`{"Pod":` + pod + `,"NodeNames":["a",1]}`, `JSON number into Go string within "/NodeNames/1"`},
		"a name for the names":   {`{"Pod":` + pod + `,"NodeNames":"a"}`, `JSON string into Go []string within "/NodeNames"`},
		"a bad escape":           {`{"Pod":` + pod + `,"NodeNames":["\u00g0"]}`, `invalid escape sequence`},
		"invalid UTF-8":          {`{"Pod":` + pod + `,"NodeNames":["` + "\xff" + `"]}`, "invalid UTF-8"},
		"two pods":               {`{"Pod":` + pod + `,"Pod":` + pod + `,"NodeNames":[]}`, `duplicate object member name "Pod"`},
		"nodes of another type":  {`{"Pod":` + pod + `,"Nodes":[]}`, "Nodes"},
		"a node of another type": {`{"Pod":` + pod + `,"Nodes":{"items":[{"metadata":{"name":"a"}},7]}}`, "Nodes.items[1]: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readRequest([]byte(test.body)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// A request may contain a name with escapes and a field of a later kube-scheduler.
func TestCandidates(t *testing.T) {
	r, err := readRequest([]byte(`{"Pod":{"metadata":{"name":"p","uid":"u"}},"Later":[{}], "NodeNames" : [ "b", "\u0061" ]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b", "a"}, r.candidates); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}
