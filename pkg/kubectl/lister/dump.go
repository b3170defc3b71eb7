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
	"runtime"
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

// dumpKind is a kind of object that a dump may have.
type dumpKind struct {
	listing
	found bool
}

// dumpItem is an object in a dump.
type dumpItem struct {
	file   string
	number int // of the object in its file, from 1
	// kind is the kind of the object. Before it is decoded, it is zero if only the object itself
	// names it.
	kind schema.GroupKind
	// data is the object as JSON, of itemBuffers. It is nil for a list without items.
	data *[]byte

	decoded chan struct{} // closed when the fields below are set
	// object is nil if no command uses the object, or if it is outside the scope.
	object metav1.Object
	err    error
}

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
		kinds: map[schema.GroupKind]*dumpKind{}, trimmer: transform.NewMovedPodTrimmer(),
		known: map[objectKey]knownObject{}, unusedKinds: map[string]int{},
	}
	for _, listing := range listings {
		if listing.kind.Kind != "PriorityClass" { // a dump lacks them
			d.kinds[listing.kind.GroupKind()] = &dumpKind{listing: listing}
		}
	}
	if err := d.read(ctx); err != nil {
		return nil, err
	}
	for _, listing := range listings {
		kind, resource := d.kinds[listing.kind.GroupKind()], listing.resource().Resource
		switch {
		case kind == nil:
		case kind.found || kind.kind.Kind == "ReplicationController": // most clusters have none
		case kind.kind.Kind == "Node" || kind.kind.Kind == "Pod":
			return nil, fmt.Errorf("%s: it has no %s: %s of nodes and pods", path, resource, expectedDump)
		default:
			s.Missing = append(s.Missing, resource)
		}
	}
	slices.Sort(s.Missing)
	s.Unused = d.unused()
	return s, nil
}

// read reads all files. It decodes their objects concurrently, and stores them in the order of the
// files, so that the result does not depend on the speed of the readers.
func (d *dump) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	toDecode, toStore := make(chan *dumpItem, 256), make(chan *dumpItem, 256)
	var readErr error // may be read when toStore is closed
	go func() {
		defer close(toDecode)
		defer close(toStore)
		readErr = d.readFiles(func(item *dumpItem) error {
			item.decoded = make(chan struct{})
			for _, next := range []chan<- *dumpItem{toDecode, toStore} {
				select {
				case next <- item:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}()
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for item := range toDecode {
				item.err = d.decode(item)
				close(item.decoded)
			}
		}()
	}
	for item := range toStore {
		<-item.decoded
		if item.err == nil {
			item.err = d.store(item)
		}
		if item.err != nil {
			return fmt.Errorf("%s: object %d: %w", item.file, item.number, item.err)
		}
	}
	return readErr
}

// readFiles sends the objects of all files.
func (d *dump) readFiles(send func(*dumpItem) error) error {
	for _, file := range d.files {
		number := 0
		err := d.readFile(file, func(item *dumpItem) error {
			if item.data != nil {
				number++
			}
			item.file, item.number = file, number
			return send(item)
		})
		if errors.Is(err, errNoDump) && d.inDirectory {
			d.unusedFiles = append(d.unusedFiles, file)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (d *dump) readFile(name string, send func(*dumpItem) error) error {
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
	kinds       map[schema.GroupKind]*dumpKind
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

// store adds an object to its cache. Of several versions of one object the last one counts. An
// object with another UID is an error.
func (d *dump) store(item *dumpItem) error {
	kind, object := d.kinds[item.kind], item.object
	switch {
	case kind != nil:
		kind.found = true
	case item.data != nil:
		d.unusedKinds[item.kind.String()]++
	}
	if object == nil {
		return nil
	}
	key := objectKey{item.kind, object.GetNamespace(), object.GetName()}
	other, exists := d.known[key]
	if exists && other.uid != object.GetUID() {
		return fmt.Errorf("%s %q has another UID than in %s: expected files of one cluster at one time",
			item.kind.Kind, namespacedName(object), other.file)
	}
	d.known[key] = knownObject{object.GetUID(), item.file}
	return kind.into.Add(object)
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

// decode decodes an object, without the fields that nothing reads.
func (d *dump) decode(item *dumpItem) error {
	if item.data == nil {
		return nil
	}
	defer itemBuffers.Put(item.data) // the object has copies of its strings
	named, err := kindOf(*item.data)
	if err != nil {
		return err
	}
	item.kind = cmp.Or(named, item.kind)
	kind := d.kinds[item.kind]
	if kind == nil {
		return nil
	}
	typed, err := scheme.Scheme.New(kind.kind)
	if err != nil {
		return err
	}
	object, err := meta.Accessor(typed)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(*item.data, object, neededFields); err != nil {
		return fmt.Errorf("%s: %w", item.kind.Kind, err)
	}
	if err := checkMeta(object); err != nil {
		return fmt.Errorf("%s %q: %w", item.kind.Kind, namespacedName(object), err)
	}
	if pod, ok := object.(*v1.Pod); ok && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
		return nil // as in List
	}
	if in := object.GetNamespace(); in != "" && d.Scope.Namespace != "" && in != d.Scope.Namespace {
		return nil
	}
	trimmed, err := d.trimmer.Trim(object)
	item.object = trimmed.(metav1.Object)
	return err
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
