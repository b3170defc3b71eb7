package extender

import (
	"slices"
	"unsafe"
)

// names are those of the nodes that a request is about. A slice of strings would be thousands of pointers: to write them takes several times
// as long as all the rest of a request while garbage is collected.
type names struct {
	text  []byte
	spans []span
}

// span is where a name stands in the text, which is no longer than MaxBody and what was added.
type span struct{ begin, end uint32 }

// reset empties the list. The names that are added next may be parts of text, which is not changed.
func (n *names) reset(text []byte) {
	n.text, n.spans = slices.Clip(text), n.spans[:0]
}

// add adds a name that is no part of the text.
func (n *names) add(name string) {
	begin := len(n.text)
	n.text = append(n.text, name...)
	n.addSpan(begin, len(n.text))
}

// addSpan adds a name that is part of the text.
func (n *names) addSpan(begin, end int) {
	n.spans = append(n.spans, span{uint32(begin), uint32(end)})
}

func (n *names) len() int { return len(n.spans) }

// at returns a name, which is good as long as the text is not changed.
func (n *names) at(i int) string {
	s := n.spans[i]
	return unsafe.String(unsafe.SliceData(n.text[s.begin:s.end]), s.end-s.begin)
}
