package extender

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"
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
		filtered Filtered
		want     extenderv1.ExtenderFilterResult
	}{
		"all":     {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}, Filtered{All: true}, extenderv1.ExtenderFilterResult{NodeNames: &names}},
		"one":     {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}, Filtered{Kept: []int{1}}, extenderv1.ExtenderFilterResult{NodeNames: &[]string{names[1]}}},
		"no node": {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &[]string{}}, Filtered{}, extenderv1.ExtenderFilterResult{NodeNames: &[]string{}}},
		"none": {extenderv1.ExtenderArgs{Pod: pod, NodeNames: &names}, Filtered{Reasons: []string{"why", "why", "not"}}, extenderv1.ExtenderFilterResult{
			NodeNames: &[]string{}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{names[0]: "why", names[1]: "why", "": "not"},
		}},
		"all nodes": {extenderv1.ExtenderArgs{Pod: pod, Nodes: nodes}, Filtered{All: true}, extenderv1.ExtenderFilterResult{Nodes: nodes}},
		"one node": {extenderv1.ExtenderArgs{Pod: pod, Nodes: nodes}, Filtered{Kept: []int{1}}, extenderv1.ExtenderFilterResult{
			Nodes: &v1.NodeList{Items: nodes.Items[1:]},
		}},
		"none of the nodes": {extenderv1.ExtenderArgs{Pod: pod, Nodes: nodes}, Filtered{Reasons: []string{"why", "not"}}, extenderv1.ExtenderFilterResult{
			Nodes: &v1.NodeList{Items: []v1.Node{}}, FailedAndUnresolvableNodes: extenderv1.FailedNodesMap{"a": "why", "b": "not"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := readRequest(asJSON(t, test.args), new(nameList))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(pod, r.pod); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			var got extenderv1.ExtenderFilterResult
			if err := json.Unmarshal(r.appendFiltered(nil, &test.filtered), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			scores := make([]int64, r.names.len())
			for i := range scores {
				scores[i] = int64(10 * i)
			}
			var list extenderv1.HostPriorityList
			if err := json.Unmarshal(r.appendScores(nil, scores), &list); err != nil {
				t.Fatal(err)
			}
			for i, host := range list {
				if host != (extenderv1.HostPriority{Host: r.names.at(i), Score: scores[i]}) {
					t.Errorf("score %d: %+v", i, host)
				}
			}
			if len(list) != len(scores) {
				t.Errorf("%d scores, want %d", len(list), len(scores))
			}
		})
	}
}

// The decoder reads the fields that a decision needs, and no others.
func TestReadPod(t *testing.T) {
	want := podOf("web", 0)
	want.Annotations = map[string]string{"a": `with "quotes" and \ {`}
	want.Labels, want.ResourceVersion = map[string]string{"app": "web"}, "7"
	want.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	want.Spec.NodeName, want.Spec.PriorityClassName, want.Spec.Priority = "node", "high", new(int32(7))
	want.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	want.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}}
	want.Status.Phase, want.Status.QOSClass = v1.PodPending, v1.PodQOSBurstable
	whole := want.DeepCopy()
	whole.Spec.Containers = []v1.Container{{Name: "app", Env: []v1.EnvVar{{Name: "nodeName", Value: `}"spec":{`}}}}
	whole.Spec.Tolerations = []v1.Toleration{{Key: "k"}}
	whole.Status.HostIP = "1.2.3.4"
	whole.Finalizers, whole.ManagedFields = []string{"f"}, []metav1.ManagedFieldsEntry{{Manager: "m"}}
	got := &v1.Pod{}
	body := asJSON(t, whole)
	if err := decisionFields.read(&scanner{data: body}, got); err != nil {
		t.Fatal(err)
	}
	clear(body) // the pod outlives the body
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Names are copied verbatim from the request unless one of the names has an escape. Escapes
// elsewhere have no effect.
func TestVerbatimNames(t *testing.T) {
	for name, test := range map[string]struct{ pod, names, want string }{
		"nothing escaped": {`p`, `["<a>","b"]`, `["<a>","b"]`},
		"in the pod only": {`\"p\\`, `["<a>","b"]`, `["<a>","b"]`},
		"in one name":     {`p`, `["<a>","\u0062","c"]`, `["\u003ca\u003e","b","c"]`},
	} {
		t.Run(name, func(t *testing.T) {
			pod, names := `"Pod":{"metadata":{"name":"`+test.pod+`","uid":"u"}}`, `"NodeNames":`+test.names
			for _, body := range []string{`{` + pod + `,` + names + `}`, `{` + names + `,` + pod + `}`} {
				list := new(nameList)
				list.add("of an earlier request")
				r, err := readRequest([]byte(body), list)
				if err != nil {
					t.Fatal(err)
				}
				if got := string(r.appendFiltered(nil, &Filtered{All: true})); got != `{"NodeNames":`+test.want+`}` {
					t.Errorf("%s: answered %s", body, got)
				}
			}
		})
	}
}

