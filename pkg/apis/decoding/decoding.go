// Package decoding decodes configuration into Go types and reports every error. The decoders of
// Kubernetes stop at the first value of a wrong type. This one continues: it reports all such
// values, each with its path and the expected type, and all unknown fields.
package decoding

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unmarshal decodes a JSON object into the struct that target points to. A value that is null
// leaves a field unchanged, and so does a value of a wrong type. A word or a quantity keeps a value
// of a wrong type as text, because only validation knows which ones the field permits. The error is
// not nil if data is not JSON.
func Unmarshal(data []byte, target any) (field.ErrorList, error) {
	d := &decoder{seen: map[jsontext.Pointer]bool{}}
	err := json.Unmarshal(data, target, json.WithUnmarshalers(json.UnmarshalFromFunc(d.value)))
	if err == nil {
		err = d.findUnknown(data)
	}
	return d.errs, err
}

type decoder struct {
	errs field.ErrorList
	// seen are the values that belong to a field of the target, and whether they have such values
	// in them.
	seen map[jsontext.Pointer]bool
}

// value decodes the next value into the variable that target points to, or returns
// ErrUnsupported if the library should: it then calls value for each value inside.
func (d *decoder) value(from *jsontext.Decoder, target any) error {
	pointer, kind, into := next(from), from.PeekKind(), reflect.TypeOf(target).Elem()
	if kind == 'n' {
		d.seen[pointer] = false
		return from.SkipValue()
	}
	leaf, isLeaf := target.(json.Unmarshaler)
	if !isLeaf {
		switch into.Kind() {
		case reflect.Pointer:
			return errors.ErrUnsupported
		case reflect.Struct, reflect.Map:
			if kind == '{' {
				d.seen[pointer] = true
				return errors.ErrUnsupported
			}
		case reflect.Slice:
			if kind == '[' {
				d.seen[pointer] = true
				return errors.ErrUnsupported
			}
		}
	}
	d.seen[pointer] = false
	raw, err := from.ReadValue()
	if err != nil {
		return err
	}
	if isLeaf {
		err = leaf.UnmarshalJSON(raw)
	} else {
		err = json.Unmarshal(raw, target)
	}
	if err == nil {
		return nil
	}
	text := string(raw)
	if kind == '"' {
		_ = json.Unmarshal(raw, &text) // it is a string
	}
	switch v := reflect.ValueOf(target).Elem(); {
	case into == reflect.TypeFor[intstr.IntOrString]():
		v.Set(reflect.ValueOf(intstr.FromString(text)))
	case into.Kind() == reflect.String && into != reflect.TypeFor[string]():
		v.SetString(text)
	default:
		d.errs = append(d.errs, field.Invalid(path(pointer), text, expected(into, kind, err)))
	}
	return nil
}

// next returns the pointer to the value that from reads next.
func next(from *jsontext.Decoder) jsontext.Pointer {
	pointer := from.StackPointer()
	kind, n := from.StackIndex(from.StackDepth())
	if kind != '[' {
		return pointer
	}
	if n > 0 {
		pointer = pointer.Parent() // it points to the element before
	}
	return pointer.AppendToken(strconv.FormatInt(n, 10))
}

func (d *decoder) findUnknown(data []byte) error {
	tokens := jsontext.NewDecoder(bytes.NewReader(data))
	for kind := tokens.PeekKind(); kind != jsontext.KindInvalid; kind = tokens.PeekKind() {
		in, n := tokens.StackIndex(tokens.StackDepth())
		if isName := in == '{' && n%2 == 0; !isName && kind != ']' {
			open, known := d.seen[next(tokens)]
			if !known {
				at := path(next(tokens))
				d.errs = append(d.errs, field.Forbidden(at, fmt.Sprintf("unknown field %q; expected each field of docs/reference/configuration.md "+
					"at most once; for a file of another release see docs/upgrading.md", at)))
			}
			if !open {
				if err := tokens.SkipValue(); err != nil {
					return err
				}
				continue
			}
		}
		if _, err := tokens.ReadToken(); err != nil {
			return err
		}
	}
	return nil
}

