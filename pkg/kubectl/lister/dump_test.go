package lister_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

const dumped = `
	node od on-demand m/a
	node sp spot m/a
	deployment web 3 od sp sp
	statefulset db 2 od - volume=a
	job sum 1 sp
	pod bare od`

// dumpOf returns objects in the form of kubectl get -o json.
func dumpOf(t testing.TB, objects ...runtime.Object) string {
	t.Helper()
	items := []any{}
	for _, object := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
		if meta := object.(metav1.Object); meta.GetUID() == "" {
			meta.SetUID("uid")
		}
		items = append(items, object)
	}
	data, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items}, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// write writes files to a new folder. It returns the folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// summary has the facts of a cluster that do not depend on how it was read.
func summary(t *testing.T, listed *lister.Objects) (lines []string) {
	t.Helper()
	s, err := listed.Snapshot(clustertest.BasicPolicy, providers.Signals(), clustertest.Profile, clustertest.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Nodes {
		lines = append(lines, strings.Join([]string{n.Name, n.Facts.Capacity.Type.String(), n.Facts.Pool.Zone, n.Status.Allocatable.Cpu().String()}, " "))
	}
	for _, p := range s.Pods {
		volumes := ""
		for _, volume := range p.Volumes {
			volumes += volume.Name
		}
		lines = append(lines, strings.Join([]string{p.Name, p.Spec.NodeName, p.Workload.Kind, p.Workload.Name, p.Requests.Cpu().String(), volumes}, " "))
	}
	for _, budget := range s.Budgets[clustertest.Namespace] {
		lines = append(lines, budget.Name)
	}
	return lines
}

// A dump has the same content as its cluster, in one file, in several, and in lists of one kind
// whose items do not name it.
func TestLoad(t *testing.T) {
	objects := append(clustertest.Objects(dumped), clustertest.NewBudget("web", 1))
	done := clustertest.NewPod("done")
	done.Status.Phase = v1.PodSucceeded
	live, err := lister.List(t.Context(), listertest.New(t, objects...).Client(), lister.Scope{Volumes: true, DisruptionBudgets: true})
	if err != nil {
		t.Fatal(err)
	}
	want := summary(t, live)
	dump := dumpOf(t, append(objects, done, &v1.ConfigMap{ObjectMeta: clustertest.Meta("ignored")})...)
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(dump)); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, object := range clustertest.Objects("node od on-demand m/a\nnode sp spot m/a") {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, string(text))
	}
	for name, files := range map[string]map[string]string{
		"one file":        {"a.json": dump},
		"compact":         {"a.json": compact.String()},
		"several files":   {"a.json": dumpOf(t, objects[:3]...), "b.json": dumpOf(t, objects[3:]...), "c.json": dumpOf(t), "README.md": "ignored"},
		"a list of nodes": {"a.json": dumpOf(t, objects[2:]...), "b.json": `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"a": [{}]}, "items": [` + strings.Join(nodes, ",") + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := lister.Load(t.Context(), write(t, files), lister.Scope{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, summary(t, loaded)); diff != "" {
				t.Errorf("(-read from the API server +loaded):\n%s", diff)
			}
			if len(loaded.Missing) > 0 {
				t.Errorf("missing %v, want none", loaded.Missing)
			}
		})
	}
}

func TestLoadMissing(t *testing.T) {
	listed, err := lister.Load(t.Context(), write(t, map[string]string{"a.json": dumpOf(t, clustertest.Objects("node od on-demand m/a\ndeployment web 1 od")...)}), lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"jobs", "persistentvolumeclaims", "persistentvolumes", "poddisruptionbudgets", "statefulsets"}, listed.Missing); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each error names the file and what was expected.