// Names are read as encoding/json reads them, and answers return them, regardless of formatting and
// of other fields. A truncated body is rejected.
func TestNames(t *testing.T) {
	list := new(nameList) // reused, as the server does
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9.-]{1,40}`))).Draw(t, "names")
		extra := rapid.MapOf(rapid.StringMatching(`x[a-z"\\]{0,5}`), rapid.OneOf(rapid.Just[any](nil), rapid.Just[any](1.5), rapid.Just[any](true),
			rapid.Map(rapid.String(), func(s string) any { return []any{s, map[string]any{s: `]}"\`}} }))).Draw(t, "extra")
		extra["Pod"], extra["nodeNames"], extra["Nodes"] = podOf("web", 0), names, nil
		body, err := json.Marshal(extra)
		if err != nil {
			t.Fatal(err)
		}
		var want extenderv1.ExtenderArgs // because invalid UTF-8 changes in a round trip
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indented") {
			var out bytes.Buffer
			if err := json.Indent(&out, body, "\t", "  "); err != nil {
				t.Fatal(err)
			}
			body = out.Bytes()
		}
		r, err := readRequest(body, list)
		if err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		var answer extenderv1.ExtenderFilterResult
		if err := json.Unmarshal(r.appendFiltered(nil, &Filtered{All: true}), &answer); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string(*want.NodeNames), []string(*answer.NodeNames)); diff != "" || !slices.Equal(r.names.all(), *want.NodeNames) {
			t.Errorf("read %q, answered (-want +got):\n%s", r.names.all(), diff)
		}
		if len(r.names.hashes) != r.names.len() {
			t.Fatalf("%d hashes of %d names", len(r.names.hashes), r.names.len())
		}
		for i, hash := range r.names.hashes {
			if name := r.names.at(i); hash != hashOf(name) {
				t.Errorf("wrong hash of %q", name)
			}
		}
		if cut := rapid.IntRange(0, len(body)-1).Draw(t, "cut"); !json.Valid(body[:cut]) {
			if _, err := readRequest(body[:cut], list); err == nil {
				t.Errorf("accepted a truncated body: %s", body[:cut])
			}
		}
	})
}

func TestBadRequests(t *testing.T) {
	const pod = `{"metadata":{"name":"p","uid":"u"}}`
	for name, test := range map[string]struct{ body, want string }{
		"empty":                  {"", "expected the JSON of an ExtenderArgs"},
		"no object":              {"[]", "expected the JSON of an ExtenderArgs"},
		"truncated":              {`{"Pod":` + pod + `,"NodeNames":["a","b`, "expected the JSON of an ExtenderArgs"},
		"trailing data":          {`{"Pod":` + pod + `,"NodeNames":["a"]} x`, "expected the JSON of an ExtenderArgs"},
		"no pod":                 {`{"NodeNames":["a"]}`, "Pod: expected the pod to place"},
		"pod null":               {`{"Pod":null,"NodeNames":["a"]}`, "Pod: expected the pod to place"},
		"pod without name":       {`{"Pod":{},"NodeNames":["a"]}`, "Pod: expected one with metadata.name and metadata.uid"},
		"broken pod":             {`{"Pod":{"metadata":{"name":},"NodeNames":["a"]}`, "args.Pod: metadata: name: expected a string"},
		"pod of another type":    {`{"Pod":{"metadata":5},"NodeNames":["a"]}`, "Pod: "},
		"pod too long":           {`{"Pod":{"metadata":{"ownerReferences":[` + strings.Repeat(`{},`, maxPod/3) + `{}]}},"NodeNames":["a"]}`, "args.Pod: expected at most 2097152 bytes, got 20971"},
		"two pods":               {`{"Pod":` + pod + `,"pod":` + pod + `,"NodeNames":["a"]}`, "args.pod: expected no more than one"},
		"nodes twice":            {`{"Pod":` + pod + `,"Nodes":{},"Nodes":{}}`, "args.Nodes: expected no more than one"},
		"names twice":            {`{"Pod":` + pod + `,"NodeNames":["a"],"NodeNames":["a"]}`, "args.NodeNames: expected no more than one"},
		"no nodes":               {`{"Pod":` + pod + `}`, "expected either NodeNames"},
		"names and nodes":        {`{"Pod":` + pod + `,"NodeNames":[],"Nodes":{"items":[]}}`, "expected either NodeNames"},
		"numbers for names":      {`{"Pod":` + pod + `,"NodeNames":[1]}`, "args.NodeNames: expected a string"},
		"nodes of another type":  {`{"Pod":` + pod + `,"Nodes":[]}`, "Nodes: "},
		"a node of another type": {`{"Pod":` + pod + `,"Nodes":{"items":[{"metadata":{"name":"a"}},7]}}`, "Nodes.items[1]: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readRequest([]byte(test.body), new(nameList)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// all returns all names.
func (n *nameList) all() []string {
	all := make([]string, n.len())
	for i := range all {
		all[i] = n.at(i)
	}
	return all
}
