package decision

import (
	"fmt"
	"strconv"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// MaxDisruptionLimit is the largest DisruptionLimit. It bounds the annotation that lists the
// counted pods.
const MaxDisruptionLimit = 100

// DisruptionAction decides what applies to the pods of a Job that has reached its DisruptionLimit.
type DisruptionAction int8

const (
	// RequireOnDemand: the pods run on on-demand. Like for replicas of a floor, FallbackAfter and
	// ScheduleAnyway permit spot.
	RequireOnDemand DisruptionAction = iota
	// PreferOnDemand: the pods prefer on-demand, and may run on spot.
	PreferOnDemand
)

var disruptionActionWords = [...]string{RequireOnDemand: "RequireOnDemand", PreferOnDemand: "PreferOnDemand"}

// String returns a in the form that ParseOnDisruptionLimit reads.
func (a DisruptionAction) String() string { return disruptionActionWords[a] }

// ParseOnDisruptionLimit parses "RequireOnDemand" or "PreferOnDemand".
func ParseOnDisruptionLimit(s string) (DisruptionAction, error) {
	return parseWord[DisruptionAction](s, disruptionActionWords)
}

// ParseDisruptionLimit parses a count from 1 to MaxDisruptionLimit, or "never", which gives 0.
func ParseDisruptionLimit(s string) (int, error) {
	if s == "never" {
		return 0, nil
	}
	n, err := parseCount(s)
	if err != nil || n < 1 || n > MaxDisruptionLimit {
		return 0, fmt.Errorf(`expected a count from 1 to %d such as "3", or "never"`, MaxDisruptionLimit)
	}
	return n, nil
}

// ParseDisruptions parses the number of disruptions of a Job.
func ParseDisruptions(s string) (int, error) {
	n, err := parseCount(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf(`expected a count of 0 or more such as "2"`)
	}
	return n, nil
}

// parseCount parses a whole number. It accepts only decimal digits, unlike strconv.Atoi.
func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

// withDisruptions adds the number of disruptions of a Job with a DisruptionLimit. It adds an
// invalid number, which counts as 0, to invalid. The annotation policy does not apply: the
// annotation is not a setting.
func (s WorkloadSettings) withDisruptions(w *Workload, invalid []InvalidAnnotation) (WorkloadSettings, []InvalidAnnotation) {
	if w.Batch == NotBatch || s.DisruptionLimit == 0 {
		return s, invalid
	}
	n := parseAnnotation(w.Annotations, spot.DisruptionsAnnotation, ParseDisruptions, w.Kind, &invalid)
	s.Disruptions = valueOr(n, 0)
	return s, invalid
}

// DisruptionLimitReached reports whether OnDisruptionLimit applies to the pods of the workload.
func (s WorkloadSettings) DisruptionLimitReached() bool {
	return s.DisruptionLimit > 0 && s.Disruptions >= s.DisruptionLimit
}

// lowerLimit reports whether the DisruptionLimit a is at most b. Either may be 0, which means
// never.
func lowerLimit(a, b int) bool { return b == 0 || a != 0 && a <= b }

// DisruptionReason describes the effect of the disruptions of the pod's Job; "" if they have none.
func (p *Plan) DisruptionReason() string {
	noun := "disruptions"
	if p.disruptionLimit == 1 {
		noun = "disruption"
	}
	switch {
	case p.requireOnDemand:
		return fmt.Sprintf("after %d %s, its pods run on on-demand", p.disruptionLimit, noun)
	case p.preferOnDemand:
		return fmt.Sprintf("after %d %s, its pods prefer on-demand", p.disruptionLimit, noun)
	}
	return ""
}

// PrefersOnDemandAfterDisruptions reports whether the pod may run on spot, and prefers on-demand
// because of the disruptions of its Job.
func (p *Plan) PrefersOnDemandAfterDisruptions() bool {
	return p.preferOnDemand && p.Prefer == OnDemand
}
