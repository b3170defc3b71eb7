package extender

// table says the kind of every node, by its name. A request looks up thousands of names in no order, and what takes the time is to wait for
// memory: so a table holds no more of a name than its hash. Two of 100,000 names have the same one with a probability of 3e-10 (n²/2⁶⁵);
// they would count as one node. The lock of the index guards it.
type table struct {
	// hashes are a power of two. A name's place is the first one from its hash on where that stands, or 0. kinds are the indices of the
	// kinds in the same places.
	hashes []uint64
	kinds  []int32
	used   int // places with a hash
}

// noKind is the index of the kind of a node that is not known.
const noKind = -1

func newTable() *table {
	t := &table{}
	t.empty(64)
	return t
}

// set sets the kind of a node, noKind for one that is gone.
func (t *table) set(name string, kind int32) {
	hash := hashOf(name)
	i := t.place(hash)
	t.used += count(t.hashes[i] == 0)
	t.hashes[i], t.kinds[i] = hash, kind
	if 2*t.used > len(t.hashes) { // with more, most look-ups would not end at the first place
		t.rebuild()
	}
}

// lookUp finds the kinds of candidates.
func (t *table) lookUp(c *candidates) {
	c.kinds = c.kinds[:0]
	// With the hashes made before, many look-ups wait for memory at a time.
	for _, hash := range c.names.hashes {
		c.kinds = append(c.kinds, t.kinds[t.place(hash)])
	}
}

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
	for size < 3*there { // or the next one would be soon
		size *= 2
	}
	t.empty(size)
	for i, kind := range kinds {
		if kind != noKind {
			place := t.place(hashes[i])
			t.hashes[place], t.kinds[place] = hashes[i], kind
		}
	}
	t.used = there
}

// empty makes so many places, which are all free.
func (t *table) empty(size int) {
	t.hashes, t.kinds = make([]uint64, size), make([]int32, size)
	for i := range t.kinds {
		t.kinds[i] = noKind
	}
}
