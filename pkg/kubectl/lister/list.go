package lister

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// pageSize is how many objects the API server returns at a time. A larger page costs memory on both
// sides, a smaller one time.
const pageSize = 1000

// lister lists the objects of one resource.
type lister struct {
	client   rest.Interface
	resource string
	// newList returns an empty list, such as *v1.PodList.
	newList func() runtime.Object
	// trim returns an object without the fields that nothing reads. It may change the object.
	trim cache.TransformFunc
	// count is increased for each object.
	count *atomic.Int64
}

// list adds the objects of a namespace, or of all namespaces if it is empty, to a store. After an
// error the store contains only a part.
func (l *lister) list(ctx context.Context, namespace string, options metav1.ListOptions, into cache.Store) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		list := l.newList()
		err := l.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(l.resource).
			VersionedParams(&options, scheme.ParameterCodec).Do(ctx).Into(list)
		return list, err
	})
	pages.PageSize = pageSize
	pages.PageBufferSize = 2 // the next pages are read while one is stored
	err := pages.EachListItem(ctx, options, func(object runtime.Object) error {
		trimmed, err := l.trim(object)
		if err != nil {
			return err
		}
		l.count.Add(1)
		return into.Add(trimmed)
	})
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		return err // an error of the API server names the resource
	}
	return fmt.Errorf("list of %s: %w", l.resource, err)
}

// dropManagedFields is the trim function of all objects but pods.
func dropManagedFields(object any) (any, error) {
	if accessor, ok := object.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
