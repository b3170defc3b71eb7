package config

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/decoding"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// convertSignals returns the built-in signals, then the configured signals.
func convertSignals(errs *field.ErrorList, path *field.Path, signals []Signal) []providers.Signal {
	var configured []providers.Signal
	for i := range signals {
		path := path.Index(i)
		signal := providers.Signal{OnlySpot: signals[i].OnlySpot}
		if signals[i].Class == "" {
			*errs = append(*errs, field.Required(path.Child("class"), ""))
		} else {
			signal.Class = decoding.OneOf(errs, path.Child("class"), signals[i].Class,
				[]SignalClass{Reclaim, Drain, Advisory}, decision.Reclaim, decision.Drain, decision.Advisory)
		}
		if notice := signals[i].Notice; notice != nil {
			signal.Notice = decoding.AtLeast(errs, path.Child("notice"), *notice, 0)
		}
		kinds, text := signals[i].given()
		if len(kinds) == 0 {
			*errs = append(*errs, field.Required(path, "one of taint, condition, label, annotation"))
			continue
		}
		if len(kinds) > 1 {
			*errs = append(*errs, field.Invalid(path, kinds, "expected only one of taint, condition, label, annotation"))
			continue
		}
		signal.Kind, signal.Mentions = kinds[0], signals[i].Mentions
		if signal.Mentions != "" && signal.Kind != providers.ConditionSignal {
			*errs = append(*errs, field.Invalid(path.Child("mentions"), signal.Mentions,
				"expected only beside condition, which has a reason and a message"))
		}
		path = path.Child(string(signal.Kind))
		var err error
		if signal.Key, signal.Value, err = parseSignal(signal.Kind, text); err != nil {
			*errs = append(*errs, field.Invalid(path, text, err.Error()))
		}
		if slices.ContainsFunc(configured, func(earlier providers.Signal) bool {
			return earlier.Kind == signal.Kind && earlier.Key == signal.Key && earlier.Value == signal.Value && earlier.Mentions == signal.Mentions
		}) {
			*errs = append(*errs, field.Duplicate(path, text))
		}
		configured = append(configured, signal)
	}
	return append(providers.Signals(), configured...)
}

// given returns the kinds that s sets, and the text of the last kind.
func (s *Signal) given() (kinds []providers.SignalKind, text string) {
	for _, kind := range []struct {
		name providers.SignalKind
		text string
	}{
		{providers.TaintSignal, s.Taint},
		{providers.ConditionSignal, s.Condition},
		{providers.LabelSignal, s.Label},
		{providers.AnnotationSignal, s.Annotation},
	} {
		if kind.text != "" {
			kinds, text = append(kinds, kind.name), kind.text
		}
	}
	return kinds, text
}

// parseSignal parses "key" or "key=value". The value is "" if any value matches. For a condition it
// is the status.
func parseSignal(kind providers.SignalKind, text string) (key, value string, err error) {
	key, value, hasValue := strings.Cut(text, "=")
	expected := `expected "key" or "key=value"`
	problems := validation.IsQualifiedName(key)
	switch {
	case kind == providers.ConditionSignal:
		expected = `expected "Type", "Type=True", "Type=False" or "Type=Unknown"`
		if !hasValue {
			value = string(v1.ConditionTrue)
		}
		if !slices.Contains([]string{"True", "False", "Unknown"}, value) {
			problems = append(problems, "not a status of a condition")
		}
	case hasValue && value == "":
		problems = append(problems, `the value is empty; "key" alone means any value`)
	case kind != providers.AnnotationSignal:
		problems = append(problems, validation.IsValidLabelValue(value)...)
	}
	if len(problems) > 0 {
		return "", "", errors.New(expected + ": " + strings.Join(problems, "; "))
	}
	return key, value, nil
}
