//go:build long

package controller

import (
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// never is the configuration in which the breaker never opens.
func never() live.Settings { return live.Settings{"interruption.breaker.maxPercent": 100} }

// large has 60 spot nodes in 6 pools, and 120 replicas, 95 on spot.
var large = fleet{pools: 6, perPool: 10, webs: 15, sets: 10}

// TestLongFalseAlarm: 60 spot nodes in 6 pools get a notice of 120 s, and none is reclaimed. The
// same without the breaker shows what it prevents. (Row 2 of the issue.)
func TestLongFalseAlarm(t *testing.T) {
	t.Run("breaker", func(t *testing.T) { falseAlarm(t, large, reclaimed, 2*time.Minute, nil) })
	t.Run("without", func(t *testing.T) {
		if h := falseAlarm(t, large, reclaimed, 2*time.Minute, never()); h.deleted == 0 {
			t.Error("no pod was deleted in spite of its budget: the test proves nothing about the breaker")
		}
	})
}

// TestLongTrueAlarm: the same 60 nodes vanish at the deadline. No workload has an outage, and the
// cost of the breaker is shown beside the run without it. (Row 3 of the issue.)
func TestLongTrueAlarm(t *testing.T) {
	t.Run("breaker", func(t *testing.T) { trueAlarm(t, large, large.allNodes(), 2*time.Minute, true, nil) })
	t.Run("without", func(t *testing.T) { trueAlarm(t, large, large.allNodes(), 2*time.Minute, false, never()) })
}

// TestLongOnePoolOfThree: a pool of 20 of 60 spot nodes is reclaimed at once. The breaker stays
// closed, and no pod is lost. (Row 4 of the issue.)
func TestLongOnePoolOfThree(t *testing.T) {
	f := fleet{pools: 3, perPool: 20, webs: 15, sets: 10}
	if h := trueAlarm(t, f, f.nodes(1), 2*time.Minute, false, nil); h.lost > 0 {
		t.Errorf("%d pods were lost with their nodes", h.lost)
	}
}
