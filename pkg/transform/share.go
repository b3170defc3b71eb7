package transform

import (
	"maps"
	"reflect"
	"sync"
	"weak"
)

// minSweep is the smallest number of keys at which latest removes keys without objects.
const minSweep = 1_000

// latest contains the most recent object of each key, while something else refers to the object.
// Its zero value is empty.
type latest[K comparable, T any] struct {
	mu      sync.Mutex
	objects map[K]weak.Pointer[T]
	// sweepAt is the number of keys at which keys without objects are removed.
	sweepAt int
}

// share calls share with the most recent object of key, if there is one, and then remembers object
// in its place. Calls of share do not overlap.
func (l *latest[K, T]) share(key K, object *T, share func(other *T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.objects[key].Value(); other != nil {
		share(other)
	} else if len(l.objects) >= l.sweepAt {
		if l.objects == nil {
			l.objects = map[K]weak.Pointer[T]{}
		}
		maps.DeleteFunc(l.objects, func(_ K, object weak.Pointer[T]) bool { return object.Value() == nil })
		l.sweepAt = max(minSweep, 2*len(l.objects))
	}
	l.objects[key] = weak.Make(object)
}

// shareFields replaces the fields of a struct by equal fields of other, so that both share memory.
// This is safe because objects in caches are never changed.
func shareFields[T any](mine, other *T) {
	to, from := reflect.ValueOf(mine).Elem(), reflect.ValueOf(other).Elem()
	for i := range to.NumField() {
		// Compare by address, because Interface would copy the field.
		field, their := to.Field(i), from.Field(i)
		if !field.IsZero() && reflect.DeepEqual(field.Addr().Interface(), their.Addr().Interface()) {
			field.Set(their)
		}
	}
}
