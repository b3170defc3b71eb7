// Package scalar decodes and parses the values of configuration files. Validation can then report
// every invalid value at once, each with its path, value and expected format.
package scalar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Value is the text of a configuration value: a number, a boolean, a string, or any other JSON that
// the user wrote in its place. "" means unset. Decoding never fails, so that validation can report
// every invalid value at once, with its path and expected format. A decoder would stop at the first
// invalid value without a path.
type Value string

// SetDefault sets v to value if it is unset.
func (v *Value) SetDefault(value Value) {
	if *v == "" {
		*v = value
	}
}

// UnmarshalJSON stores the text of a string, and the JSON of any other value. It stores the empty
// string as JSON too, because a user who writes "" does not mean the default.
func (v *Value) UnmarshalJSON(data []byte) error {
	var text string
	switch {
	case bytes.Equal(data, []byte("null")):
	case json.Unmarshal(data, &text) == nil && text != "":
		*v = Value(text)
	default:
		*v = Value(data)
	}
	return nil
}

// MarshalJSON writes numbers as numbers and any other value as a string.
func (v Value) MarshalJSON() ([]byte, error) {
	if isNumber := json.Valid([]byte(v)) && strings.ContainsAny(string(v[:1]), "-0123456789"); isNumber {
		return []byte(v), nil
	}
	return json.Marshal(string(v))
}

// Parse parses a value that must be set, possibly by a default. If parseText fails, Parse adds an
// error with the expected format to errs and returns the zero value.
func Parse[T any](errs *field.ErrorList, path *field.Path, v Value, parseText func(string) (T, error)) T {
	if v == "" {
		*errs = append(*errs, field.Required(path, ""))
	}
	return ptr.Deref(ParseOptional(errs, path, v, parseText), *new(T))
}

// ParseOptional is like Parse for an optional value. It returns nil if the value is unset.
func ParseOptional[T any](errs *field.ErrorList, path *field.Path, v Value, parseText func(string) (T, error)) *T {
	if v == "" {
		return nil
	}
	value, err := parseText(string(v))
	if err != nil {
		*errs = append(*errs, field.Invalid(path, string(v), err.Error()))
		return nil
	}
	return &value
}

// Selector converts a selector of labels. It returns nil if the selector is nil. If the selector is
// invalid, Selector adds its mistakes to errs and returns nil.
func Selector(errs *field.ErrorList, path *field.Path, s *metav1.LabelSelector) labels.Selector {
	mistakes := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
	*errs = append(*errs, mistakes...)
	if s == nil || len(mistakes) > 0 {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		*errs = append(*errs, field.Invalid(path, metav1.FormatLabelSelector(s), err.Error()))
		return nil
	}
	return selector
}

// OneOf returns a function that parses one of the words to the value at the same index.
func OneOf[T any](words []string, values ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if i := slices.Index(words, text); i >= 0 {
			return values[i], nil
		}
		return *new(T), fmt.Errorf("expected one of %s", strings.Join(words, ", "))
	}
}

// Bool parses true or false.
var Bool = OneOf([]string{"true", "false"}, true, false)

// Duration parses a duration of 0 or more.
func Duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New(`expected a duration of 0 or more such as "30s"`)
	}
	return d, nil
}

// PositiveDuration parses a duration above 0.
func PositiveDuration(text string) (time.Duration, error) {
	d, err := Duration(text)
	if err != nil || d == 0 {
		return 0, errors.New(`expected a duration above 0 such as "1h"`)
	}
	return d, nil
}
