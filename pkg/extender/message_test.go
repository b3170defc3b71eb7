package extender

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
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
	names := []string{"a", `with "quotes", \ and ü`, ""}
	for name, test := range map[string]struct {
		result filterResult
		want   extenderv1.ExtenderFilterResult
	}{
		"all":  {filterResult{NodeNames: &names}, extenderv1.ExtenderFilterResult{NodeNames: &names}},
		"none": {filterResult{NodeNames: new([]string)}, extenderv1.ExtenderFilterResult{NodeNames: &[]string{}}},
		"refused": {filterResult{NodeNames: new([]string), FailedAndUnresolvableNodes: map[string]string{names[1]: "why", "": "not"}},
			extenderv1.ExtenderFilterResult{
				NodeNames: &[]string{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{names[1]: "why", "": "not"},
			}},
		"error": {filterResult{Error: "no"}, extenderv1.ExtenderFilterResult{Error: "no"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &bodyWriter{header: http.Header{}}
			write(w, test.result)
			var got extenderv1.ExtenderFilterResult
			if err := json.Unmarshal(w.body, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
	pod := podOf("web", 0)
	pod.Spec.Containers = []v1.Container{{Name: "app"}}
	got, err := read(strings.NewReader(string(asJSON(t, extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}))), filterVerb)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&request{Pod: pod, NodeNames: &names}, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// bodyWriter records an answer.
type bodyWriter struct {
	header http.Header
	body   []byte
}

func (w *bodyWriter) Header() http.Header         { return w.header }
func (w *bodyWriter) WriteHeader(int)             {}
func (w *bodyWriter) Write(p []byte) (int, error) { w.body = append(w.body, p...); return len(p), nil }

func TestBadRequests(t *testing.T) {
	const pod = `{"metadata":{"name":"p","uid":"u"}}`
	const noNames = "NodeNames: expected the names of nodes (nodeCacheCapable: true)"
	for name, test := range map[string]struct{ body, want string }{
		"empty":                 {"", "expected the JSON of the arguments of filter"},
		"no object":             {"[]", "expected the JSON of the arguments of filter"},
		"truncated":             {`{"Pod":` + pod + `,"NodeNames":["a","b`, "expected the JSON of the arguments of filter"},
		"trailing data":         {`{"Pod":` + pod + `,"NodeNames":["a"]} x`, "expected the JSON of the arguments of filter"},
		"no pod":                {`{"NodeNames":["a"]}`, "Pod: expected the pod to schedule"},
		"pod null":              {`{"Pod":null,"NodeNames":["a"]}`, "Pod: expected the pod to schedule"},
		"pod without name":      {`{"Pod":{},"NodeNames":["a"]}`, "Pod: expected one with metadata.name and metadata.uid"},
		"broken pod":            {`{"Pod":{"metadata":{"name":},"NodeNames":["a"]}`, "expected the JSON of the arguments of filter"},
		"pod of another type":   {`{"Pod":{"metadata":5},"NodeNames":["a"]}`, `"/Pod/metadata"`},
		"no nodes":              {`{"Pod":` + pod + `}`, noNames},
		"nodes, no names":       {`{"Pod":` + pod + `,"NodeNames":null,"Nodes":{"items":[]}}`, noNames},
		"numbers for names":     {`{"Pod":` + pod + `,"NodeNames":["a",1]}`, `JSON number into Go string within "/NodeNames/1"`},
		"a name for the names":  {`{"Pod":` + pod + `,"NodeNames":"a"}`, `JSON string into Go []string within "/NodeNames"`},
		"a bad escape":          {`{"Pod":` + pod + `,"NodeNames":["\u00g0"]}`, `invalid escape sequence`},
		"invalid UTF-8":         {`{"Pod":` + pod + `,"NodeNames":["` + "\xff" + `"]}`, "invalid UTF-8"},
		"two pods":              {`{"Pod":` + pod + `,"Pod":` + pod + `,"NodeNames":[]}`, `duplicate object member name "Pod"`},
		"containers of no type": {`{"Pod":{"spec":{"containers":7}},"NodeNames":[]}`, `"/Pod/spec/containers"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(strings.NewReader(test.body), filterVerb); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// A request may contain a name with escapes and a field of a later kube-scheduler.
func TestCandidates(t *testing.T) {
	r, err := read(strings.NewReader(`{"Pod":{"metadata":{"name":"p","uid":"u"}},"Later":[{}], "NodeNames" : [ "b", "\u0061" ]}`), filterVerb)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&[]string{"b", "a"}, r.NodeNames); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}
