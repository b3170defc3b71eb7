package decision

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// WhenUnsatisfiable decides what happens to a pod if the floor or the pool cap refuses every node
// that has room.
type WhenUnsatisfiable int8

const (
	// DoNotSchedule means that the pod waits.
	DoNotSchedule WhenUnsatisfiable = iota
	// ScheduleAnyway means that floor and cap are only preferences.
	ScheduleAnyway
)

// String returns w as in the configuration.
func (w WhenUnsatisfiable) String() string { return [...]string{"DoNotSchedule", "ScheduleAnyway"}[w] }

// OverflowPolicy decides what happens to replicas beyond the floor if no spot node is feasible.
type OverflowPolicy int8

const (
	// AllowOverflow means that these replicas may use on-demand.
	AllowOverflow OverflowPolicy = iota
	// NeverOverflow means that these replicas wait for spot.
	NeverOverflow
)

// String returns p as in the configuration.
func (p OverflowPolicy) String() string { return [...]string{"Allow", "Never"}[p] }

// ExemptionPolicy decides whether a pod is exempt from the floor if its own node selector or
// required node affinity admits only spot.
type ExemptionPolicy int8

const (
	// AllowExemptions means that the pod may run on spot regardless of the floor.
	AllowExemptions ExemptionPolicy = iota
	// IgnoreExemptions means that the pod waits if the floor requires on-demand.
	IgnoreExemptions
)

// String returns p as in the configuration.
func (p ExemptionPolicy) String() string { return [...]string{"Allow", "Ignore"}[p] }

// DisruptionAction decides what applies to the pods of a Job that has reached its DisruptionLimit.
type DisruptionAction int8

const (
	// RequireOnDemand means that the pods run on on-demand. Like for replicas of a floor,
	// FallbackAfter and ScheduleAnyway permit spot.
	RequireOnDemand DisruptionAction = iota
	// PreferOnDemand means that the pods prefer on-demand, and may run on spot.
	PreferOnDemand
)

// String returns a as in the configuration.
func (a DisruptionAction) String() string { return [...]string{"RequireOnDemand", "PreferOnDemand"}[a] }

// Never means, as Settings.FallbackAfter or Settings.RolloutRelief, that a pod may not use spot
// however long it waits.
const Never time.Duration = -1

// WorkloadSettings are the settings of one workload, after rules and annotations are applied.
// Package config describes them (WorkloadSettings and Rule).
type WorkloadSettings struct {
	MinOnDemand Quantity
	// MaxPerPool is nil for no cap.
	MaxPerPool        *Quantity
	WhenUnsatisfiable WhenUnsatisfiable
	// FallbackAfter may be Never.
	FallbackAfter time.Duration
	// RolloutRelief may be Never. Without relief a rollout that may not delete an old replica first
	// waits forever if on-demand has room for exactly the floor. That is the case for
	// maxUnavailable 0, to which 25 % of up to 3 replicas rounds.
	RolloutRelief time.Duration
	// Overflow does not depend on WhenUnsatisfiable, FallbackAfter and RolloutRelief: they concern
	// only spot.
	Overflow   OverflowPolicy
	Exemptions ExemptionPolicy
	// Protect does not change placement.
	Protect bool
	// DisruptionLimit is 0 for never.
	DisruptionLimit   int
	OnDisruptionLimit DisruptionAction
	// Disruptions is how often pods of the Job were disrupted, according to its annotation. It is 0
	// for other workloads, and without a DisruptionLimit.
	Disruptions int
}

// Setting describes one of the WorkloadSettings.
type Setting struct {
	// Name is the name in the configuration.
	Name string
	// Annotation is the annotation that overrides the setting; "" for none.
	Annotation string
	// Values describes the values for users.
	Values string
	// OnlyRules means that the profile does not have the setting.
	OnlyRules bool

	// applies reports whether the setting has an effect on the pods of a Job, or on other pods. If
	// it is nil, it has one on all pods.
	applies func(s *WorkloadSettings, job bool) bool
	value
}

type value struct {
	// parse sets the value in s, and reports whether text is valid.
	parse func(s *WorkloadSettings, text string) bool
	text  func(s *WorkloadSettings) string
	copy  func(to, from *WorkloadSettings)
	// permitted reports whether an annotation with the value in s has an effect under StricterOnly,
	// for a workload of desired replicas. base are the settings without annotations.
	permitted func(s, base *WorkloadSettings, desired int) bool
}

