package audit

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the settings that a rule or an annotation may change. A nil maxPerPool is no
// limit.
type settings struct {
	minOnDemand   amount
	maxPerPool    *amount
	anyway        bool
	fallbackAfter time.Duration
	rolloutRelief time.Duration // time that a pod of a new revision waits for on-demand capacity of an older revision
	overflow      string        // Allow or Never
	exemptions    string        // Allow or Ignore
	annotations   string        // Allow, StricterOnly or Ignore

	disruptionLimit   int    // of a Job; noLimit if none
	onDisruptionLimit string // RequireOnDemand or PreferOnDemand
}

const (
	// never is longer than any test.
	never = time.Duration(math.MaxInt64)
	// noLimit is more than any Job's number of disruptions.
	noLimit = math.MaxInt
)

func (s settings) floor(desired int) int { return min(desired, s.minOnDemand.count(desired)) }

// setting is one field of settings.
type setting struct {
	field      string // in the configuration
	annotation string // without prefix; "" if only the configuration sets it
	set        func(s *settings, text string) error
	// stricter reports whether now is stricter than before for a workload with so many desired
	// replicas.
	stricter func(now, before settings, desired int) bool
	// skipLaxer: with StricterOnly, the pod's annotation applies if the owner's is laxer.
	skipLaxer bool
}

var known = [...]setting{
	{field: "minOnDemand", annotation: "min-on-demand",
		set:      func(s *settings, text string) (err error) { s.minOnDemand, err = parseAmount(text); return err },
		stricter: func(now, before settings, desired int) bool { return now.floor(desired) > before.floor(desired) }},
	{field: "maxPerPool", annotation: "max-per-pool",
		set: func(s *settings, text string) error {
			most, err := parsePoolCap(text)
			s.maxPerPool = &most
			return err
		},
		stricter: func(now, before settings, desired int) bool {
			return before.maxPerPool == nil || now.maxPerPool.count(desired) < before.maxPerPool.count(desired)
		}},
	{field: "whenUnsatisfiable", annotation: "when-unsatisfiable",
		set: func(s *settings, text string) error {
			s.anyway = text == "ScheduleAnyway"
			return oneOf(text, "DoNotSchedule", "ScheduleAnyway")
		},
		stricter: func(now, _ settings, _ int) bool { return !now.anyway }},
	{field: "fallbackAfter", annotation: "fallback-after",
		set:      func(s *settings, text string) (err error) { s.fallbackAfter, err = parseWait(text); return err },
		stricter: func(now, before settings, _ int) bool { return now.fallbackAfter > before.fallbackAfter }},
	{field: "rolloutRelief", annotation: "rollout-relief",
		set:      func(s *settings, text string) (err error) { s.rolloutRelief, err = parseWait(text); return err },
		stricter: func(now, before settings, _ int) bool { return now.rolloutRelief > before.rolloutRelief }},
	{field: "overflow", annotation: "overflow", skipLaxer: true,
		set:      func(s *settings, text string) error { s.overflow = text; return oneOf(text, "Allow", "Never") },
		stricter: func(now, _ settings, _ int) bool { return now.overflow == "Never" }},
	{field: "exemptions",
		set: func(s *settings, text string) error { s.exemptions = text; return oneOf(text, "Allow", "Ignore") }},
	{field: "annotationPolicy",
		set: func(s *settings, text string) error {
			s.annotations = text
			return oneOf(text, "Allow", "StricterOnly", "Ignore")
		}},
	{field: "disruptionLimit", annotation: "disruption-limit",
		set:      func(s *settings, text string) (err error) { s.disruptionLimit, err = parseLimit(text); return err },
		stricter: func(now, before settings, _ int) bool { return now.disruptionLimit < before.disruptionLimit }},
	{field: "onDisruptionLimit", annotation: "on-disruption-limit",
		set: func(s *settings, text string) error {
			s.onDisruptionLimit = text
			return oneOf(text, "RequireOnDemand", "PreferOnDemand")
		},
		stricter: func(now, _ settings, _ int) bool { return now.onDisruptionLimit == "RequireOnDemand" }},
}

// annotations are the values of the policy annotations of one object, in the order of known. A
// missing annotation is "", which does not parse either.
type annotations [len(known)]string

func policyAnnotations(from map[string]string) (values annotations) {
	for i, setting := range known {
		if setting.annotation != "" {
			values[i] = from[prefix+setting.annotation]
		}
	}
	return values
}

// annotate returns s with the first annotation of the levels that parses. i is the setting's index
// in known. strict applies only annotations that are stricter than s.
func (k setting) annotate(i int, levels []annotations, s settings, strict bool, desired int) settings {
	for _, level := range levels {
		changed := s
		if k.set(&changed, level[i]) != nil {
			continue
		}
		if !strict || k.stricter(changed, s, desired) {
			return changed
		}
		if !k.skipLaxer {
			return s
		}
	}
	return s
}

// texts are values of settings by field, as in the configuration. All values parse.
type texts map[string]string

// textsIn returns the settings in an object of the configuration.
func textsIn(object []byte) (texts, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	found := texts{}
	for _, setting := range known {
		text := strings.Trim(string(fields[setting.field]), `"`)
		if text == "" || text == "null" {
			continue
		}
		if err := setting.set(&settings{}, text); err != nil {
			return nil, fmt.Errorf("%s: %w", setting.field, err)
		}
		found[setting.field] = text
	}
	return found, nil
}

func (s *settings) override(by texts) {
	for _, setting := range known {
		if text, given := by[setting.field]; given {
			_ = setting.set(s, text) // textsIn has parsed it
		}
	}
}

func parsePoolCap(text string) (amount, error) {
	a, err := parseAmount(text)
	if err == nil && !a.percent && a.n < 1 {
		err = fmt.Errorf("%q: expected at least 1", text)
	}
	return a, err
}

func parseWait(text string) (time.Duration, error) {
	if text == "never" {
		return never, nil
	}
	after, err := time.ParseDuration(text)
	if err == nil && after < 0 {
		err = fmt.Errorf("%q: expected never or a duration of 0s or more", text)
	}
	return after, err
}

func parseLimit(text string) (int, error) {
	if text == "never" {
		return noLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err == nil && (limit < 1 || limit > 100) {
		err = fmt.Errorf("%q: expected never or a count from 1 to 100", text)
	}
	return limit, err
}

func oneOf(text string, words ...string) error {
	if slices.Contains(words, text) {
		return nil
	}
	return fmt.Errorf("%q: expected one of %s", text, strings.Join(words, ", "))
}
