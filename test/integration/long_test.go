//go:build long

package integration

import "testing"

// Slow tests, which make test-long runs.

func TestLongLeaderKilledDuringPlacement(t *testing.T) { leaderKilledDuringPlacement(t, 5) }