func TestLoadInvalid(t *testing.T) {
	whole := dumpOf(t, clustertest.Objects(dumped)...)
	object := func(text string) string { return `{"items": [` + text + `], "kind": "List"}` }
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no files":         {map[string]string{"a.yaml": "items: []"}, "the directory has no file *.json"},
		"an empty file":    {map[string]string{"a.json": ""}, "the file ends before its list ends"},
		"truncated":        {map[string]string{"a.json": whole[:len(whole)/2]}, "the file ends before its list ends"},
		"without its end":  {map[string]string{"a.json": whole[:len(whole)-1]}, "the file ends before its list ends"},
		"YAML":             {map[string]string{"a.json": "apiVersion: v1\nitems: []\n"}, "invalid JSON"},
		"an array":         {map[string]string{"a.json": "[]"}, "the file contains no JSON object"},
		"an object":        {map[string]string{"a.json": `{"kind": "Pod"}`}, "the object has no list of items"},
		"two lists":        {map[string]string{"a.json": whole + whole}, "the file continues after its list"},
		"a number":         {map[string]string{"a.json": object("1")}, `item 1: it is no JSON object: expected the output`},
		"no comma":         {map[string]string{"a.json": object("{} {}")}, `invalid JSON: item 2: jsontext: invalid character '{' after array element (expecting ',' or ']')`},
		"brackets":         {map[string]string{"a.json": object(`{"kind": "Pod", "apiVersion": "v1", "spec": [}}`)}, "item 1: "},
		"a wrong type":     {map[string]string{"a.json": object(`{"kind": "Pod", "apiVersion": "v1", "spec": 1}`)}, "item 1: Pod: "},
		"a wrong quantity": {map[string]string{"a.json": object(`{"kind": "Node", "apiVersion": "v1", "status": {"allocatable": {"cpu": "many"}}}`)}, "item 1: Node: "},
		"no name":          {map[string]string{"a.json": object(`{"kind": "Pod", "apiVersion": "v1"}`)}, `metadata.name: invalid value ""`},
		"an evil name":     {map[string]string{"a.json": object(`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x; rm -rf /"}}`)}, `metadata.name: invalid value "x; rm -rf /"`},
		"an evil namespace": {map[string]string{"a.json": object(`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x", "namespace": "$(id)"}}`)},
			`metadata.namespace: invalid value "$(id)"`},
		"no UID":         {map[string]string{"a.json": object(`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}`)}, "metadata.uid: invalid value"},
		"a huge object":  {map[string]string{"a.json": object(`{"kind": "Pod", "a": "` + strings.Repeat("x", 17<<20) + `"}`)}, `a value has more than 16 MiB within "/items/0`},
		"a huge field":   {map[string]string{"a.json": `{"a": "` + strings.Repeat("x", 17<<20) + `", "items": []}`}, "a value has more than 16 MiB"},
		"without pods":   {map[string]string{"a.json": dumpOf(t, clustertest.Objects("node od on-demand m/a")...)}, "it has no pods"},
		"without nodes":  {map[string]string{"a.json": dumpOf(t, clustertest.Objects("pod web od")...)}, "it has no nodes"},
		"an empty list":  {map[string]string{"a.json": `{"items": []}`}, "it has no "},
		"deep brackets":  {map[string]string{"a.json": object(strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000))}, "item 1: "},
		"a NUL in names": {map[string]string{"a.json": object(`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x\u0000"}}`)}, "metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, test.files)
			_, err := lister.Load(t.Context(), dir, lister.Scope{})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, want an error with %q and %s", err, test.want, dir)
			}
		})
	}
	if _, err := lister.Load(t.Context(), "/nowhere", lister.Scope{}); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v, want an error with /nowhere", err)
	}
}

// Strings with quotes, backslashes, brackets and other characters do not confuse the split, at any
// distance from the boundaries of the buffer.
func TestLoadStrings(t *testing.T) {
	var objects []runtime.Object
	for i, value := range []string{`"`, `\`, `\"`, `{[`, `]}`, "é\u2028\n\t", `\\`, strings.Repeat(`\"`, 1<<20)} {
		node := clustertest.NewNode("n"+string(rune('a'+i)), "spot", "m/a")
		node.Annotations = map[string]string{"example.com/a": value, "example.com/b": strings.Repeat("x", i*1000)}
		objects = append(objects, node)
	}
	loaded, err := lister.Load(t.Context(), write(t, map[string]string{"a.json": dumpOf(t, append(objects, clustertest.NewPod("web"))...)}), lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := loaded.Snapshot(clustertest.BasicPolicy, providers.Signals(), clustertest.Profile, clustertest.Now)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range s.Nodes {
		if diff := cmp.Diff(objects[i].(*v1.Node).Annotations, n.Annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", n.Name, diff)
		}
	}
}
