package lister

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// expectedDump describes a dump for error messages.
const expectedDump = "expected the output of kubectl get -o json or -o yaml, or of kubectl cluster-info dump"

// Load reads a cluster from a dump instead of an API server: from a file, from all files of a
// directory and its subdirectories, or from stdin if path is "-". It accepts JSON and YAML, lists
// and single objects, several documents, and gzip. It reads one object at a time, and ignores kinds
// that no command uses; Objects.Unused names them. It returns an error for a dump without nodes or
// without pods, and if two objects have the same name but another UID. The contents of a dump are
// not trusted: names must be names of Kubernetes.
func Load(ctx context.Context, path string, stdin io.Reader, scope Scope) (*Objects, error) {
	files, inDirectory, err := []string{"standard input"}, false, error(nil)
	if path != "-" {
		stdin = nil
		files, inDirectory, err = dumpFiles(path)
	}
	if err != nil {
		return nil, err
	}
	scope.Volumes, scope.DisruptionBudgets = true, true
	s, listings, err := newObjects(nil, scope)
	if err != nil {
		return nil, err
	}
	d := &dump{
		Objects: s, stdin: stdin, files: files, inDirectory: inDirectory,
		kinds: map[schema.GroupKind]*listing{}, trimmer: transform.NewMovedPodTrimmer(),
		known: map[objectKey]knownObject{}, unusedKinds: map[string]int{},
	}
	listings = slices.DeleteFunc(listings, func(l listing) bool { return l.kind.Kind == "PriorityClass" }) // a dump lacks them
	for i := range listings {
		d.kinds[listings[i].kind.GroupKind()] = &listings[i]
	}
	if err := d.read(ctx); err != nil {
		return nil, err
	}
	for i := range listings {
		resource := listings[i].resource().Resource
		switch kind := listings[i].kind.Kind; {
		case listings[i].found || kind == "ReplicationController": // most clusters have none
		case kind == "Node" || kind == "Pod":
			return nil, fmt.Errorf("%s: it has no %s: %s of nodes and pods", path, resource, expectedDump)
		default:
			s.Missing = append(s.Missing, resource)
		}
	}
	slices.Sort(s.Missing)
	s.Unused = d.unused()
	return s, nil
}

// read reads all files, and adds their objects in this order.
func (d *dump) read(ctx context.Context) error {
	for _, file := range d.files {
		number := 0       // of the object in its file, from 1
		var failure error // of an object; it is returned as it is
		err := d.readFile(file, func(kind schema.GroupKind, data []byte) error {
			if data != nil {
				number++
			}
			if err := cmp.Or(ctx.Err(), d.add(file, kind, data)); err != nil {
				failure = fmt.Errorf("%s: object %d: %w", file, number, err)
			}
			return failure
		})
		switch {
		case failure != nil:
			return failure
		case errors.Is(err, errNoDump) && d.inDirectory:
			d.unusedFiles = append(d.unusedFiles, file)
		case err != nil:
			return err
		}
	}
	return nil
}

func (d *dump) readFile(name string, send sendFunc) error {
	if d.stdin != nil {
		return readDocuments(d.stdin, name, send)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is only read
	return readDocuments(file, name, send)
}

// dumpFiles returns the files of a dump, in the order of their names.
func dumpFiles(path string) (files []string, inDirectory bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %s", err, expectedDump)
	}
	if !info.IsDir() {
		return []string{path}, false, nil
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, file)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: the directory has no file: %s", path, expectedDump)
	}
	return files, true, err
}

// dump adds objects to caches.
type dump struct {
	*Objects
	stdin io.Reader // read instead of files; nil means files
	files []string  // for errors also the name of stdin
	// inDirectory reports whether files are all files of a directory: some may be no dump.
	inDirectory bool
	kinds       map[schema.GroupKind]*listing
	trimmer     *transform.PodTrimmer
	// unusedFiles are files without objects of Kubernetes.
	unusedFiles []string
	// known has every object that was stored.
	known map[objectKey]knownObject
	// unusedKinds counts the objects that no command uses.
	unusedKinds map[string]int
}

