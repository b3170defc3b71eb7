package extender

import (
	"bytes"
	"hash/maphash"
	"unsafe"
)

// nameList are names of nodes and their hashes. A slice of strings would be thousands of pointers, and to write these takes several times as
// long as the rest of a request while garbage is collected.
type nameList struct {
	text   []byte // in which most of them stand
	copies []byte // of those that do not stand in it as they are
	spans  []span
	hashes []uint64
}

// span is where a name stands: in the text, or behind it in the copies.
type span struct{ begin, end uint32 }

// reset empties the list, and keeps the memory of all but the text. Names that stand in text, which must not change while they are used, are
// read without being copied.
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

// at returns a name, which is good until reset or a change of the text.
func (n *nameList) at(i int) string {
	at, behind := n.spans[i], uint32(len(n.text))
	if at.begin < behind {
		return textAt(n.text, at)
	}
	return textAt(n.copies, span{at.begin - behind, at.end - behind})
}

func textAt(text []byte, at span) string {
	return unsafe.String(unsafe.SliceData(text[at.begin:at.end]), at.end-at.begin)
}

// read adds names that stand in the text from the quote at begin on, as kube-scheduler writes them: nothing but a comma between. backslash is
// where the first one stands from begin on. It stops at maxCandidates names, and before a name with a backslash. It returns the place after
// the last name that it added; begin if there was none. One by one, by scanner.text, they would take twice as long.
func (n *nameList) read(begin, backslash int) (end int) {
	text := n.text
	end = begin
	for quote := begin; len(n.spans) < maxCandidates; quote = end + 1 {
		length := bytes.IndexByte(text[quote+1:], '"')
		at := span{uint32(quote + 1), uint32(quote + 1 + length)}
		if length < 0 || int(at.end) > backslash {
			break
		}
		n.spans = append(n.spans, at)
		n.hashes = append(n.hashes, hashOf(textAt(text, at)))
		end = int(at.end) + 1
		if end+1 >= len(text) || text[end] != ',' || text[end+1] != '"' {
			break
		}
	}
	return end
}

var seed = maphash.MakeSeed()

// hashOf returns the hash of a name or UID, which is not 0. It is another one in each process.
func hashOf(s string) uint64 { return max(maphash.String(seed, s), 1) }