// Settings is the only list of the settings of a workload. Rules, annotations, their origins and
// `explain` follow it.
var Settings = []Setting{
	{Name: "minOnDemand", Annotation: spot.MinOnDemandAnnotation,
		Values: `a count of 0 or more such as "2", or a percentage such as "30%", at most 100%`,
		value: valueOf(
			func(s *WorkloadSettings) *Quantity { return &s.MinOnDemand }, ParseQuantity, Quantity.String,
			func(q, base Quantity, desired int) bool { return floor(q, desired) >= floor(base, desired) })},
	{Name: "maxPerPool", Annotation: spot.MaxPerPoolAnnotation,
		Values: `a count of 1 or more such as "2", or a percentage from 0% to 100% such as "50%"`,
		value: valueOf(
			func(s *WorkloadSettings) **Quantity { return &s.MaxPerPool }, parseMaxPerPool, maxPerPoolText,
			func(q, base *Quantity, desired int) bool {
				return base == nil || poolCap(q, desired) <= poolCap(base, desired)
			})},
	{Name: "whenUnsatisfiable", Annotation: spot.WhenUnsatisfiableAnnotation, Values: "DoNotSchedule or ScheduleAnyway",
		value: valueOf(
			func(s *WorkloadSettings) *WhenUnsatisfiable { return &s.WhenUnsatisfiable },
			parseWord[WhenUnsatisfiable], WhenUnsatisfiable.String,
			func(_, base WhenUnsatisfiable, _ int) bool { return base != DoNotSchedule })},
	{Name: "fallbackAfter", Annotation: spot.FallbackAfterAnnotation, Values: `a duration of 0 or more such as "5m", or "never"`,
		value: valueOf(
			func(s *WorkloadSettings) *time.Duration { return &s.FallbackAfter }, parseWait, waitText, notEarlier)},
	{Name: "rolloutRelief", Annotation: spot.RolloutReliefAnnotation, Values: `a duration of 0 or more such as "30s", or "never"`,
		value: valueOf(
			func(s *WorkloadSettings) *time.Duration { return &s.RolloutRelief }, parseWait, waitText, notEarlier)},
	{Name: "overflow", Annotation: spot.OverflowAnnotation, Values: "Allow or Never",
		value: valueOf(
			func(s *WorkloadSettings) *OverflowPolicy { return &s.Overflow },
			parseWord[OverflowPolicy], OverflowPolicy.String,
			func(p, _ OverflowPolicy, _ int) bool { return p == NeverOverflow })},
	{Name: "exemptions", Values: "Allow or Ignore",
		value: valueOf(
			func(s *WorkloadSettings) *ExemptionPolicy { return &s.Exemptions },
			parseWord[ExemptionPolicy], ExemptionPolicy.String, nil)},
	{Name: "protect", Annotation: spot.ProtectAnnotation, Values: "true or false", OnlyRules: true,
		value: valueOf(
			func(s *WorkloadSettings) *bool { return &s.Protect }, parseBool, strconv.FormatBool,
			func(protect, _ bool, _ int) bool { return protect })},
	{Name: "disruptionLimit", Annotation: spot.DisruptionLimitAnnotation, Values: `a count from 1 to 100 such as "3", or "never"`,
		applies: func(_ *WorkloadSettings, job bool) bool { return job },
		value: valueOf(
			func(s *WorkloadSettings) *int { return &s.DisruptionLimit }, parseDisruptionLimit, disruptionLimitText, notHigher)},
	{Name: "onDisruptionLimit", Annotation: spot.OnDisruptionLimitAnnotation, Values: "RequireOnDemand or PreferOnDemand",
		applies: func(s *WorkloadSettings, job bool) bool { return job && s.DisruptionLimit > 0 },
		value: valueOf(
			func(s *WorkloadSettings) *DisruptionAction { return &s.OnDisruptionLimit },
			parseWord[DisruptionAction], DisruptionAction.String,
			func(a, _ DisruptionAction, _ int) bool { return a == RequireOnDemand })},
}

// valueOf describes the value at a field of the settings. permitted is nil if no annotation has it.
func valueOf[T any](
	field func(*WorkloadSettings) *T, parse func(string) (T, bool), text func(T) string, permitted func(v, base T, desired int) bool,
) value {
	return value{
		parse: func(s *WorkloadSettings, text string) (ok bool) {
			*field(s), ok = parse(text)
			return ok
		},
		text: func(s *WorkloadSettings) string { return text(*field(s)) },
		copy: func(to, from *WorkloadSettings) { *field(to) = *field(from) },
		permitted: func(s, base *WorkloadSettings, desired int) bool {
			return permitted(*field(s), *field(base), desired)
		},
	}
}

// Text returns the value in s for users, in the form that the configuration has.
func (s *Setting) Text(settings WorkloadSettings) string { return s.text(&settings) }

// Applies reports whether the setting has an effect on the pods of a Job, or on other pods.
func (s *Setting) Applies(settings WorkloadSettings, job bool) bool {
	return s.applies == nil || s.applies(&settings, job)
}

// SettingAnnotation returns the first setting, as its annotation, that the annotations of an object
// contain; "" if they contain none.
func SettingAnnotation(annotations map[string]string) string {
	for i := range Settings {
		if key := Settings[i].Annotation; key != "" && annotations[key] != "" {
			return key
		}
	}
	return ""
}

