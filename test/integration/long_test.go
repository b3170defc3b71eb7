//go:build long

package integration

import (
	"testing"
	"time"
)

// Slow tests, which make test-long runs.

func TestLongLeaderKilledDuringPlacement(t *testing.T) { leaderKilledDuringPlacement(t, 5) }

// TestLongWaitsSurviveLeaders uses the shipped fallbackAfter and lease.
func TestLongWaitsSurviveLeaders(t *testing.T) {
	waitsSurviveLeaders(t, 5*time.Minute, time.Minute, time.Minute)
}
