package decoding

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
