package decision

import (
	"fmt"
	"slices"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// InvalidAnnotation is an annotation that was skipped because its value is invalid.
type InvalidAnnotation struct {
	// Object is the kind of the object with the annotation; "pod" for the pod itself.
	Object, Key, Value string
	// Expected describes the expected format of the value.
	Expected string
}

// String returns a message for users. It truncates a long value, because the API server rejects an
// event whose message is too long.
func (i InvalidAnnotation) String() string {
	const most = 64
	value := []rune(i.Value)
	if len(value) > most {
		value = append(value[:most:most], '…')
	}
	return fmt.Sprintf("annotation %s on the %s is ignored: invalid value %q: %s", i.Key, i.Object, string(value), i.Expected)
}

// parseAnnotations parses the annotations of one object. on is InvalidAnnotation.Object.
func parseAnnotations(annotations map[string]string, on string) (o Overrides, invalid []InvalidAnnotation) {
	if len(annotations) == 0 {
		return o, nil
	}
	o = Overrides{
		MinOnDemand:       parseAnnotation(annotations, spot.MinOnDemandAnnotation, ParseQuantity, on, &invalid),
		MaxPerPool:        parseAnnotation(annotations, spot.MaxPerPoolAnnotation, ParseMaxPerPool, on, &invalid),
		WhenUnsatisfiable: parseAnnotation(annotations, spot.WhenUnsatisfiableAnnotation, ParseWhenUnsatisfiable, on, &invalid),
		FallbackAfter:     parseAnnotation(annotations, spot.FallbackAfterAnnotation, ParseFallbackAfter, on, &invalid),
		RolloutRelief:     parseAnnotation(annotations, spot.RolloutReliefAnnotation, ParseRolloutRelief, on, &invalid),
		Overflow:          parseAnnotation(annotations, spot.OverflowAnnotation, ParseOverflow, on, &invalid),
		DisruptionLimit:   parseAnnotation(annotations, spot.DisruptionLimitAnnotation, ParseDisruptionLimit, on, &invalid),
		OnDisruptionLimit: parseAnnotation(annotations, spot.OnDisruptionLimitAnnotation, ParseOnDisruptionLimit, on, &invalid),
		Protect:           parseAnnotation(annotations, spot.ProtectAnnotation, ParseProtect, on, &invalid),
	}
	return o, invalid
}

// parseAnnotation returns the value of one annotation, or nil if the annotation is missing or
// invalid. It adds an invalid annotation to invalid.
func parseAnnotation[T any](annotations map[string]string, key string, parse func(string) (T, error), on string, invalid *[]InvalidAnnotation) *T {
	text, ok := annotations[key]
	if !ok {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		*invalid = append(*invalid, InvalidAnnotation{Object: on, Key: key, Value: text, Expected: err.Error()})
		return nil
	}
	return &value
}

// ParseMaxPerPool parses a pool cap: a count of 1 or more, or a percentage of the desired replicas.
func ParseMaxPerPool(s string) (Quantity, error) {
	q, err := ParseQuantity(s)
	if err != nil || q == Count(0) {
		return Quantity{}, fmt.Errorf(`expected a count of 1 or more such as "2", or a percentage from 0%% to 100%% such as "50%%"`)
	}
	return q, nil
}

// ParseWhenUnsatisfiable parses "DoNotSchedule" or "ScheduleAnyway".
func ParseWhenUnsatisfiable(s string) (WhenUnsatisfiable, error) {
	return parseWord[WhenUnsatisfiable](s, whenUnsatisfiableWords)
}

// ParseOverflow parses "Allow" or "Never".
func ParseOverflow(s string) (OverflowPolicy, error) {
	return parseWord[OverflowPolicy](s, overflowWords)
}

// ParseExemptions parses "Allow" or "Ignore".
func ParseExemptions(s string) (ExemptionPolicy, error) {
	return parseWord[ExemptionPolicy](s, exemptionWords)
}

// parseWord returns the setting whose word is s. words contains the word of each setting.
func parseWord[T ~int8](s string, words [2]string) (T, error) {
	i := slices.Index(words[:], s)
	if i < 0 {
		return 0, fmt.Errorf("expected %s or %s", words[0], words[1])
	}
	return T(i), nil
}

// ParseProtect parses "true" or "false".
func ParseProtect(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("expected true or false")
	}
	return s == "true", nil
}

// ParseFallbackAfter parses a duration of 0 or more such as "5m", or "never".
func ParseFallbackAfter(s string) (time.Duration, error) { return parseWait(s, "5m") }

// ParseRolloutRelief parses a duration of 0 or more such as "30s", or "never".
func ParseRolloutRelief(s string) (time.Duration, error) { return parseWait(s, "30s") }

func parseWait(s, example string) (time.Duration, error) {
	if s == "never" {
		return Never, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf(`expected a duration of 0 or more such as %q, or "never"`, example)
	}
	return d, nil
}