// String returns all settings with an effect in one line. Equal settings give the same line.
func (s WorkloadSettings) String() string {
	var texts []string
	for i := range Settings {
		if setting := &Settings[i]; setting.Applies(s, s.DisruptionLimit > 0) {
			texts = append(texts, setting.Name+"="+setting.Text(s))
		}
	}
	if s.DisruptionLimit > 0 {
		texts = append(texts, fmt.Sprintf("disruptions=%d", s.Disruptions))
	}
	return strings.Join(texts, " ")
}

// Stricter returns s or other, whichever has the higher floor of desired replicas. If the floors
// are equal, the texts of the settings decide, so the result does not depend on the order.
func (s WorkloadSettings) Stricter(other WorkloadSettings, desired int) WorkloadSettings {
	floor, others := s.Floor(desired), other.Floor(desired)
	if floor < others || floor == others && s != other && s.String() < other.String() {
		return other
	}
	return s
}

// Overrides are the values of some settings, from one rule or from the annotations of one object.
// The zero value overrides nothing.
type Overrides struct {
	values WorkloadSettings
	given  uint32 // bit i: Settings[i]
}

// ParseOverrides parses the values of settings, by name. It ignores other names, and leaves out the
// settings with invalid values.
func ParseOverrides(values map[string]string) (Overrides, []InvalidAnnotation) {
	return parseOverrides(values, "", func(s *Setting) string { return s.Name })
}

// parseOverrides parses the values of settings, by key. object is InvalidAnnotation.Object.
func parseOverrides(values map[string]string, object string, key func(*Setting) string) (Overrides, []InvalidAnnotation) {
	if len(values) == 0 {
		return Overrides{}, nil // without an allocation
	}
	var o Overrides
	var invalid []InvalidAnnotation
	for i := range Settings {
		setting := &Settings[i]
		text, ok := values[key(setting)]
		switch {
		case !ok:
		case setting.parse(&o.values, text):
			o.given |= 1 << i
		default:
			invalid = append(invalid, InvalidAnnotation{Object: object, Key: key(setting), Value: text, Expected: "expected " + setting.Values})
		}
	}
	return o, invalid
}

// Empty reports whether o overrides nothing.
func (o *Overrides) Empty() bool { return o.given == 0 }

// Apply returns s with the values of o.
func (o Overrides) Apply(s WorkloadSettings) WorkloadSettings {
	for i := range Settings {
		if o.has(i) {
			Settings[i].copy(&s, &o.values)
		}
	}
	return s
}

func (o *Overrides) has(i int) bool { return o.given&(1<<i) != 0 }

// stricterThan returns the settings of o that are at least as strict as base for a workload of
// desired replicas.
func (o Overrides) stricterThan(base WorkloadSettings, desired int) Overrides {
	for i := range Settings {
		if o.has(i) && !Settings[i].permitted(&o.values, &base, desired) {
			o.given &^= 1 << i
		}
	}
	return o
}

func parseMaxPerPool(s string) (*Quantity, bool) {
	q, ok := ParseQuantity(s)
	return &q, ok && q != Count(0)
}

func maxPerPoolText(q *Quantity) string {
	if q == nil {
		return "no cap"
	}
	return q.String()
}

// parseWord parses the text of one of the two values of T.
func parseWord[T interface {
	~int8
	fmt.Stringer
}](text string) (T, bool) {
	if text == T(0).String() {
		return 0, true
	}
	return 1, text == T(1).String()
}

func parseBool(s string) (value, ok bool) { return s == "true", s == "true" || s == "false" }

// parseWait parses a duration of 0 or more, or "never".
func parseWait(s string) (time.Duration, bool) {
	if s == "never" {
		return Never, true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

func waitText(d time.Duration) string {
	if d == Never {
		return "never"
	}
	return short(d)
}

// notEarlier reports whether a ends at the same time as b or later. Either may be Never.
func notEarlier(a, b time.Duration, _ int) bool { return a == Never || b != Never && a >= b }

// parseDisruptionLimit parses a count from 1 to MaxDisruptionLimit, or "never", which gives 0.
func parseDisruptionLimit(s string) (int, bool) {
	n, err := parseCount(s)
	return n, s == "never" || err == nil && n >= 1 && n <= MaxDisruptionLimit
}

func disruptionLimitText(limit int) string {
	if limit == 0 {
		return "never"
	}
	return strconv.Itoa(limit)
}

// notHigher reports whether the DisruptionLimit a is at most b. Either may be 0, which means never.
func notHigher(a, b, _ int) bool { return b == 0 || a != 0 && a <= b }

func floor(q Quantity, desired int) int { return min(desired, q.Of(desired)) }

// poolCap returns how many of desired replicas of a revision may run in one spot pool; 0 means no
// cap.
func poolCap(perPool *Quantity, desired int) int {
	if perPool == nil {
		return 0
	}
	// A cap of 0 would keep the workload off spot entirely. Only the floor may do that.
	return max(1, perPool.Of(desired))
}
