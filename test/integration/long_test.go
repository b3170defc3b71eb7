//go:build long

package integration

import "testing"

// What takes minutes: make test-long runs it.

func TestLongLeaderKilledWhilePlacing(t *testing.T) { leaderKilledWhilePlacing(t, 5) }