// objectKey identifies an object.
type objectKey struct {
	kind            schema.GroupKind
	namespace, name string
}

type knownObject struct {
	uid  types.UID
	file string
}

// unused describes the objects and files that no command uses, in a fixed order.
func (d *dump) unused() (all []string) {
	for _, kind := range slices.Sorted(maps.Keys(d.unusedKinds)) {
		all = append(all, fmt.Sprintf("%d of kind %s", d.unusedKinds[kind], cmp.Or(kind, "unknown")))
	}
	return append(all, d.unusedFiles...)
}

func namespacedName(object metav1.Object) string {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}.String()
}

// skip ignores a value of a type that no reader of a dump uses.
func skip[T any]() *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(decoder *jsontext.Decoder, _ *T) error { return decoder.SkipValue() })
}

// neededFields skips the largest fields that nothing reads.
var neededFields = json.WithUnmarshalers(json.JoinUnmarshalers(
	skip[[]metav1.ManagedFieldsEntry](), skip[v1.PodTemplateSpec](), skip[[]v1.PersistentVolumeClaim](), skip[[]v1.ContainerImage](),
	skip[[]v1.EnvVar](), skip[[]v1.EnvFromSource](), skip[[]v1.VolumeMount](), skip[v1.Probe](), skip[v1.Lifecycle](),
	skip[v1.SecurityContext](), skip[v1.PodSecurityContext](), skip[v1.ProjectedVolumeSource](), skip[v1.ConfigMapVolumeSource](),
	skip[[]v1.ContainerStatus](), // of a pod that is being resized, only the specification counts
))

// add adds an object to its cache, without the fields that nothing reads, unless no command uses
// it. Of several versions of one object the last one counts. An object with another UID is an
// error. See sendFunc for kind and data.
func (d *dump) add(file string, kind schema.GroupKind, data []byte) error {
	if data != nil {
		if jsontext.Value(data).Kind() != '{' {
			return fmt.Errorf("it is no JSON object: %s", expectedDump)
		}
		head, _, err := headOf(data)
		if err != nil {
			return err
		}
		kind = cmp.Or(head.GroupVersionKind().GroupKind(), kind)
	}
	of := d.kinds[kind]
	switch {
	case of != nil:
		of.found = true
	case data != nil:
		d.unusedKinds[kind.String()]++
	}
	if of == nil || data == nil {
		return nil
	}
	typed, err := scheme.Scheme.New(of.kind)
	if err != nil {
		return err
	}
	object, err := meta.Accessor(typed)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, object, neededFields); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	if err := checkMeta(object); err != nil {
		return fmt.Errorf("%s %q: %w", kind.Kind, namespacedName(object), err)
	}
	if pod, ok := object.(*v1.Pod); ok && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
		return nil // as in List
	}
	if in := object.GetNamespace(); in != "" && d.Scope.Namespace != "" && in != d.Scope.Namespace {
		return nil
	}
	key := objectKey{kind, object.GetNamespace(), object.GetName()}
	if other, exists := d.known[key]; exists && other.uid != object.GetUID() {
		return fmt.Errorf("%s %q has another UID than in %s: expected files of one cluster at one time",
			kind.Kind, namespacedName(object), other.file)
	}
	d.known[key] = knownObject{object.GetUID(), file}
	trimmed, err := d.trimmer.Trim(object)
	if err != nil {
		return err
	}
	return of.into.Add(trimmed)
}

// checkMeta checks the metadata of an object as the API server does, because commands print names
// and look up owners by UID.
func checkMeta(object metav1.Object) error {
	if problems := validation.IsDNS1123Subdomain(object.GetName()); len(problems) > 0 {
		return fmt.Errorf("metadata.name: invalid value %q: %s", object.GetName(), problems[0])
	}
	if namespace := object.GetNamespace(); namespace != "" {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return fmt.Errorf("metadata.namespace: invalid value %q: %s", namespace, problems[0])
		}
	}
	if object.GetUID() == "" {
		return fmt.Errorf("metadata.uid: invalid value %q: %s, unchanged", "", expectedDump)
	}
	return nil
}
