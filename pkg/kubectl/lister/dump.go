package lister

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// expectedDump describes a dump for error messages.
const expectedDump = "expected the output of kubectl get -o json"

// dumpKind is a kind of object that a dump may have.
type dumpKind struct {
	listing
	found atomic.Bool
}

// dumpItem is an object in a dump, as JSON.
type dumpItem struct {
	file   string
	number int // in its file, from 1
	// kind is the kind of the object if the object itself does not name it.
	kind schema.GroupKind
	data *[]byte // of itemBuffers
}

// Load reads a cluster from a dump instead of an API server: a file that kubectl get -o json wrote,
// or a directory of such files whose names end in .json. It reads one object at a time, and ignores
// kinds that no command uses. It returns an error for a dump without nodes or without pods. The
// contents of a dump are not trusted: names must be names of Kubernetes.
func Load(ctx context.Context, path string, scope Scope) (*Objects, error) {
	files, err := dumpFiles(path)
	if err != nil {
		return nil, err
	}
	scope.Volumes, scope.DisruptionBudgets = true, true
	s, listings, err := newObjects(nil, scope)
	if err != nil {
		return nil, err
	}
	d := &dump{Objects: s, kinds: map[schema.GroupKind]*dumpKind{}, trimmer: transform.NewMovedPodTrimmer()}
	for _, listing := range listings {
		if listing.kind.Kind != "PriorityClass" { // a dump lacks them
			d.kinds[listing.kind.GroupKind()] = &dumpKind{listing: listing}
		}
	}
	items := make(chan dumpItem, 256)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(items)
		for _, file := range files {
			if err := split(ctx, file, items); err != nil {
				return err
			}
		}
		return nil
	})
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for item := range items {
				if err := d.add(&item); err != nil {
					return fmt.Errorf("%s: item %d: %w", item.file, item.number, err)
				}
				itemBuffers.Put(item.data) // the object has copies of its strings
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, kind := range d.kinds {
		resource := kind.resource().Resource
		switch {
		case kind.found.Load() || kind.kind.Kind == "ReplicationController": // most clusters have none
		case kind.kind.Kind == "Node" || kind.kind.Kind == "Pod":
			return nil, fmt.Errorf("%s: it has no %s: %s of nodes and pods", path, resource, expectedDump)
		default:
			s.Missing = append(s.Missing, resource)
		}
	}
	slices.Sort(s.Missing)
	return s, nil
}

// dumpFiles returns the files of a dump.
func dumpFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, expectedDump)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && strings.HasSuffix(entry.Name(), ".json") {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: the directory has no file *.json: %s", path, expectedDump)
	}
	return files, nil
}

// split sends the objects of a file to items.
func split(ctx context.Context, file string, items chan<- dumpItem) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	err = splitList(f, func(item dumpItem) error {
		item.file = file
		select {
		case items <- item:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: the file ends before its list ends: %s", file, expectedDump)
	}
	if syntax := (*jsontext.SyntacticError)(nil); errors.As(err, &syntax) {
		err = fmt.Errorf("invalid JSON: %w", err)
	}
	return fmt.Errorf("%s: %s: %w", file, expectedDump, err)
}

// maxItemBytes limits the size of one value in a dump. etcd stores at most 1.5 MiB per object.
const maxItemBytes = 16 << 20

var errItemTooLarge = fmt.Errorf("a value has more than %d MiB", maxItemBytes>>20)

// limitedReader limits how much may be read before left is set again.
type limitedReader struct {
	io.Reader
	left int
}

func (r *limitedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errItemTooLarge
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// itemBuffers contains the buffers of items that were decoded.
var itemBuffers = sync.Pool{New: func() any { return new([]byte) }}

// splitList sends the objects of the list that file contains.
func splitList(file io.Reader, send func(dumpItem) error) error {
	limited := &limitedReader{file, maxItemBytes}
	decoder := jsontext.NewDecoder(limited, jsontext.AllowDuplicateNames(true)) // add checks the names in an item
	if kind := decoder.PeekKind(); kind != '{' && kind != 0 {
		return errors.New("the file contains no JSON object")
	}
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	var list metav1.TypeMeta
	listed := false
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadToken()
		if err != nil {
			return err
		}
		if name.String() == "items" && decoder.PeekKind() == '[' && !listed {
			listed = true
			list.Kind = strings.TrimSuffix(list.Kind, "List")
			err = sendItems(decoder, limited, list.GroupVersionKind().GroupKind(), send)
		} else {
			err = decodeType(decoder, name.String(), &list)
		}
		if err != nil {
			return err
		}
	}
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	if !listed {
		return errors.New("the object has no list of items")
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return cmp.Or(err, errors.New("the file continues after its list"))
	}
	return nil
}

// sendItems sends the objects of the array that is the next value. kind is their kind if they do
// not name it. It only finds where they end, which is several times faster than to decode them.
func sendItems(decoder *jsontext.Decoder, limited *limitedReader, kind schema.GroupKind, send func(dumpItem) error) error {
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	for number := 1; decoder.PeekKind() != ']'; number++ {
		limited.left = maxItemBytes
		value, err := decoder.ReadValue()
		if err != nil {
			return fmt.Errorf("item %d: %w", number, err)
		}
		buffer := itemBuffers.Get().(*[]byte)
		*buffer = append((*buffer)[:0], value...)
		if err := send(dumpItem{number: number, kind: kind, data: buffer}); err != nil {
			return err
		}
	}
	limited.left = maxItemBytes
	_, err := decoder.ReadToken()
	return err
}

// decodeType decodes the next value into head if it is the value of one of its fields. It skips all
// other values.
func decodeType(decoder *jsontext.Decoder, name string, head *metav1.TypeMeta) error {
	switch {
	case name == "apiVersion" && decoder.PeekKind() == '"':
		return json.UnmarshalDecode(decoder, &head.APIVersion)
	case name == "kind" && decoder.PeekKind() == '"':
		return json.UnmarshalDecode(decoder, &head.Kind)
	}
	return decoder.SkipValue()
}

// dump adds objects to caches.
type dump struct {
	*Objects
	kinds   map[schema.GroupKind]*dumpKind
	trimmer *transform.PodTrimmer
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
	own, err := kindOf(*item.data)
	if err != nil {
		return err
	}
	if own.Kind == "" {
		own = item.kind
	}
	kind := d.kinds[own]
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
		return fmt.Errorf("%s: %w", own.Kind, err)
	}
	if err := checkMeta(object); err != nil {
		return fmt.Errorf("%s %q: %w", own.Kind, object.GetNamespace()+"/"+object.GetName(), err)
	}
	kind.found.Store(true)
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
	if d.Scope.Count != nil {
		d.Scope.Count.Add(1)
	}
	return kind.into.Add(trimmed)
}

// kindOf returns the kind that an object names; zero if none. kubectl writes it first, so that the
// rest is not read.
func kindOf(data []byte) (schema.GroupKind, error) {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data))
	if decoder.PeekKind() != '{' {
		return schema.GroupKind{}, fmt.Errorf("it is no JSON object: %s", expectedDump)
	}
	var head metav1.TypeMeta
	_, err := decoder.ReadToken()
	for err == nil && decoder.PeekKind() == '"' && (head.APIVersion == "" || head.Kind == "") {
		var name jsontext.Token
		if name, err = decoder.ReadToken(); err == nil {
			err = decodeType(decoder, name.String(), &head)
		}
	}
	return head.GroupVersionKind().GroupKind(), err
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
