package live

import (
	"testing"
	"time"
)

// TestDeniedWhileTheAPIServerStarts checks that only denials during the start are ignored, even
// if they are logged later.
func TestDeniedWhileTheAPIServerStarts(t *testing.T) {
	began := time.Date(2026, 12, 31, 23, 59, 58, 0, time.Local)
	start := Start{Began: began, Ready: began.Add(1500 * time.Millisecond)}
	for line, want := range map[string]bool{
		`E1231 23:59:57.999999   24261 reflector.go:227] "Failed to watch"`: false,
		`E1231 23:59:58.000001   24261 reflector.go:227] "Failed to watch"`: true,
		`E1231 23:59:59.500000   24261 reflector.go:227] "Failed to watch"`: true,
		`E0101 00:00:19.500000   24261 reflector.go:227] "Failed to watch"`: true,
		`E0101 00:00:19.500001   24261 reflector.go:227] "Failed to watch"`: false,
		`panic: forbidden`: false,
		``:                 false,
	} {
		if got := start.explains(line); got != want {
			t.Errorf("%q: %t, want %t", line, got, want)
		}
	}
}
