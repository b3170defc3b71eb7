// Package informer passes the events of an informer to functions for objects of one type.
package informer

import "k8s.io/client-go/tools/cache"

// Handler is a cache.ResourceEventHandler for objects of type T. Events of a nil function are
// ignored.
type Handler[T any] struct {
	Add    func(object T)
	Update func(before, after T)
	// Delete receives the last known state of the object, even if the watch missed the deletion.
	Delete func(object T)
}

// Changes returns a Handler that passes every change of an object to changed. before is nil for a
// new object, after for a deleted object.
func Changes[T any](changed func(before, after *T)) Handler[*T] {
	return Handler[*T]{
		Add:    func(object *T) { changed(nil, object) },
		Update: changed,
		Delete: func(object *T) { changed(object, nil) },
	}
}

// OnAdd implements cache.ResourceEventHandler.
func (h Handler[T]) OnAdd(obj any, _ bool) {
	if h.Add != nil {
		h.Add(obj.(T))
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h Handler[T]) OnUpdate(before, after any) {
	if h.Update != nil {
		h.Update(before.(T), after.(T))
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h Handler[T]) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if object, ok := obj.(T); ok && h.Delete != nil {
		h.Delete(object)
	}
}
