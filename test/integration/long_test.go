//go:build long

package integration

import "testing"

// Slow tests, which make test-long runs.

func TestLongLeaderKilledWhilePlacing(t *testing.T) { leaderKilledWhilePlacing(t, 5) }
