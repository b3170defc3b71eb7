package extender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unsafe"
)

// scanner reads JSON of a known form. Its results share the memory of data unless a method
// documents otherwise. After an error, the scanner must not be used.
type scanner struct {
	data []byte
	at   int
	// backslash is the last result of firstBackslash. It is valid while it is greater than at.
	backslash int
}

// space skips white space and returns the next byte, or 0 at the end.
func (s *scanner) space() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// next skips c if it is the next byte, and reports whether it is.
func (s *scanner) next(c byte) bool {
	if s.space() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) expected(what string) error {
	if s.space() == 0 {
		return fmt.Errorf("expected %s, got the end", what)
	}
	return fmt.Errorf("expected %s, got %q after %d bytes", what, s.data[s.at], s.at)
}

// object reads an object. It calls field at each value, and field must read that value.
func (s *scanner) object(field func(key string) error) error {
	if !s.next('{') {
		return s.expected("{")
	}
	for first := true; !s.next('}'); first = false {
		if !first && !s.next(',') {
			return s.expected(", or }")
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.next(':') {
			return s.expected(":")
		}
		if err := field(key); err != nil {
			return err
		}
	}
	return nil
}

// array reads an array. It calls element at each value, and element must read that value.
func (s *scanner) array(element func() error) error {
	if !s.next('[') {
		return s.expected("[")
	}
	for first := true; !s.next(']'); first = false {
		if !first && !s.next(',') {
			return s.expected(", or ]")
		}
		if err := element(); err != nil {
			return err
		}
	}
	return nil
}

// names reads an array of strings into list, which must have been reset to data. It returns
// errTooMany if there are more than maxCandidates.
func (s *scanner) names(list *nameList) error {
	return s.array(func() error {
		before := list.len()
		if s.space() == '"' {
			s.at = list.read(s.at, s.firstBackslash())
		}
		if list.len() > before {
			return nil
		}
		if before >= maxCandidates {
			return errTooMany
		}
		name, err := s.text() // a string with an escape, or not a string
		if err == nil {
			list.add(name)
		}
		return err
	})
}

// text reads a string. If the string has no escape, it shares the memory of data and is not
// validated.
func (s *scanner) text() (string, error) {
	if s.space() == '"' {
		inner := s.data[s.at+1:]
		if length := bytes.IndexByte(inner, '"'); length >= 0 && s.at+1+length <= s.firstBackslash() {
			s.at += length + 2
			return unsafe.String(unsafe.SliceData(inner), length), nil
		}
	}
	raw, err := s.quoted()
	if err != nil {
		return "", err
	}
	var text string
	err = json.Unmarshal(raw, &text)
	return text, err
}

// into reads a value other than null into the variable at the given address. It decodes strings and
// string maps itself, because encoding/json takes several times as long. The result shares no
// memory with data.
func (s *scanner) into(variable any) (err error) {
	switch v := variable.(type) {
	case *string:
		*v, err = s.text()
		*v = strings.Clone(*v)
		return err
	case *map[string]string:
		*v, err = s.texts()
		return err
	}
	value, err := s.value()
	if err != nil {
		return err
	}
	return json.Unmarshal(value, variable)
}

// texts reads an object of strings into its own memory. null counts as "".
func (s *scanner) texts() (map[string]string, error) {
	texts := map[string]string{}
	err := s.object(func(key string) error {
		if s.null() {
			texts[strings.Clone(key)] = ""
			return nil
		}
		text, err := s.text()
		texts[strings.Clone(key)] = strings.Clone(text)
		return err
	})
	return texts, err
}

// firstBackslash returns the position of the next backslash; the length of data if there is none.
func (s *scanner) firstBackslash() int {
	if s.backslash <= s.at {
		s.backslash = len(s.data)
		if length := bytes.IndexByte(s.data[s.at:], '\\'); length >= 0 {
			s.backslash = s.at + length
		}
	}
	return s.backslash
}

// quoted reads a string and returns its bytes with the quotes.
func (s *scanner) quoted() ([]byte, error) {
	if s.space() != '"' {
		return nil, s.expected("a string")
	}
	begin := s.at
	for s.at++; ; s.at++ {
		length := bytes.IndexByte(s.data[s.at:], '"')
		if length < 0 {
			s.at = len(s.data)
			return nil, s.expected(`the " that ends a string`)
		}
		inner := s.data[begin+1 : s.at+length]
		s.at += length
		// A quote is escaped after an odd number of backslashes.
		if backslashes := len(inner) - len(bytes.TrimRight(inner, `\`)); backslashes%2 == 0 {
			s.at++
			return s.data[begin:s.at], nil
		}
	}
}

// null reads null if it is the next value, and reports whether it is.
func (s *scanner) null() bool {
	s.space()
	null := bytes.HasPrefix(s.data[s.at:], []byte("null"))
	if null {
		s.at += len("null")
	}
	return null
}

// value reads any value and returns its bytes. It finds only the end of the value; the caller's
// decoder validates it.
func (s *scanner) value() ([]byte, error) {
	first := s.space()
	begin := s.at
	switch first {
	case '"':
		return s.quoted()
	case '{', '[':
	default:
		length := bytes.IndexAny(s.data[begin:], ",]} \t\r\n")
		if length <= 0 {
			return nil, s.expected("a value")
		}
		s.at += length
		return s.data[begin:s.at], nil
	}
	for depth := 0; s.at < len(s.data); {
		switch s.data[s.at] {
		case '"':
			if _, err := s.quoted(); err != nil {
				return nil, err
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.at++
		if depth == 0 {
			return s.data[begin:s.at], nil
		}
	}
	return nil, s.expected("the end of a value")
}

// end returns an error unless only white space is left.
func (s *scanner) end() error {
	if s.space() != 0 || s.at < len(s.data) {
		return s.expected("nothing more")
	}
	return nil
}
