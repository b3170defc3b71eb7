package extender

import "unsafe"

// nameList are names of nodes. A slice of strings would be thousands of pointers, and to write these takes several times as long as the rest
// of a request while garbage is collected.
type nameList struct {
	text []byte   // of all names, one after the other
	ends []uint32 // where each ends
}

// reset empties the list, and keeps its memory.
func (n *nameList) reset() { n.text, n.ends = n.text[:0], n.ends[:0] }

// add adds a copy of a name.
func (n *nameList) add(name string) {
	n.text = append(n.text, name...)
	n.ends = append(n.ends, uint32(len(n.text)))
}

func (n *nameList) len() int { return len(n.ends) }

// at returns a name, which is good until reset.
func (n *nameList) at(i int) string {
	begin := uint32(0)
	if i > 0 {
		begin = n.ends[i-1]
	}
	name := n.text[begin:n.ends[i]]
	return unsafe.String(unsafe.SliceData(name), len(name))
}
