package lister

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// expectedDump describes a dump for error messages.
const expectedDump = "expected the output of kubectl get -o json"

// dumpKind is a kind of object that a dump may have.
type dumpKind struct {
	resource string
	// optional: no warning is necessary if a dump has no such object.
	optional bool
	new      func() metav1.Object
	into     cache.SharedIndexInformer
	found    atomic.Bool
}

// dumpItem is an object in a dump, as JSON.
type dumpItem struct {
	file   string
	number int // in its file, from 1
	// kind is the kind of the object if the object itself does not name it.
	kind schema.GroupKind
	data []byte
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
	s := &Objects{Scope: scope, factory: informers.NewSharedInformerFactory(nil, 0)} // never started: it only provides the caches
	if _, err := s.Owners(nil); err != nil {
		return nil, err
	}
	d := &dump{Objects: s, kinds: s.dumpKinds(), trimmer: transform.NewMovedPodTrimmer()}
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
				itemBuffers.Put(&item.data) // the object has copies of its strings
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, kind := range d.kinds {
		switch {
		case kind.found.Load() || kind.optional:
		case kind.resource == "nodes" || kind.resource == "pods":
			return nil, fmt.Errorf("%s: it has no %s: %s of nodes and pods", path, kind.resource, expectedDump)
		default:
			s.Missing = append(s.Missing, kind.resource)
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
		err = fmt.Errorf("invalid JSON: %w", syntax.Err)
	}
	return fmt.Errorf("%s: %s: %w", file, expectedDump, err)
}

// splitList sends the objects of the list that file contains.
func splitList(file io.Reader, send func(dumpItem) error) error {
	limited := &limitedReader{file, maxItemBytes}
	decoder := jsontext.NewDecoder(limited)
	if kind := decoder.PeekKind(); kind != '{' && kind != 0 {
		return errors.New("the file contains no JSON object")
	}
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	var apiVersion, listKind string
	listed := false
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadToken()
		if err != nil {
			return err
		}
		switch key := name.String(); {
		case key == "apiVersion" && decoder.PeekKind() == '"':
			err = json.UnmarshalDecode(decoder, &apiVersion)
		case key == "kind" && decoder.PeekKind() == '"':
			err = json.UnmarshalDecode(decoder, &listKind)
		case key == "items" && decoder.PeekKind() == '[' && !listed:
			listed = true
			if _, err := decoder.ReadToken(); err != nil {
				return err
			}
			kind := schema.FromAPIVersionAndKind(apiVersion, strings.TrimSuffix(listKind, "List")).GroupKind()
			limited.left = math.MaxInt // splitter has its own limit
			rest := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(decoder.UnreadBuffer())), limited), 1<<20)
			if err := sendItems(&splitter{r: rest}, kind, send); err != nil {
				return err
			}
			// The decoder continues after the list.
			limited.left = maxItemBytes
			decoder.Reset(io.MultiReader(strings.NewReader(`{"items":null`), rest))
			for range 3 {
				if _, err := decoder.ReadToken(); err != nil {
					return err
				}
			}
		default:
			err = decoder.SkipValue()
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

// sendItems sends the objects of a list. kind is their kind if they do not name it.
func sendItems(items *splitter, kind schema.GroupKind, send func(dumpItem) error) error {
	for number := 1; ; number++ {
		data, err := items.next()
		if err != nil {
			return fmt.Errorf("item %d: %w", number, err)
		}
		if data == nil {
			return nil
		}
		if err := send(dumpItem{number: number, kind: kind, data: data}); err != nil {
			return err
		}
	}
}

// dump adds objects to caches.
type dump struct {
	*Objects
	kinds   map[schema.GroupKind]*dumpKind
	trimmer *transform.PodTrimmer
}

func (s *Objects) dumpKinds() map[schema.GroupKind]*dumpKind {
	core, apps := s.factory.Core().V1(), s.factory.Apps().V1()
	kind := func(group, kind string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: kind} }
	return map[schema.GroupKind]*dumpKind{
		kind("", "Node"): {resource: "nodes", new: func() metav1.Object { return &v1.Node{} }, into: core.Nodes().Informer()},
		kind("", "Pod"):  {resource: "pods", new: func() metav1.Object { return &v1.Pod{} }, into: core.Pods().Informer()},
		kind("", "ReplicationController"): {resource: "replicationcontrollers", optional: true,
			new: func() metav1.Object { return &v1.ReplicationController{} }, into: core.ReplicationControllers().Informer()},
		kind("", "PersistentVolumeClaim"): {resource: "persistentvolumeclaims",
			new: func() metav1.Object { return &v1.PersistentVolumeClaim{} }, into: core.PersistentVolumeClaims().Informer()},
		kind("", "PersistentVolume"): {resource: "persistentvolumes",
			new: func() metav1.Object { return &v1.PersistentVolume{} }, into: core.PersistentVolumes().Informer()},
		kind("apps", "Deployment"): {resource: "deployments", new: func() metav1.Object { return &appsv1.Deployment{} }, into: apps.Deployments().Informer()},
		kind("apps", "ReplicaSet"): {resource: "replicasets", new: func() metav1.Object { return &appsv1.ReplicaSet{} }, into: apps.ReplicaSets().Informer()},
		kind("apps", "StatefulSet"): {resource: "statefulsets",
			new: func() metav1.Object { return &appsv1.StatefulSet{} }, into: apps.StatefulSets().Informer()},
		kind("batch", "Job"): {resource: "jobs", new: func() metav1.Object { return &batchv1.Job{} }, into: s.factory.Batch().V1().Jobs().Informer()},
		kind("policy", "PodDisruptionBudget"): {resource: "poddisruptionbudgets",
			new: func() metav1.Object { return &policyv1.PodDisruptionBudget{} }, into: s.factory.Policy().V1().PodDisruptionBudgets().Informer()},
	}
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
	own, err := kindOf(item.data)
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
	object := kind.new()
	if err := json.Unmarshal(item.data, object, neededFields); err != nil {
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
	return kind.into.GetStore().Add(trimmed)
}

// kindOf returns the kind that an object names; zero if none. kubectl writes it first.
func kindOf(data []byte) (schema.GroupKind, error) {
	decoder := jsontext.NewDecoder(bytes.NewReader(data[:min(len(data), 256)]))
	var apiVersion, kind string
	if decoder.PeekKind() != '{' {
		return schema.GroupKind{}, fmt.Errorf("it is no JSON object: %s", expectedDump)
	}
	_, err := decoder.ReadToken()
	for err == nil && decoder.PeekKind() == '"' && (apiVersion == "" || kind == "") {
		var name jsontext.Token
		if name, err = decoder.ReadToken(); err != nil {
			break
		}
		switch key := name.String(); {
		case key == "apiVersion" && decoder.PeekKind() == '"':
			err = json.UnmarshalDecode(decoder, &apiVersion)
		case key == "kind" && decoder.PeekKind() == '"':
			err = json.UnmarshalDecode(decoder, &kind)
		default:
			err = decoder.SkipValue()
		}
	}
	if apiVersion == "" || kind == "" { // they are not first
		var head metav1.TypeMeta
		if err := json.Unmarshal(data, &head); err != nil {
			return schema.GroupKind{}, err
		}
		apiVersion, kind = head.APIVersion, head.Kind
	}
	return schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind(), nil
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
