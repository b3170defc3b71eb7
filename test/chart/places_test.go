package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestNoLinks shows that the folder of the chart needs no file outside it.
func TestNoLinks(t *testing.T) {
	live.Must(t, filepath.WalkDir(chart, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type()&fs.ModeSymlink != 0 {
			t.Errorf("%s is a link", path)
		}
		return err
	}))
}

// TestParentChart renders a parent chart, which contains a copy of the chart, and has values for it
// and for all charts. The objects must be the same as without a parent.
func TestParentChart(t *testing.T) {
	parent := t.TempDir()
	live.Must(t, os.CopyFS(filepath.Join(parent, "charts", "spot-aware-scheduler"), os.DirFS(chart)))
	live.Must(t, os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte(`
apiVersion: v2
name: platform
version: 1.0.0
dependencies:
- {name: spot-aware-scheduler, version: 0.1.0, condition: spot-aware-scheduler.enabled}
`), 0o600))
	ours := values{"scheduler": values{"replicas": 3}, "monitoring": values{"enabled": true}}
	global := values{"imageRegistry": "registry.example/all"}
	ours["global"] = global
	want, err := render(t, ours)
	live.Must(t, err)
	got, err := renderFolder(t, parent, values{
		"spot-aware-scheduler": values{"enabled": true, "scheduler": ours["scheduler"], "monitoring": ours["monitoring"]},
		"global":               values{"imageRegistry": "registry.example/all", "other": true},
	})
	live.Must(t, err)
	if diff := cmp.Diff(decode(t, want), decode(t, got)); diff != "" {
		t.Errorf("chart and parent chart differ (-chart +parent):\n%s", diff)
	}
	none, err := renderFolder(t, parent, values{"spot-aware-scheduler": values{"enabled": false}})
	live.Must(t, err)
	if objects := decode(t, none); len(objects) > 0 {
		t.Errorf("a parent chart that disables the chart has %d objects", len(objects))
	}
}

// TestReferences renders the chart with names of its own. All objects to which objects refer must
// be among them.
func TestReferences(t *testing.T) {
	for name, v := range map[string]values{
		"defaults":         {},
		"fullnameOverride": {"fullnameOverride": "acme"},
		"nameOverride":     {"nameOverride": "acme"},
		"ServiceAccounts": {
			"scheduler": values{"serviceAccount": values{"name": "placer"}}, "controller": values{"serviceAccount": values{"name": "mover"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v["monitoring"] = values{"enabled": true}
			text, err := render(t, v)
			live.Must(t, err)
			objects := decode(t, text)
			deployments := 0
			for key, o := range objects {
				checkReferences(t, key, o, objects)
				if account, ok := at(o, "spec/template/spec/serviceAccountName").(string); ok {
					deployments++
					if find(objects, "ServiceAccount", account) == nil {
						t.Errorf("%s has the ServiceAccount %s, which does not exist", key, account)
					}
				}
			}
			if deployments != 2 {
				t.Errorf("checked %d Deployments, want 2", deployments)
			}
		})
	}
}

// TestKubernetesVersions shows that older versions than the tested ones are refused, and that newer
// ones are refused only with our scheduler.
func TestKubernetesVersions(t *testing.T) {
	scheduler, controller := values{}, values{"scheduler": values{"enabled": false}}
	for name, test := range map[string]struct {
		values  values
		version string
		want    string // the error; empty for none
		warning bool
	}{
		"1.33":                               {scheduler, "1.33.9", "chart requires kubeVersion: >=1.34.0-0", false},
		"1.33 without our scheduler":         {controller, "1.33.9", "chart requires kubeVersion: >=1.34.0-0", false},
		"1.34":                               {scheduler, "1.34.0", "", false},
		"1.37 of a managed cluster":          {scheduler, "v1.37.4-eks-4136f65", "", false},
		"1.38":                               {scheduler, "1.38.0", "Kubernetes 1.38: expected at most 1.37", false},
		"1.38 of a managed cluster":          {scheduler, "v1.38.1-gke.1200", "Kubernetes 1.38: expected at most 1.37", false},
		"1.38 without our scheduler":         {controller, "1.38.0", "", true},
		"1.38 with the extender":             {values{"extender": values{"enabled": true}}, "1.38.0", "", true},
		"1.37 without our scheduler":         {controller, "1.37.1", "", false},
		"1.38 of a managed one without ours": {controller, "v1.38.1-gke.1200", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := renderFolder(t, withNotes(t), test.values, "--kube-version="+test.version)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want one that contains %q", err, test.want)
				}
				return
			}
			live.Must(t, err)
			notes, _ := at(find(decode(t, text), "Notes", "notes"), "text").(string)
			if strings.Contains(notes, "WARNING: this chart was tested up to Kubernetes 1.37, not on 1.38.") != test.warning || !strings.Contains(notes, "rollout status") {
				t.Errorf("a warning in these notes: want %t:\n%s", test.warning, notes)
			}
		})
	}
}

