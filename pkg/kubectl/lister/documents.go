package lister

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// errNoDump is the error for a text without objects of Kubernetes.
var errNoDump = errors.New("it has no objects of Kubernetes")

// peekBytes is how much of a text is read to recognize its form.
const peekBytes = 64 << 10

// maxItemBytes limits the size of one value in a dump. etcd stores at most 1.5 MiB per object.
// maxYAMLBytes limits a YAML document, because its decoder needs all of it in memory, many times.
const (
	maxItemBytes = 16 << 20
	maxYAMLBytes = 64 << 20
)

var (
	errItemTooLarge = fmt.Errorf("a value has more than %d MiB", maxItemBytes>>20)
	errYAMLTooLarge = fmt.Errorf("a YAML document has more than %d MiB: use kubectl get -o json", maxYAMLBytes>>20)
)

// sendFunc receives an object as JSON. kind is its kind if the object itself does not name it. data
// is valid until it returns. It is nil for a list, after its items.
type sendFunc func(kind schema.GroupKind, data []byte) error

// textReader is a Reader whose next bytes can be inspected.
type textReader struct{ io.Reader }

// unread makes data the next bytes.
func (r *textReader) unread(data []byte) {
	r.Reader = io.MultiReader(bytes.NewReader(bytes.Clone(data)), r.Reader)
}

// peek returns the next bytes after white space, at most peekBytes; none at the end.
func (r *textReader) peek() ([]byte, error) {
	for {
		read, err := io.ReadAll(io.LimitReader(r.Reader, peekBytes))
		start := bytes.TrimLeft(read, " \t\r\n")
		r.unread(start)
		if err != nil || len(start) == len(read) {
			return start, err
		}
	}
}

// skipLines skips all lines up to one that starts with prefix, and this line.
func (r *textReader) skipLines(prefix string) error {
	lines := bufio.NewReader(r)
	defer func() {
		rest, _ := lines.Peek(lines.Buffered()) // they are buffered
		r.unread(rest)
	}()
	for whole := true; ; {
		line, isPrefix, err := lines.ReadLine()
		if err != nil {
			return err
		}
		if whole && strings.HasPrefix(string(line), prefix) {
			return nil
		}
		whole = !isPrefix
	}
}

// decoded returns the text of a file: unpacked if it is compressed by gzip, and in UTF-8.
// PowerShell writes UTF-16 with a byte order mark.
func decoded(file io.Reader) (*textReader, error) {
	buffered := bufio.NewReader(file)
	if start, _ := buffered.Peek(2); bytes.Equal(start, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		buffered = bufio.NewReader(unpacked)
	}
	return &textReader{Reader: transform.NewReader(buffered, unicode.BOMOverride(transform.Nop))}, nil
}

// yamlStart matches a line at the start of an object or list in YAML. yamlItems and yamlKind match
// fields of it.
var (
	yamlStart = regexp.MustCompile(`(?m)^(apiVersion|kind|items):`)
	yamlItems = regexp.MustCompile(`(?m)^items:`)
	yamlKind  = regexp.MustCompile(`(?m)^kind:`)
)

// isArchive reports whether a text starts as a zip or tar archive does.
func isArchive(start []byte) bool {
	const tarMagicAt = 257
	return bytes.HasPrefix(start, []byte("PK\x03\x04")) || len(start) > tarMagicAt && bytes.HasPrefix(start[tarMagicAt:], []byte("ustar"))
}

// The lines around each log in the output of kubectl cluster-info dump.
const logStart, logEnd = "==== START logs for container", "==== END logs for container"

func splitText(text *textReader, send sendFunc) error {
	for first := true; ; first = false {
		start, err := text.peek()
		switch {
		case err != nil:
			return err
		case len(start) == 0 && first:
			return errNoDump
		case len(start) == 0:
			return nil
		case start[0] == '{':
			err = splitJSON(text, start, send)
		case bytes.HasPrefix(start, []byte(logStart)):
			err = text.skipLines(logEnd)
		case first && yamlStart.Match(start):
			return splitYAML(text, send)
		case first && isArchive(start):
			return fmt.Errorf("%w: it is an archive: unpack it, and use its directory", errNoDump)
		case first:
			return errNoDump
		default:
			line, _, _ := strings.Cut(string(start[:min(len(start), 40)]), "\n")
			return fmt.Errorf("a document ends before %q", line)
		}
		if err != nil {
			return err
		}
	}
}

