package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Scalar is a value as the configuration spells it: a number or a string, or whatever somebody wrote in place of one. "" means that it
// is not set. Decoding never fails, so that validation can report every bad value at once, each with its path
// and what was expected; the decoder would stop at the first and not say which.
type Scalar string

func (s *Scalar) setDefault(value Scalar) {
	if *s == "" {
		*s = value
	}
}

// UnmarshalJSON keeps the text of strings, and the JSON of everything else. The empty string is kept as its JSON too, because somebody
// who writes "" does not mean the default.
func (s *Scalar) UnmarshalJSON(data []byte) error {
	var text string
	switch {
	case bytes.Equal(data, []byte("null")):
	case json.Unmarshal(data, &text) == nil && text != "":
		*s = Scalar(text)
	default:
		*s = Scalar(data)
	}
	return nil
}

// MarshalJSON writes numbers as numbers and everything else as a string.
func (s Scalar) MarshalJSON() ([]byte, error) {
	if isNumber := json.Valid([]byte(s)) && strings.ContainsAny(string(s[:1]), "-0123456789"); isNumber {
		return []byte(s), nil
	}
	return json.Marshal(string(s))
}

// parse reads a scalar that must be set (a default may have set it). Where parseText refuses it, the mistake goes to errs with what
// was expected, and the result is the zero value.
func parse[T any](errs *field.ErrorList, path *field.Path, s Scalar, parseText func(string) (T, error)) T {
	if s == "" {
		*errs = append(*errs, field.Required(path, ""))
	}
	value := parseOptional(errs, path, s, parseText)
	if value == nil {
		return *new(T)
	}
	return *value
}

// parseOptional is parse for a scalar that may be unset, which gives nil.
func parseOptional[T any](errs *field.ErrorList, path *field.Path, s Scalar, parseText func(string) (T, error)) *T {
	if s == "" {
		return nil
	}
	value, err := parseText(string(s))
	if err != nil {
		*errs = append(*errs, field.Invalid(path, string(s), err.Error()))
		return nil
	}
	return &value
}

// oneOf returns a function that reads one of the words, which stand for the values in the same place.
func oneOf[T any](words []string, values ...T) func(string) (T, error) {
	return func(text string) (T, error) {
		if i := slices.Index(words, text); i >= 0 {
			return values[i], nil
		}
		return *new(T), fmt.Errorf("expected one of %s", strings.Join(words, ", "))
	}
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New(`expected a duration of 0 or more such as "30s"`)
	}
	return d, nil
}

func parsePositiveDuration(text string) (time.Duration, error) {
	d, err := parseDuration(text)
	if err != nil || d == 0 {
		return 0, errors.New(`expected a duration above 0 such as "1h"`)
	}
	return d, nil
}

func parsePriority(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("expected a whole number from %d to %d", math.MinInt32, math.MaxInt32)
	}
	return int32(n), nil
}

func parseRisk(text string) (float64, error) {
	risk, err := strconv.ParseFloat(text, 64)
	// Written so that NaN is refused too.
	if err != nil || !(risk >= 0 && risk <= 1) {
		return 0, errors.New("expected a number from 0 to 1")
	}
	return risk, nil
}