var kinds = map[jsontext.Kind]string{'"': "a string", '0': "a number", 't': "a boolean", 'f': "a boolean", '[': "a list", '{': "an object"}

var scalars = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int32: "a whole number", reflect.Float64: "a number", reflect.String: "a string",
}

// expected describes the values of a type. got is the kind of the wrong value, and err the error of
// a type with its own decoder.
func expected(t reflect.Type, got jsontext.Kind, err error) string {
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		return `expected a duration such as "30s"`
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return err.Error()
	}
	if text, ok := scalars[t.Kind()]; ok {
		return "expected " + text
	}
	if t.Kind() == reflect.Slice {
		return "expected a list instead of " + kinds[got]
	}
	return "expected an object instead of " + kinds[got]
}

// path converts a pointer such as /rules/0/name. It returns nil for the root.
func path(pointer jsontext.Pointer) (p *field.Path) {
	for token := range pointer.Tokens() {
		if i, err := strconv.Atoi(token); err == nil {
			p = p.Index(i)
		} else {
			p = p.Child(token)
		}
	}
	return p
}

// Join returns the errors that decoding and validation found. If a value was not decoded, it
// omits what validation found there. at is the path of the decoded object; nil for the root.
func Join(at *field.Path, decoded, validated field.ErrorList) field.ErrorList {
	var all field.ErrorList
	for _, fieldErr := range decoded {
		copied := *fieldErr
		if at != nil {
			copied.Field = at.Child(fieldErr.Field).String()
		}
		all = append(all, &copied)
	}
	return append(all, slices.DeleteFunc(slices.Clone(validated), func(fieldErr *field.Error) bool {
		return slices.ContainsFunc(all, func(d *field.Error) bool {
			rest, below := strings.CutPrefix(fieldErr.Field, d.Field)
			return below && (rest == "" || strings.ContainsAny(rest[:1], ".["))
		})
	})...)
}

// OneDocument returns an error if data has a YAML document after the first, because decoders ignore
// it. Empty documents at the end are allowed. Errors in the first document are left to the decoder.
func OneDocument(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for first := true; ; first = false {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case first && err == nil:
		case first || errors.Is(err, io.EOF):
			return nil
		case err != nil || document.Content[0].Tag != "!!null":
			return fmt.Errorf("expected one YAML document: the document at line %d would be ignored, or the one before it is empty", document.Line)
		}
	}
}

// Selector converts a selector of labels. It returns nil if the selector is nil. If the selector is
// invalid, Selector adds its errors to errs and returns nil.
func Selector(errs *field.ErrorList, path *field.Path, s *metav1.LabelSelector) labels.Selector {
	fieldErrs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
	*errs = append(*errs, fieldErrs...)
	if s == nil || len(fieldErrs) > 0 {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		*errs = append(*errs, field.Invalid(path, metav1.FormatLabelSelector(s), err.Error()))
		return nil
	}
	return selector
}

// OneOf returns the value at the index of a word. If words does not contain the word, OneOf adds an
// error to errs and returns the zero value.
func OneOf[W ~string, T any](errs *field.ErrorList, path *field.Path, word W, words []W, values ...T) T {
	if i := slices.Index(words, word); i >= 0 {
		return values[i]
	}
	var texts []string
	for _, w := range words {
		texts = append(texts, string(w))
	}
	*errs = append(*errs, field.Invalid(path, string(word), "expected one of "+strings.Join(texts, ", ")))
	return *new(T)
}

// AtLeast returns a duration. If it is shorter than least, AtLeast adds an error to errs.
func AtLeast(errs *field.ErrorList, path *field.Path, d metav1.Duration, least time.Duration) time.Duration {
	if d.Duration < least {
		*errs = append(*errs, field.Invalid(path, d.Duration.String(), fmt.Sprintf("expected a duration of %s or more", least)))
	}
	return d.Duration
}
