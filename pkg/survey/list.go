package survey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// pageSize is how many objects are asked for at a time: few enough that little memory holds what has come and is not decoded yet, and enough
// that requests cost nothing beside objects.
const pageSize = 2500

// decoders is how many pages of one resource are decoded at a time.
const decoders = 2

// object is a pointer to an object of the API that can decode itself.
type object[T any] interface {
	*T
	metav1.Object
	Unmarshal(data []byte) error
}

// list returns all objects of a resource, without what nobody reads here and is big. While one page is decoded the next is on its way: a
// typed client has the API server and this program wait for each other, and holds all of a list three times. The server must speak protobuf.
func list[T any, P object[T]](ctx context.Context, client rest.Interface, resource, namespace string, options metav1.ListOptions) ([]any, error) {
	var pages [][]any
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(decoders)
	options.Limit = pageSize
	for {
		result := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&options, scheme.ParameterCodec).Do(ctx)
		if err := result.Error(); err != nil {
			return nil, errors.Join(group.Wait(), err)
		}
		body, err := result.Raw()
		if err != nil {
			return nil, errors.Join(group.Wait(), err)
		}
		meta, items, err := split(body)
		if err != nil {
			return nil, errors.Join(group.Wait(), fmt.Errorf("list of %s: %w", resource, err))
		}
		page := make([]any, len(items))
		pages = append(pages, page)
		group.Go(func() error {
			for i, item := range items {
				object := P(new(T))
				if err := object.Unmarshal(item); err != nil {
					return fmt.Errorf("list of %s: %w", resource, err)
				}
				strip(object)
				page[i] = object
			}
			return nil
		})
		if options.Continue = meta.Continue; options.Continue == "" {
			break
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all []any
	for _, page := range pages {
		all = append(all, page...)
	}
	return all, nil
}

// strip takes off what nobody reads here and is big: less to hold, and less for the collector of garbage to look at.
func strip(object metav1.Object) {
	object.SetManagedFields(nil)
	switch o := object.(type) {
	case *v1.Pod:
		stripPod(&o.Spec)
	case *v1.Node:
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	case *appsv1.ReplicaSet:
		o.Spec.Template = v1.PodTemplateSpec{} // that of its Deployment says more
	case *appsv1.Deployment:
		stripPod(&o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		stripPod(&o.Spec.Template.Spec)
	case *batchv1.Job:
		o.Spec.Template = v1.PodTemplateSpec{}
	}
}

// stripPod leaves of containers what they ask for, and of volumes the claims.
func stripPod(spec *v1.PodSpec) {
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i, c := range containers {
			containers[i] = v1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy, RestartPolicy: c.RestartPolicy}
		}
	}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume v1.Volume) bool { return volume.PersistentVolumeClaim == nil })
}

// magic is what everything of the API begins with that is encoded as protobuf; a runtime.Unknown follows, whose raw is the object.
var magic = []byte("k8s\x00")

// The numbers of fields: of raw in runtime.Unknown, and of metadata and items in every list.
const (
	rawField      protowire.Number = 2
	metadataField protowire.Number = 1
	itemsField    protowire.Number = 2
)

// split takes an encoded list apart: its metadata, and its items as they are.
func split(body []byte) (meta metav1.ListMeta, items [][]byte, err error) {
	envelope, ok := bytes.CutPrefix(body, magic)
	if !ok {
		return meta, nil, errors.New("expected protobuf")
	}
	err = fields(envelope, func(number protowire.Number, raw []byte) error {
		if number != rawField {
			return nil
		}
		return fields(raw, func(number protowire.Number, value []byte) error {
			switch number {
			case metadataField:
				return meta.Unmarshal(value)
			case itemsField:
				items = append(items, value)
			}
			return nil
		})
	})
	return meta, items, err
}

// fields calls each with every field of a message that has bytes.
func fields(message []byte, each func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := each(number, value); err != nil {
			return err
		}
	}
	return nil
}
