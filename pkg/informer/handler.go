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
