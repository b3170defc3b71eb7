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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

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
	scope.Volumes, scope.DisruptionBudgets = true, true
	s, err := newObjects(nil, scope)
	if err != nil {
		return nil, err
	}
	s.listings = slices.DeleteFunc(s.listings, func(l listing) bool { return l.kind.Kind == "PriorityClass" }) // a dump lacks them
	d := &dump{Objects: s, trimmer: transform.NewMovedPodTrimmer(), unusedKinds: map[string]int{}}
	if path == "-" {
		err = d.read(ctx, "standard input", stdin)
	} else {
		err = d.readFiles(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	for i := range s.listings {
		resource := s.listings[i].resource().Resource
		switch kind := s.listings[i].kind.Kind; {
		case kind == nodePool.Kind && !s.hasNodesOfPools():
		case s.listings[i].found || kind == "ReplicationController" || kind == "Namespace" || kind == "StorageClass":
			// Most clusters have none, or no label, or no topology.
		case kind == "Node" || kind == "Pod":
			return nil, fmt.Errorf("%s: it has no %s: %s of nodes and pods", path, resource, expectedDump)
		default:
			s.Missing = append(s.Missing, resource)
		}
	}
	slices.Sort(s.Missing)
	for _, kind := range slices.Sorted(maps.Keys(d.unusedKinds)) {
		s.Unused = append(s.Unused, fmt.Sprintf("%d of kind %s", d.unusedKinds[kind], cmp.Or(kind, "unknown")))
	}
	s.Unused = append(s.Unused, d.unusedFiles...)
	return s, nil
}

type dump struct {
	*Objects
	trimmer *transform.PodTrimmer
	// unusedFiles are the files of a directory without objects of Kubernetes.
	unusedFiles []string
	// unusedKinds counts the objects that no command uses.
	unusedKinds map[string]int
}

// readFiles reads a file, or the files of a directory in the order of their names.
func (d *dump) readFiles(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: %s", err, expectedDump)
	}
	if !info.IsDir() {
		return d.readFile(ctx, path)
	}
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if err = d.readFile(ctx, name); errors.Is(err, errNoDump) {
			d.unusedFiles = append(d.unusedFiles, name)
			return nil
		}
		return err
	})
}

func (d *dump) readFile(ctx context.Context, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is only read
	return d.read(ctx, name, file)
}

// read adds the objects of a file in its order.
func (d *dump) read(ctx context.Context, name string, file io.Reader) error {
	number := 0       // of the object in its file, from 1
	var failure error // of an object; it is returned as it is
	text, err := decoded(file)
	if err == nil {
		err = splitText(text, func(kind schema.GroupKind, data []byte) error {
			if data != nil {
				number++
			}
			if err := cmp.Or(ctx.Err(), d.add(kind, data)); err != nil {
				failure = fmt.Errorf("%s: object %d: %w", name, number, err)
			}
			return failure
		})
	}
	switch {
	case err == nil, failure != nil:
		return failure
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: it ends within an object: %s", name, expectedDump)
	}
	if syntax := (*jsontext.SyntacticError)(nil); errors.As(err, &syntax) {
		err = fmt.Errorf("invalid JSON: %w", err)
	}
	return fmt.Errorf("%s: %w: %s", name, err, expectedDump)
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
func (d *dump) add(kind schema.GroupKind, data []byte) error {
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
	of := d.listing(kind)
	switch {
	case of != nil:
		of.found = true
	case data != nil:
		d.unusedKinds[kind.String()]++
	}
	if of == nil || data == nil {
		return nil
	}
	typed, err := newObject(of.kind)
	if err != nil {
		return err
	}
	object := typed.(metav1.Object) // all kinds of Kubernetes have metadata
	if err := json.Unmarshal(data, object, neededFields); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	if err := checkMeta(object); err != nil {
		return fmt.Errorf("%s %q: %w", kind.Kind, name, err)
	}
	if pod, ok := object.(*v1.Pod); ok && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
		return nil // as in List
	}
	if in := object.GetNamespace(); in != "" && d.Scope.Namespace != "" && in != d.Scope.Namespace {
		return nil
	}
	stored, _, _ := of.into.Get(object) // a cache returns no error for an object with a name
	if other, exists := stored.(metav1.Object); exists && other.GetUID() != object.GetUID() {
		return fmt.Errorf("%s %q has another UID than before: expected files of one cluster at one time", kind.Kind, name)
	}
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