// TestNotes shows that the notes have the names of the objects.
func TestNotes(t *testing.T) {
	text, err := renderFolder(t, withNotes(t), values{"fullnameOverride": "acme"})
	live.Must(t, err)
	notes, _ := at(find(decode(t, text), "Notes", "notes"), "text").(string)
	for _, want := range []string{"rollout status deployment/acme\n", "rollout status deployment/acme-controller\n"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not contain %q:\n%s", want, notes)
		}
	}
}

// TestNotesOptIn shows that the notes name what opts in with the values, and what has no effect.
func TestNotesOptIn(t *testing.T) {
	const name, namespace, keep = "  schedulerName: spot-aware-scheduler\n", "NAME spot-aware-scheduler.io/opt-in=true\n", "NAME spot-aware-scheduler.io/opt-in=keep-scheduler\n"
	const noName, noNamespace, noKeep = "spot-aware-scheduler (scheduler.enabled is false", "opt-in=true on a namespace (", "opt-in=keep-scheduler ("
	own, gating := values{"enabled": true}, values{"gating": values{"enabled": true}}
	for title, test := range map[string]struct {
		values values
		want   []string
	}{
		"defaults":      {values{}, []string{name, noNamespace, noKeep}},
		"namespaces":    {values{"namespaceOptIn": own}, []string{name, namespace, noKeep}},
		"gating":        {values{"controller": values{"config": gating}}, []string{name, keep, noNamespace}},
		"no scheduler":  {values{"scheduler": values{"enabled": false}}, []string{keep, noName, noNamespace}},
		"a dry run":     {values{"scheduler": values{"enabled": false}, "controller": values{"config": values{"dryRun": true}}}, []string{noName, noNamespace, noKeep}},
		"the extender":  {values{"extender": own}, []string{name, noNamespace, noKeep}},
		"all that work": {values{"namespaceOptIn": own, "controller": values{"config": gating}}, []string{name, namespace, keep}},
	} {
		t.Run(title, func(t *testing.T) {
			text, err := renderFolder(t, withNotes(t), test.values)
			live.Must(t, err)
			notes, _ := at(find(decode(t, text), "Notes", "notes"), "text").(string)
			for _, part := range []string{name, namespace, keep, noName, noNamespace, noKeep} {
				if want := slices.Contains(test.want, part); strings.Contains(notes, part) != want {
					t.Errorf("the notes contain %q: want %t:\n%s", part, want, notes)
				}
			}
		})
	}
}

// withNotes returns a copy of the chart that renders NOTES.txt as the object notes, because helm
// template does not print it.
func withNotes(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	live.Must(t, os.CopyFS(folder, os.DirFS(chart)))
	live.Must(t, os.Rename(filepath.Join(folder, "templates", "NOTES.txt"), filepath.Join(folder, "files", "NOTES.txt")))
	const object = `{kind: Notes, metadata: {name: notes}, text: {{ tpl (.Files.Get "files/NOTES.txt") . | toJson }}}`
	live.Must(t, os.WriteFile(filepath.Join(folder, "templates", "notes.yaml"), []byte(object), 0o600))
	return folder
}

// TestImagesAreRequired shows that the chart renders no image without a registry. The chart of
// a release has one (hack/release).
func TestImagesAreRequired(t *testing.T) {
	var defaults object
	data, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	live.Must(t, err)
	live.Must(t, yaml.Unmarshal(data, &defaults))
	if got := at(defaults, "image/registry"); got != "" {
		t.Errorf("the default of image.registry is %q, want none", got)
	}
	none := values{"registry": ""}
	_, err = render(t, values{"image": none})
	if err == nil || !strings.Contains(err.Error(), "image.registry: required, because no images are published yet") {
		t.Errorf("without images: %v, want an error that names image.registry", err)
	}
	ours := values{"image": "registry.example/ours:v1"}
	_, err = render(t, values{"image": none, "scheduler": ours, "controller": ours})
	live.Must(t, err)
}
