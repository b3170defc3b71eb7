package transform

import (
	"hash/maphash"
	"maps"
	"reflect"
	"sync"
	"weak"
)

// minSweep is the smallest number of keys at which latest removes keys without objects.
const minSweep = 1_000

var seed = maphash.MakeSeed()

// latest contains the most recent object of each key, while something else refers to the object.
// Its zero value is empty. It retains hashes of the keys, because tenants choose their length.
type latest[T any] struct {
	mu      sync.Mutex
	objects map[uint64]weak.Pointer[T]
	// sweepAt is the number of keys at which keys without objects are removed.
	sweepAt int
}

// replace remembers object as the most recent one of key. Before that, it calls reuse with the
// previous object of key, if there is one. It may be that of another key with the same hash. Calls
// of reuse do not overlap.
func (l *latest[T]) replace(key string, object *T, reuse func(previous *T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects == nil {
		l.objects, l.sweepAt = map[uint64]weak.Pointer[T]{}, minSweep
	}
	hash := maphash.String(seed, key)
	if previous := l.objects[hash].Value(); previous != nil {
		reuse(previous)
	} else if len(l.objects) >= l.sweepAt {
		maps.DeleteFunc(l.objects, func(_ uint64, object weak.Pointer[T]) bool { return object.Value() == nil })
		l.sweepAt = max(minSweep, 2*len(l.objects))
	}
	l.objects[hash] = weak.Make(object)
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
