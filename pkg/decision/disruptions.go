package decision

import (
	"fmt"
	"strconv"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// MaxDisruptionLimit is the largest DisruptionLimit. It bounds the annotation that lists the
// counted pods.
const MaxDisruptionLimit = 100

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
	text, ok := w.Annotations[spot.DisruptionsAnnotation]
	if !ok {
		return s, invalid
	}
	var err error
	if s.Disruptions, err = ParseDisruptions(text); err != nil {
		invalid = append(invalid, InvalidAnnotation{Object: w.Kind, Key: spot.DisruptionsAnnotation, Value: text, Expected: err.Error()})
	}
	return s, invalid
}

// DisruptionLimitReached reports whether OnDisruptionLimit applies to the pods of the workload.
func (s WorkloadSettings) DisruptionLimitReached() bool {
	return s.DisruptionLimit > 0 && s.Disruptions >= s.DisruptionLimit
}

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
