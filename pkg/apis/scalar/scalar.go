// Package scalar reads the values of configuration files in such a way that validation can report every bad one at once, each with its
// path, its value and what was expected.
package scalar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Value is a value as the configuration spells it: a number, a truth value or a string, or whatever somebody wrote in place of one. ""
// means that it is not set. Decoding never fails, so that validation can report every bad value at once, each with its path
// and what was expected; the decoder would stop at the first and not say which.
type Value string

// SetDefault sets v where it is not set.
func (v *Value) SetDefault(value Value) {
	if *v == "" {
		*v = value
	}
}

// UnmarshalJSON keeps the text of strings, and the JSON of everything else. The empty string is kept as its JSON too, because somebody
// who writes "" does not mean the default.
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

// MarshalJSON writes numbers as numbers and everything else as a string.
func (v Value) MarshalJSON() ([]byte, error) {
	if isNumber := json.Valid([]byte(v)) && strings.ContainsAny(string(v[:1]), "-0123456789"); isNumber {
		return []byte(v), nil
	}
	return json.Marshal(string(v))
}

// Parse reads a value that must be set (a default may have set it). Where parseText refuses it, the mistake goes to errs with what
// was expected, and the result is the zero value.
func Parse[T any](errs *field.ErrorList, path *field.Path, v Value, parseText func(string) (T, error)) T {
	if v == "" {
		*errs = append(*errs, field.Required(path, ""))
	}
	value := ParseOptional(errs, path, v, parseText)
	if value == nil {
		return *new(T)
	}
	return *value
}

// ParseOptional is Parse for a value that may be unset, which gives nil.
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

// OneOf returns a function that reads one of the words, which stand for the values in the same place.
func OneOf[T any](words []string, values ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if i := slices.Index(words, text); i >= 0 {
			return values[i], nil
		}
		return *new(T), fmt.Errorf("expected one of %s", strings.Join(words, ", "))
	}
}

// Bool reads true or false.
var Bool = OneOf([]string{"true", "false"}, true, false)

// Duration reads a duration of 0 or more.
func Duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New(`expected a duration of 0 or more such as "30s"`)
	}
	return d, nil
}

// PositiveDuration reads a duration above 0.
func PositiveDuration(text string) (time.Duration, error) {
	d, err := Duration(text)
	if err != nil || d == 0 {
		return 0, errors.New(`expected a duration above 0 such as "1h"`)
	}
	return d, nil
}
