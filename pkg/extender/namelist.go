package extender

import (
	"bytes"
	"hash/maphash"
	"unsafe"
)

// nameList has names of nodes and their hashes. It is not a slice of strings, because writing
// thousands of pointers during garbage collection takes several times as long as the rest of a
// request.
type nameList struct {
	text   []byte // text that contains most names
	copies []byte // names that text does not contain verbatim
	spans  []span
	hashes []uint64
}

// span is the position of a name in the text or, beyond its end, in the copies.
type span struct{ begin, end uint32 }

// reset empties the list and reuses all its memory except the text. Names in text are not copied,
// so text must not change while the list is in use.
func (n *nameList) reset(text []byte) {
	n.text = text
	n.copies, n.spans, n.hashes = n.copies[:0], n.spans[:0], n.hashes[:0]
}

// add adds a copy of a name.
func (n *nameList) add(name string) {
	begin := len(n.text) + len(n.copies)
	n.copies = append(n.copies, name...)
	n.spans = append(n.spans, span{uint32(begin), uint32(begin + len(name))})
	n.hashes = append(n.hashes, hashOf(name))
}

func (n *nameList) len() int { return len(n.spans) }

// at returns a name, which is valid until reset or a change of the text.
func (n *nameList) at(i int) string {
	where, end := n.spans[i], uint32(len(n.text))
	if where.begin < end {
		return textAt(n.text, where)
	}
	return textAt(n.copies, span{where.begin - end, where.end - end})
}

func textAt(text []byte, where span) string {
	return unsafe.String(unsafe.SliceData(text[where.begin:where.end]), where.end-where.begin)
}

// read adds names from the text, starting at the quote at begin. The names must be in the form that
// kube-scheduler writes: only a comma between them. backslash is the position of the first
// backslash at or after begin. read stops at maxCandidates names, and before a name with a
// backslash. It returns the position after the last added name, or begin if it added none. Reading
// names one by one with scanner.text takes twice as long.
func (n *nameList) read(begin, backslash int) (end int) {
	text := n.text
	end = begin
	for quote := begin; len(n.spans) < maxCandidates; quote = end + 1 {
		length := bytes.IndexByte(text[quote+1:], '"')
		where := span{uint32(quote + 1), uint32(quote + 1 + length)}
		if length < 0 || int(where.end) > backslash {
			break
		}
		n.spans = append(n.spans, where)
		n.hashes = append(n.hashes, hashOf(textAt(text, where)))
		end = int(where.end) + 1
		if end+1 >= len(text) || text[end] != ',' || text[end+1] != '"' {
			break
		}
	}
	return end
}

var seed = maphash.MakeSeed()

// hashOf returns the hash of a name or UID, which is never 0. It differs between processes.
func hashOf(s string) uint64 { return max(maphash.String(seed, s), 1) }
