package lister

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"sync"
)

// maxItemBytes limits the size of one object in a dump. etcd stores at most 1.5 MiB per object.
const maxItemBytes = 16 << 20

var errItemTooLarge = fmt.Errorf("a value has more than %d MiB", maxItemBytes>>20)

// limitedReader limits how much may be read before left is set again.
type limitedReader struct {
	io.Reader
	left int
}

func (r *limitedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errItemTooLarge
	}
	n, err := r.Reader.Read(p)
	r.left -= n
	return n, err
}

// splitter splits the items of a JSON array, after its opening bracket. It only finds where they
// end, which is several times faster than to decode them. Errors in an item appear when it is
// decoded.
type splitter struct {
	r     *bufio.Reader
	later bool // not the first item

	// The state of the scan of the current item.
	item     []byte
	depth    int  // of brackets
	inString bool // after an opening quote
	escaped  bool // after a backslash
}

// next returns the next item, which must be an object, without the space between its tokens. It
// returns nil at the end of the array, which it has then read.
func (s *splitter) next() ([]byte, error) {
	c, err := s.token()
	if err == nil && c == ']' {
		return nil, nil
	}
	if err == nil && s.later {
		if c != ',' {
			return nil, fmt.Errorf("invalid character %q after it: expected a comma", c)
		}
		c, err = s.token()
	}
	if err != nil {
		return nil, err
	}
	if c != '{' {
		return nil, fmt.Errorf("invalid character %q: expected an object", c)
	}
	s.later = true
	s.item, s.depth = append(newItem(), c), 1
	for s.depth > 0 {
		if _, err := s.r.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := s.r.Peek(s.r.Buffered()) // no error, because the bytes are in the buffer
		if _, err := s.r.Discard(s.scan(chunk)); err != nil {
			return nil, err
		}
		if len(s.item) > maxItemBytes {
			return nil, errItemTooLarge
		}
	}
	return s.item, nil
}

// newItem returns an empty buffer for an item.
func newItem() []byte {
	if b, ok := itemBuffers.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 16<<10)
}

// itemBuffers contains the buffers of items that were decoded.
var itemBuffers sync.Pool

// scan appends the bytes of the current item at the start of chunk. It returns how many bytes of
// chunk it has read.
func (s *splitter) scan(chunk []byte) int {
	i := 0
	for i < len(chunk) && s.depth > 0 {
		c := chunk[i]
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			n := s.scanString(chunk[i:])
			s.item = append(s.item, chunk[i:i+n]...)
			i += n
			continue
		case isSpace(c):
			i++
			continue
		case c == '"':
			s.inString = true
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			s.depth--
		}
		s.item = append(s.item, c)
		i++
	}
	return i
}

// scanString returns how many bytes of chunk are up to the end of the string, to the first
// backslash, or to the end of chunk.
func (s *splitter) scanString(chunk []byte) int {
	end := bytes.IndexByte(chunk, '"')
	if end >= 0 {
		chunk = chunk[:end+1]
	}
	if escape := bytes.IndexByte(chunk, '\\'); escape >= 0 {
		s.escaped = true
		return escape + 1
	}
	s.inString = end < 0
	return len(chunk)
}

// token returns the next byte that is no space.
func (s *splitter) token() (byte, error) {
	for {
		if c, err := s.r.ReadByte(); err != nil || !isSpace(c) {
			return c, err
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
