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
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"
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
	found atomic.Bool
}

// dumpItem is an object in a dump, as JSON.
type dumpItem struct {
	origin origin
	// kind is the kind of the object if the object itself does not name it.
	kind schema.GroupKind
	// data is of itemBuffers. It is nil for a list without items.
	data *[]byte
}

// origin is the place of an object in a dump.
type origin struct {
	file   int // index in dump.files
	number int // of the object in its file, from 1
}

func (o origin) compare(other origin) int {
	return cmp.Or(cmp.Compare(o.file, other.file), cmp.Compare(o.number, other.number))
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
	if d.conflict != nil {
		return nil, d.conflict
	}
	for _, listing := range listings {
		kind, resource := d.kinds[listing.kind.GroupKind()], listing.resource().Resource
		switch {
		case kind == nil:
		case kind.found.Load() || kind.kind.Kind == "ReplicationController": // most clusters have none
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

// read reads all files, and adds their objects.
func (d *dump) read(ctx context.Context) error {
	items := make(chan dumpItem, 256)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(items)
		for i, file := range d.files {
			number := 0
			err := d.readFile(file, func(item dumpItem) error {
				if item.data != nil {
					number++
				}
				item.origin = origin{i, number}
				select {
				case items <- item:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			if errors.Is(err, errNoDump) && d.inDirectory {
				d.unusedFiles = append(d.unusedFiles, file)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for item := range items {
				if err := d.add(&item); err != nil {
					return fmt.Errorf("%s: object %d: %w", d.files[item.origin.file], item.origin.number, err)
				}
				if item.data != nil {
					itemBuffers.Put(item.data) // the object has copies of its strings
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (d *dump) readFile(name string, send func(dumpItem) error) error {
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

	mu sync.Mutex
	// known has every object that was read.
	known map[objectKey]knownObject
	// conflict is the error about the first object with another UID than before.
	conflict   error
	conflictAt origin
	// unusedKinds counts the objects that no command uses.
	unusedKinds map[string]int
}

type objectKey struct {
	kind            schema.GroupKind
	namespace, name string
}

type knownObject struct {
	uid    types.UID
	origin origin
}

// store adds an object to its cache. Of several versions of one object the last one counts, in the
// order of the files. An object with another UID is a conflict.
func (d *dump) store(kind *dumpKind, object metav1.Object, trimmed any, at origin) error {
	key := objectKey{kind.kind.GroupKind(), object.GetNamespace(), object.GetName()}
	d.mu.Lock()
	defer d.mu.Unlock()
	other, exists := d.known[key]
	isLast := !exists || other.origin.compare(at) < 0
	if isLast {
		d.known[key] = knownObject{object.GetUID(), at}
	}
	switch {
	case exists && other.uid != object.GetUID():
		first, second := other.origin, at
		if !isLast {
			first, second = second, first
		}
		if d.conflict == nil || second.compare(d.conflictAt) < 0 {
			d.conflictAt = second
			d.conflict = fmt.Errorf("%s: object %d: %s %q has another UID than in %s: expected files of one cluster at one time",
				d.files[second.file], second.number, key.kind.Kind, namespacedName(object), d.files[first.file])
		}
	case isLast:
		if d.Scope.Count != nil && !exists {
			d.Scope.Count.Add(1)
		}
		return kind.into.Add(trimmed)
	}
	return nil
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

// add adds an object to its cache, unless its kind is unknown or it is outside the scope.
func (d *dump) add(item *dumpItem) error {
	own := item.kind
	if item.data != nil {
		named, err := kindOf(*item.data)
		if err != nil {
			return err
		}
		own = cmp.Or(named, own)
	}
	kind := d.kinds[own]
	if kind == nil {
		d.countUnused(own, item)
		return nil
	}
	kind.found.Store(true)
	if item.data == nil {
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
		return fmt.Errorf("%s: %w", own.Kind, err)
	}
	if err := checkMeta(object); err != nil {
		return fmt.Errorf("%s %q: %w", own.Kind, namespacedName(object), err)
	}
	pod, isPod := object.(*v1.Pod)
	if isPod && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
		return nil // as in List
	}
	if in := object.GetNamespace(); in != "" && d.Scope.Namespace != "" && in != d.Scope.Namespace {
		return nil
	}
	var trimmed any
	if isPod {
		trimmed, err = d.trimmer.Trim(pod)
	} else {
		trimmed, err = transform.Trim(object)
	}
	if err != nil {
		return err
	}
	return d.store(kind, object, trimmed, item.origin)
}

// countUnused counts an object that no command uses.
func (d *dump) countUnused(kind schema.GroupKind, item *dumpItem) {
	if item.data == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unusedKinds[kind.String()]++
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
