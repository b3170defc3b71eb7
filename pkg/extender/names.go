package extender

import (
	"bytes"
	"hash/maphash"
	"unsafe"
)

// nameList are names of nodes and their hashes. A slice of strings would be thousands of pointers, and to write these takes several times as
// long as the rest of a request while garbage is collected.
type nameList struct {
	text   []byte // in which they stand
	spans  []span
	hashes []uint64
	copied bool // at least one of them
}

// span is where a name stands in a text.
type span struct{ begin, end uint32 }

// reset empties the list, and keeps its memory. Names that stand in text need not be copied.
func (n *nameList) reset(text []byte) {
	n.text = text[:len(text):len(text)] // what is appended is not written behind it
	n.spans, n.hashes, n.copied = n.spans[:0], n.hashes[:0], false
}

// add adds a copy of a name.
func (n *nameList) add(name string) {
	n.copied = true
	begin := len(n.text)
	n.text = append(n.text, name...)
	n.spans = append(n.spans, span{uint32(begin), uint32(len(n.text))})
	n.hashes = append(n.hashes, hashOf(name))
}

func (n *nameList) len() int { return len(n.spans) }

// at returns a name, which is good until reset.
func (n *nameList) at(i int) string { return textAt(n.text, n.spans[i]) }

func textAt(text []byte, at span) string {
	return unsafe.String(unsafe.SliceData(text[at.begin:at.end]), at.end-at.begin)
}

// read adds names that stand in data, which is the text, from the quote at begin on, as kube-scheduler writes them: one right behind the other,
// with nothing but a comma between. It ends before the name that would be more than limit and before one in which something is escaped, the
// first of which is at escaped, and returns how far it has come. One by one, by scanner, they would take twice as long.
func (n *nameList) read(data []byte, begin, limit, escaped int) (end int) {
	end = begin
	for quote := begin; len(n.spans) < limit; quote = end + 1 {
		length := bytes.IndexByte(data[quote+1:], '"')
		at := span{uint32(quote + 1), uint32(quote + 1 + length)}
		if length < 0 || int(at.end) > escaped {
			break
		}
		n.spans = append(n.spans, at)
		n.hashes = append(n.hashes, hashOf(textAt(data, at)))
		end = int(at.end) + 1
		if end+1 >= len(data) || data[end] != ',' || data[end+1] != '"' {
			break
		}
	}
	return end
}

var nameSeed = maphash.MakeSeed()

// hashOf returns the hash of a name, which is not 0.
func hashOf(name string) uint64 { return max(maphash.String(nameSeed, name), 1) }