func splitYAML(text io.Reader, send sendFunc) error {
	limited := &io.LimitedReader{R: text}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(limited))
	for number := 1; ; number++ {
		limited.N = maxYAMLBytes
		document, err := documents.Read()
		switch {
		case limited.N == 0: // the rest of the document was not read
			return errYAMLTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case yamlItems.Match(document) && !yamlKind.Match(document): // kubectl writes the kind of a list after its items
			return io.ErrUnexpectedEOF
		}
		value, err := yaml.YAMLToJSONStrict(document)
		switch {
		case err != nil && strings.Contains(err.Error(), "already set in map"): // of every key
			first, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n  "), "\n")
			return fmt.Errorf("invalid YAML: document %d: %s: a line --- must separate two objects", number, first)
		case err != nil:
			return fmt.Errorf("invalid YAML: document %d: %w", number, err)
		case string(value) == "null": // only comments
			continue
		case value[0] != '{':
			return errors.New("a YAML document is not an object")
		}
		if err := splitJSON(&textReader{Reader: bytes.NewReader(value)}, value, send); err != nil {
			return err
		}
	}
}

// splitJSON sends the next JSON value of a text: an object, or the items of a list. start has the
// start of the value. The rest of the text remains.
func splitJSON(text *textReader, start []byte, send sendFunc) error {
	limited := &io.LimitedReader{R: text, N: maxItemBytes}
	decoder := jsontext.NewDecoder(limited, jsontext.AllowDuplicateNames(true)) // dump.add checks the names in an item
	// start may end within the object: then the rest of its type is not known.
	head, isList, _ := headOf(start, jsontext.AllowDuplicateNames(true))
	var err error
	switch {
	case isList:
		err = splitList(decoder, limited, head, send)
	case head.Kind == "":
		return errNoDump
	default:
		err = sendValue(decoder, head.GroupVersionKind().GroupKind(), send)
	}
	if err != nil && limited.N == 0 {
		return fmt.Errorf("%w: %s", errItemTooLarge, err)
	}
	text.unread(decoder.UnreadBuffer())
	return err
}

// headOf returns the type of the JSON object at the start of data, as far as it is stated before an
// error, and whether the object is a list. kubectl writes the type first, so that the rest is not
// read.
func headOf(data []byte, options ...jsontext.Options) (head metav1.TypeMeta, isList bool, err error) {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(data), options...)
	fields := map[string]*string{"apiVersion": &head.APIVersion, "kind": &head.Kind}
	_, err = decoder.ReadToken()
	for err == nil && decoder.PeekKind() == '"' && (head.APIVersion == "" || head.Kind == "") {
		var name string
		if err = json.UnmarshalDecode(decoder, &name); err != nil {
			break
		}
		isList = isList || name == "items"
		if field := fields[name]; field != nil && decoder.PeekKind() == '"' {
			err = json.UnmarshalDecode(decoder, field)
		} else {
			err = decoder.SkipValue()
		}
	}
	return head, isList || strings.HasSuffix(head.Kind, "List"), err
}

func splitList(decoder *jsontext.Decoder, limited *io.LimitedReader, list metav1.TypeMeta, send sendFunc) error {
	list.Kind = strings.TrimSuffix(list.Kind, "List")
	kind := list.GroupVersionKind().GroupKind()
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadToken()
		switch {
		case err != nil:
		case name.String() == "items" && decoder.PeekKind() == '[':
			err = sendItems(decoder, limited, kind, send)
		default: // kubectl writes null for a list without items
			err = decoder.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	return send(kind, nil)
}

// sendItems sends the objects of the array that is the next value. kind is their kind if they do
// not name it. It only finds where they end, which is several times faster than to decode them.
func sendItems(decoder *jsontext.Decoder, limited *io.LimitedReader, kind schema.GroupKind, send sendFunc) error {
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	for number := 1; decoder.PeekKind() != ']'; number++ {
		limited.N = maxItemBytes
		if err := sendValue(decoder, kind, send); err != nil {
			return fmt.Errorf("item %d: %w", number, err)
		}
	}
	limited.N = maxItemBytes
	_, err := decoder.ReadToken()
	return err
}

func sendValue(decoder *jsontext.Decoder, kind schema.GroupKind, send sendFunc) error {
	value, err := decoder.ReadValue()
	if err != nil {
		return err
	}
	return send(kind, value)
}
