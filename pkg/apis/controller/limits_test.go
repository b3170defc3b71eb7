package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUntil: a period includes its start, and excludes its end. Overlapping periods of one schedule
// end with the last one.
func TestUntil(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, test := range []struct {
		schedule string
		duration time.Duration
		now      string
		want     string // "" for none
	}{
		{"0 9 * * mon-fri", 8 * time.Hour, "2026-11-27T08:59:59Z", ""},
		{"0 9 * * mon-fri", 8 * time.Hour, "2026-11-27T09:00:00Z", "2026-11-27T17:00:00Z"},
		{"0 9 * * mon-fri", 8 * time.Hour, "2026-11-27T17:59:59+01:00", "2026-11-27T17:00:00Z"}, // another zone
		{"0 9 * * mon-fri", 8 * time.Hour, "2026-11-27T17:00:00Z", ""},
		{"0 9 * * mon-fri", 8 * time.Hour, "2026-11-28T12:00:00Z", ""}, // a Saturday
		{"0 0 * * mon-fri", 25 * time.Hour, "2026-11-27T00:30:00Z", "2026-11-28T01:00:00Z"},
		{"@daily", time.Minute, "2026-11-27T00:00:59Z", "2026-11-27T00:01:00Z"},
	} {
		s := Schedule{test.schedule, metav1.Duration{Duration: test.duration}}
		got := s.Until(at(test.now))
		if test.want == "" && !got.IsZero() || test.want != "" && !got.Equal(at(test.want)) {
			t.Errorf("%s for %s at %s: until %s, want %q", test.schedule, test.duration, test.now, got, test.want)
		}
	}
}
