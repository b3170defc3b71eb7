package lister_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/unicode"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

const dumped = `
	node od on-demand m/a
	node sp spot m/a
	deployment web 3 od sp sp
	statefulset db 2 od - volume=a
	job sum 1 sp
	pod bare od`

// write writes files to a new folder. It returns the folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// summary has the facts of a cluster that do not depend on how it was read.
func summary(t *testing.T, listed *lister.Objects) (lines []string) {
	t.Helper()
	s, err := listed.Snapshot(clustertest.BasicPolicy, providers.Signals(), workload.Scope{Profile: clustertest.Profile}, clustertest.Now)
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
	dump := listertest.Dump(t, append(objects, done, &v1.ConfigMap{ObjectMeta: clustertest.Meta("ignored")})...)
	var single, yamls []string
	for _, object := range append(slices.Clone(objects), done) {
		text := listertest.Dump(t, object)
		yamls = append(yamls, toYAML(t, text[strings.Index(text, "[")+1:strings.LastIndex(text, "]")]))
		single = append(single, text[strings.Index(text, "[")+1:strings.LastIndex(text, "]")])
	}
	log := "\n==== START logs for container a of pod b/c ====\n{\nkind: x\n" + strings.Repeat("y", 100_000) + "\n==== END logs for container a of pod b/c ====\n"
	const noBudgets = `{"kind": "PodDisruptionBudgetList", "apiVersion": "policy/v1", "metadata": {}, "items": null}`
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
		"one file":                  {"a.json": dump},
		"compact":                   {"a.json": compact.String()},
		"several files":             {"a.json": listertest.Dump(t, objects[:3]...), "b/c/b.txt": listertest.Dump(t, objects[3:]...), "c.json": listertest.Dump(t), "README.md": "ignored"},
		"single objects":            {"a.json": strings.Join(single, "\n")},
		"YAML":                      {"a.yaml": "# a comment\n" + toYAML(t, dump)},
		"YAML documents":            {"a.yaml": "---\n" + strings.Join(yamls, "---\n# none\n---\n")},
		"gzip":                      {"a.json.gz": compressed(t, dump)},
		"UTF-16":                    {"a.json": utf16(t, dump), "b.txt": utf16(t, "text")},
		"compressed YAML in UTF-16": {"a.yaml.gz": compressed(t, utf16(t, toYAML(t, dump)))},
		"a byte order mark":         {"a.json": "\ufeff" + dump},
		"cluster-info dump":         {"a.txt": noBudgets + listertest.Dump(t, objects[:3]...) + log + log + listertest.Dump(t, objects[3:]...) + log},
		"a list of nodes":           {"a.json": listertest.Dump(t, objects[2:]...), "b.json": `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"a": [{}]}, "items": [` + strings.Join(nodes, ",") + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, files)
			loaded, err := lister.Load(t.Context(), dir, nil, lister.Scope{})
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
	listed, err := lister.Load(t.Context(), write(t, map[string]string{"a.json": listertest.Dump(t, clustertest.Objects("node od on-demand m/a\ndeployment web 1 od")...)}), nil, lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"jobs", "persistentvolumeclaims", "persistentvolumes", "poddisruptionbudgets", "statefulsets"}, listed.Missing); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each error names the file and what was expected.
