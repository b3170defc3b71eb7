package extender

// table maps names of nodes to their kinds. A request looks up thousands of names in no order, and
// most of its time is spent waiting for memory. So the table stores only the hash of a name. Two of
// 100,000 names have the same hash with a probability of 3e-10 (n²/2⁶⁵); they would count as one
// node. The lock of the index guards the table.
type table struct {
	// The length of hashes is a power of two. The slot of a name is the first one, starting at its
	// hash, that has this hash or 0. kinds has the index of the kind in the same slot.
	hashes []uint64
	kinds  []int32
	used   int // slots with a hash
}

// noKind is the index of the kind of an unknown node.
const noKind = -1

func newTable() *table {
	t := &table{}
	t.empty(64)
	return t
}

// set sets the kind of a node; noKind for a deleted one.
func (t *table) set(name string, kind int32) {
	hash := hashOf(name)
	i := t.slot(hash)
	t.used += btoi(t.hashes[i] == 0)
	t.hashes[i], t.kinds[i] = hash, kind
	if 2*t.used > len(t.hashes) { // if more slots are used, most look-ups need more than one step
		t.rebuild()
	}
}

// lookUp finds the kinds of candidates.
func (t *table) lookUp(c *candidates) {
	c.kinds = c.kinds[:0]
	// The hashes are precomputed, so that the CPU can wait for the memory of many look-ups at once.
	for _, hash := range c.names.hashes {
		c.kinds = append(c.kinds, t.kinds[t.slot(hash)])
	}
}

// slot returns the slot of a hash.
func (t *table) slot(hash uint64) uint64 {
	last := uint64(len(t.hashes) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		if h := t.hashes[i]; h == hash || h == 0 {
			return i
		}
	}
}

// rebuild resizes the table for the current nodes and removes deleted ones.
func (t *table) rebuild() {
	hashes, kinds := t.hashes, t.kinds
	existing := 0
	for _, kind := range kinds {
		existing += btoi(kind != noKind)
	}
	size := len(hashes)
	for size < 3*existing { // leaves room until the next rebuild
		size *= 2
	}
	t.empty(size)
	for i, kind := range kinds {
		if kind != noKind {
			slot := t.slot(hashes[i])
			t.hashes[slot], t.kinds[slot] = hashes[i], kind
		}
	}
	t.used = existing
}

// empty replaces the table with size free slots.
func (t *table) empty(size int) {
	t.hashes, t.kinds = make([]uint64, size), make([]int32, size)
	for i := range t.kinds {
		t.kinds[i] = noKind
	}
}
