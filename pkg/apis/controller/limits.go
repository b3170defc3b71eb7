package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxMovesPerHour bounds the size of the ledger of moves, which must be smaller than 1 MiB.
const MaxMovesPerHour = 2000

// maxStarts is how many starts of a period are examined for an end of the period: one per minute
// for more than a month.
const maxStarts = 50000

func (l *Limits) validate(path *field.Path) (errs field.ErrorList) {
	limit := func(path *field.Path, n int32) {
		if n < 0 || n > MaxMovesPerHour {
			errs = append(errs, field.Invalid(path, n, fmt.Sprintf("expected a whole number from 0 to %d; 0 forbids these moves", MaxMovesPerHour)))
		}
	}
	limit(path.Child("movesPerHour"), l.MovesPerHour)
	limit(path.Child("movesPerHourPerNamespace"), l.MovesPerHourPerNamespace)
	limit(path.Child("movesPerHourPerWorkload"), l.MovesPerHourPerWorkload)
	for _, reason := range slices.Sorted(maps.Keys(l.Reasons)) {
		key := path.Child("reasons").Key(reason)
		if !slices.Contains(LimitedReasons, reason) {
			errs = append(errs, field.Invalid(key, reason, "expected one of "+strings.Join(LimitedReasons, ", ")))
		}
		limit(key, l.Reasons[reason])
	}
	for i := range l.Schedules {
		errs = append(errs, l.Schedules[i].validate(path.Child("schedules").Index(i))...)
	}
	return errs
}

func (s *Schedule) validate(path *field.Path) (errs field.ErrorList) {
	duration := s.Duration.Duration
	if duration < time.Minute {
		errs = append(errs, field.Invalid(path.Child("duration"), duration.String(), `expected 1m or more, such as "8h"`))
	}
	starts, err := s.starts()
	if err != nil {
		return append(errs, field.Invalid(path.Child("schedule"), s.Schedule,
			`expected five fields of cron in UTC, such as "0 9 * * mon-fri": `+err.Error()))
	}
	start := starts.Next(time.Now().UTC())
	if start.IsZero() {
		return append(errs, field.Invalid(path.Child("schedule"), s.Schedule, "no date matches it"))
	}
	for range maxStarts {
		next := starts.Next(start)
		if next.IsZero() || next.Sub(start) > duration {
			return errs
		}
		start = next
	}
	return append(errs, field.Invalid(path.Child("duration"), duration.String(),
		"the period begins again before it ends, so it never ends: to stop these moves, set rebalance.returnToSpot to false"))
}

// starts returns the starts of the period.
func (s *Schedule) starts() (cron.Schedule, error) {
	if strings.HasPrefix(s.Schedule, "@every") { // from the time of the question
		return nil, errors.New("an interval has no fixed start")
	}
	return cron.ParseStandard("TZ=UTC " + s.Schedule)
}

// Until returns when the current period ends; zero if there is none at now. The Schedule must be
// valid.
func (s *Schedule) Until(now time.Time) (until time.Time) {
	starts, err := s.starts()
	if err != nil {
		return until
	}
	for start := starts.Next(now.UTC().Add(-s.Duration.Duration)); !start.IsZero() && !start.After(now); start = starts.Next(start) {
		until = start.Add(s.Duration.Duration)
	}
	return until
}