func TestLoadInvalid(t *testing.T) {
	whole := listertest.Dump(t, clustertest.Objects(dumped)...)
	wholeYAML := toYAML(t, whole)
	lines := strings.Count(wholeYAML, "\n")
	object := func(text string) string { return `{"items": [` + text + `], "kind": "List"}` }
	pod := func(metadata string) string {
		return object(`{"kind": "Pod", "apiVersion": "v1", "metadata": {` + metadata + `}}`)
	}
	for name, test := range map[string]struct{ text, want string }{
		"an empty file":             {"", "it has no objects of Kubernetes"},
		"a tar archive":             {strings.Repeat("x", 257) + "ustar", "it is an archive: unpack it"},
		"a zip archive":             {"PK\x03\x04", "it is an archive: unpack it"},
		"prose":                     {"Dear colleagues,\n", "it has no objects of Kubernetes"},
		"another object":            {`{"items": "none"}`, "it has no pods"},
		"no object":                 {`{"a": {}}`, "it has no objects of Kubernetes"},
		"truncated":                 {whole[:len(whole)/2], "it ends within an object"},
		"without its end":           {whole[:len(whole)-1], "it ends within an object"},
		"truncated gzip":            {compressed(t, whole)[:200], "it ends within an object"},
		"invalid gzip":              {"\x1f\x8b\x00\x00", "it ends within an object"},
		"invalid UTF-8":             {strings.Replace(whole, "shop", "sh\xc3p", 1), "invalid JSON"},
		"a truncated log":           {whole + "\n==== START logs for container a of pod b/c ====\nline\n", "it ends within an object"},
		"invalid YAML":              {"apiVersion: v1\nkind: [\n", "invalid YAML"},
		"a YAML string":             {"kind: Pod\napiVersion: v1\nmetadata: {name: a, uid: b}\n---\ntext\n", "a YAML document is not an object"},
		"joined YAML":               {wholeYAML + wholeYAML, fmt.Sprintf(`invalid YAML: document 1: line %d: key "apiVersion" already set in map: a line --- must separate`, lines+1)},
		"joined objects":            {"kind: Event\napiVersion: v1\n---\nkind: Pod\napiVersion: v1\nkind: Node\napiVersion: v1\n", `document 2: line 3: key "kind" already set in map: a line --- must separate`},
		"truncated YAML":            {wholeYAML[:len(wholeYAML)/2], "it ends within an object"},
		"YAML without its end":      {wholeYAML[:strings.LastIndex(wholeYAML, "kind: List")], "it ends within an object"},
		"a truncated YAML document": {toYAML(t, `{"apiVersion": "v1", "kind": "Pod"}`) + "metadata:\n  name: a\n  ui", "invalid YAML: document 1: "},
		"too much YAML":             {"apiVersion: v1\nkind: " + strings.Repeat("x", 65<<20), "use kubectl get -o json"},
		"an array":                  {"[]", "it has no objects of Kubernetes"},
		"text after a list":         {whole + "text", `a document ends before "text"`},
		"a number":                  {object("1"), `object 1: it is no JSON object: expected the output`},
		"no comma":                  {object("{} {}"), `invalid JSON: item 2: jsontext: invalid character '{' after array element (expecting ',' or ']')`},
		"brackets":                  {object(`{"kind": "Pod", "apiVersion": "v1", "spec": [}}`), "item 1: "},
		"a wrong type":              {object(`{"kind": "Pod", "apiVersion": "v1", "spec": 1}`), "object 1: Pod: "},
		"a wrong quantity":          {object(`{"kind": "Node", "apiVersion": "v1", "status": {"allocatable": {"cpu": "many"}}}`), "object 1: Node: "},
		"no name":                   {pod(""), `metadata.name: invalid value ""`},
		"a single object":           {`{"kind": "Pod", "apiVersion": "v1"}`, `metadata.name: invalid value ""`},
		"an evil name":              {pod(`"name": "x; rm -rf /"`), `metadata.name: invalid value "x; rm -rf /"`},
		"an evil namespace":         {pod(`"name": "x", "namespace": "$(id)"`), `metadata.namespace: invalid value "$(id)"`},
		"a NUL in names":            {pod(`"name": "x\u0000"`), "metadata.name"},
		"no UID":                    {pod(`"name": "x"`), "metadata.uid: invalid value"},
		"another UID":               {strings.Join([]string{pod(`"name": "x", "uid": "1"`), pod(`"name": "x", "uid": "2"`)}, ""), `object 2: Pod "/x" has another UID`},
		"a huge object":             {object(`{"kind": "Pod", "a": "` + strings.Repeat("x", 17<<20) + `"}`), `a value has more than 16 MiB: item 1: jsontext: unexpected EOF within "/items/0`},
		"a huge field":              {`{"a": "` + strings.Repeat("x", 17<<20) + `", "kind": "List", "items": []}`, "it has no objects of Kubernetes"},
		"a huge field later":        {`{"kind": "List", "a": "` + strings.Repeat("x", 17<<20) + `", "items": []}`, "a value has more than 16 MiB"},
		"without pods":              {listertest.Dump(t, clustertest.Objects("node od on-demand m/a")...), "it has no pods"},
		"without nodes":             {listertest.Dump(t, clustertest.Objects("pod web od")...), "it has no nodes"},
		"an empty list":             {`{"items": []}`, "it has no "},
		"deep brackets":             {object(strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)), "item 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(write(t, map[string]string{"a.json": test.text}), "a.json")
			_, err := lister.Load(t.Context(), file, nil, lister.Scope{})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), file+": ") {
				t.Errorf("%v, want an error with %q and %s", err, test.want, file)
			}
		})
	}
	for _, missing := range []string{"/nowhere", t.TempDir()} {
		if _, err := lister.Load(t.Context(), missing, nil, lister.Scope{}); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("%v, want an error with %s", err, missing)
		}
	}
}

func compressed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// utf16 returns a text as PowerShell writes it.
func utf16(t *testing.T, text string) string {
	t.Helper()
	encoded, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(text)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func toYAML(t *testing.T, text string) string {
	t.Helper()
	out, err := yaml.JSONToYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Files of a directory that are no dump, and objects that no command uses, are named.
func TestLoadUnused(t *testing.T) {
	objects := append(clustertest.Objects(dumped), &v1.ConfigMap{ObjectMeta: clustertest.Meta("a")}, &v1.ConfigMap{ObjectMeta: clustertest.Meta("b")})
	dir := write(t, map[string]string{"a.json": listertest.Dump(t, objects...), "b/logs.txt": "kind of odd\n", "b/package.json": `{"name": "x"}`, "empty.json": ""})
	listed, err := lister.Load(t.Context(), dir, nil, lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"2 of kind ConfigMap", filepath.Join(dir, "b/logs.txt"), filepath.Join(dir, "b/package.json"), filepath.Join(dir, "empty.json")}
	if diff := cmp.Diff(want, listed.Unused); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of several versions of an object the last one counts, in the order of the files.
func TestLoadVersions(t *testing.T) {
	objects := clustertest.Objects(dumped)
	first := listertest.Dump(t, objects...)
	for _, object := range objects {
		if node, ok := object.(*v1.Node); ok {
			node.Status.Allocatable[v1.ResourceCPU] = resource.MustParse("3")
		}
	}
	second := listertest.Dump(t, objects...)
	for range 20 {
		listed, err := lister.Load(t.Context(), write(t, map[string]string{"a.json": first, "b.json": second}), nil, lister.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		if lines := summary(t, listed); !slices.Contains(lines, "od on-demand a 3") || len(lines) != 9 {
			t.Fatalf("%q", lines)
		}
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
	loaded, err := lister.Load(t.Context(), write(t, map[string]string{"a.json": listertest.Dump(t, append(objects, clustertest.NewPod("web"))...)}), nil, lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := loaded.Snapshot(clustertest.BasicPolicy, providers.Signals(), workload.Scope{Profile: clustertest.Profile}, clustertest.Now)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range s.Nodes {
		if diff := cmp.Diff(objects[i].(*v1.Node).Annotations, n.Annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", n.Name, diff)
		}
	}
}
