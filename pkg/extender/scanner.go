package extender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unsafe"
)

// scanner reads JSON whose form is known. What it returns shares the memory of data where nothing else is said. After an error nothing more is
// to be read.
type scanner struct {
	data []byte
	at   int
	// backslash is what firstBackslash returned last. As long as that is after at, it still is the first.
	backslash int
}

// space skips white space and returns what comes next; 0 at the end.
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

// next skips c if it comes next, which it reports.
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

// object reads an object. field is called at each value, which it has to read.
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

// array reads an array. element is called at each value, which it has to read.
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

// names reads an array of strings into list, which was reset to data. More than maxCandidates are errTooMany.
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
		name, err := s.text() // something is escaped in it, or it is no string
		if err == nil {
			list.add(name)
		}
		return err
	})
}

// text reads a string. It shares the memory of data, unless something in it is escaped; otherwise nobody looks whether all in it is valid.
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

// into reads a value other than null into a variable, given its address. What encoding/json would take several times as long for, it reads
// itself. What it reads shares no memory with data.
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

// texts reads an object of strings, into memory of its own. A null in it counts as "".
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

// firstBackslash returns where the first one stands from here on; the length of data if there is none.
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

// null reads null if that comes next, which it reports.
func (s *scanner) null() bool {
	s.space()
	is := bytes.HasPrefix(s.data[s.at:], []byte("null"))
	if is {
		s.at += len("null")
	}
	return is
}

// value reads any value and returns its bytes. Only where it ends is looked at: whether all in it is as it must be is left to who decodes it.
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

// end returns an error if anything but white space is left.
func (s *scanner) end() error {
	if s.space() != 0 || s.at < len(s.data) {
		return s.expected("nothing more")
	}
	return nil
}
