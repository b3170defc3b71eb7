package gating_test

import (
	"sync"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/gating"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

func TestWishes(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	web, api := workload.OwnerKey{UID: "web"}, workload.OwnerKey{UID: "api"}
	for name, test := range map[string]struct {
		given func(*gating.Requirements)
		after time.Duration
		want  []bool // whether the next pods of web get the requirement
	}{
		"none":           {func(*gating.Requirements) {}, 0, []bool{false}},
		"one pod":        {func(w *gating.Requirements) { w.RequireSpot(web, start.Add(time.Minute)) }, time.Second, []bool{true, false}},
		"other revision": {func(w *gating.Requirements) { w.RequireSpot(api, start.Add(time.Minute)) }, 0, []bool{false}},
		"in time":        {func(w *gating.Requirements) { w.RequireSpot(web, start.Add(time.Minute)) }, time.Minute - 1, []bool{true}},
		"too late":       {func(w *gating.Requirements) { w.RequireSpot(web, start.Add(time.Minute)) }, time.Minute, []bool{false}},
		"withdrawn":      {func(w *gating.Requirements) { w.RequireSpot(web, start.Add(time.Minute)); w.Forget(web) }, 0, []bool{false}},
		"replaced requirement": {func(w *gating.Requirements) {
			w.RequireSpot(web, start)
			w.RequireSpot(web, start.Add(time.Minute))
		}, 0, []bool{true, false}},
		"other revision takes": {func(w *gating.Requirements) {
			w.RequireSpot(web, start.Add(time.Minute))
			w.Take(api, start)
		}, 0, []bool{true}},
	} {
		t.Run(name, func(t *testing.T) {
			var w gating.Requirements
			test.given(&w)
			for i, want := range test.want {
				if got := w.Take(web, start.Add(test.after)); got != want {
					t.Errorf("pod %d: %t, want %t", i, got, want)
				}
			}
		})
	}
}

// Concurrent calls of Take return a requirement only once.
func TestConcurrentTake(t *testing.T) {
	var w gating.Requirements
	now := time.Now()
	key := workload.OwnerKey{UID: "web"}
	w.RequireSpot(key, now.Add(time.Minute))
	var mu sync.Mutex
	var running sync.WaitGroup
	granted := 0
	for range 50 {
		running.Go(func() {
			if w.Take(key, now) {
				mu.Lock()
				defer mu.Unlock()
				granted++
			}
		})
	}
	running.Wait()
	if granted != 1 {
		t.Errorf("granted %d times, want once", granted)
	}
}
