package extender

import (
	"hash/maphash"
	"slices"
)

// table says the kind of every node, by its name. A request looks up thousands of names in no order, and what takes the time is to wait for
// memory: so a table holds no more of a name than its hash. Two of 100,000 names have the same one with a probability of 3e-10 (n²/2⁶⁵);
// they would count as one node.
type table struct {
	seed maphash.Seed
	// hashes are a power of two. A name's place is the first one from its hash on where that stands, or 0. kinds are the indices of the
	// kinds in the same places.
	hashes []uint64
	kinds  []int32
	used   int // places with a hash
}

// noKind is the index of the kind of a node that is not known.
const noKind = -1

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	t.resize(64)
	return t
}

// set sets the kind of a node, noKind for one that is gone.
func (t *table) set(name string, kind int32) {
	hash := t.hash(name)
	i := t.place(hash)
	t.used += count(t.hashes[i] == 0)
	t.hashes[i], t.kinds[i] = hash, kind
	if 2*t.used > len(t.hashes) {
		t.rebuild()
	}
}

// appendKinds appends to kinds those of nodes by their names. scratch is memory for it that may be used again, and is returned.
func (t *table) appendKinds(kinds []int32, names *names, scratch []uint64) ([]int32, []uint64) {
	scratch = slices.Grow(scratch[:0], names.len())
	for i := range names.len() {
		scratch = append(scratch, t.hash(names.at(i)))
	}
	// By themselves the look-ups wait for memory many at a time.
	for _, hash := range scratch {
		kinds = append(kinds, t.kinds[t.place(hash)])
	}
	return kinds, scratch
}

// hash returns the hash of a name, which is not 0.
func (t *table) hash(name string) uint64 { return max(maphash.String(t.seed, name), 1) }

// place returns the place of a hash.
func (t *table) place(hash uint64) uint64 {
	last := uint64(len(t.hashes) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		if h := t.hashes[i]; h == hash || h == 0 {
			return i
		}
	}
}

// rebuild makes as much room as the nodes need that are there, and forgets those that are gone.
func (t *table) rebuild() {
	hashes, kinds := t.hashes, t.kinds
	there := 0
	for _, kind := range kinds {
		there += count(kind != noKind)
	}
	size := len(hashes)
	for size < 3*there {
		size *= 2
	}
	t.resize(size)
	for i, kind := range kinds {
		if kind != noKind {
			place := t.place(hashes[i])
			t.hashes[place], t.kinds[place] = hashes[i], kind
		}
	}
	t.used = there
}

func (t *table) resize(size int) {
	t.hashes, t.kinds = make([]uint64, size), make([]int32, size)
	for i := range t.kinds {
		t.kinds[i] = noKind
	}
}
