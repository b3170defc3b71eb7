package interruption_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// A pause does not make a node unschedulable that has an advisory signal.
func TestPauseKeepsTheAdvisoryTaint(t *testing.T) {
	w := newWorld(t)
	w.taint(awsAdvisory, "", nil)
	w.round(0)
	clustertest.Equal(t, "before the pause", "rebalance-recommendation:PreferNoSchedule state", w.marks())
	w.settings.Paused = clustertest.Paused(func(safety.Cause) bool { return true })
	w.taint(awsReclaim, "", nil)
	for range 2 {
		w.round(time.Second)
		if got := w.marks(); !strings.Contains(got, ":PreferNoSchedule ") {
			t.Errorf("paused: marks %q, want PreferNoSchedule", got)
		}
	}
	w.settings.Paused = nil
	w.round(time.Second)
	if got := w.marks(); !strings.Contains(got, ":NoSchedule ") {
		t.Errorf("after the pause: marks %q", got)
	}
	w.settings.Paused = clustertest.Paused(func(safety.Cause) bool { return true })
	w.untaint(awsReclaim)
	w.round(time.Second)
	if got := w.marks(); !strings.Contains(got, ":PreferNoSchedule ") {
		t.Errorf("paused, and only an advisory signal is left: marks %q", got)
	}
}

// While reclaims are paused, no node gets the taint, but the deadline counts from the signal. A
// taint from before stays until the signal is cleared.
func TestPausedTaint(t *testing.T) {
	for name, test := range map[string]struct {
		taint  string // the signal
		ready  v1.ConditionStatus
		only   safety.Cause
		before string // the marks from before the pause
		want   string // the marks during the pause
		after  string
	}{
		"everything":          {taint: awsReclaim, ready: v1.ConditionTrue, want: "+120 state", after: "spot-itn:NoSchedule +120 state"},
		"reclaims":            {taint: awsReclaim, ready: v1.ConditionTrue, only: safety.Reclaim, want: "+120 state", after: "spot-itn:NoSchedule +120 state"},
		"advisories":          {taint: awsAdvisory, ready: v1.ConditionTrue, only: safety.Advisory, want: "state", after: "rebalance-recommendation:PreferNoSchedule state"},
		"another cause":       {taint: awsReclaim, ready: v1.ConditionTrue, only: safety.Heal, want: "spot-itn:NoSchedule +120 state", after: "spot-itn:NoSchedule +120 state"},
		"tainted before":      {taint: awsReclaim, ready: v1.ConditionTrue, before: "spot-itn:NoSchedule +120 state", want: "spot-itn:NoSchedule +120 state", after: "spot-itn:NoSchedule +120 state"},
		"not of reclaims":     {taint: awsReclaim, ready: v1.ConditionTrue, only: safety.Unreachable, want: "spot-itn:NoSchedule +120 state", after: "spot-itn:NoSchedule +120 state"},
		"unreachable kubelet": {taint: "", ready: v1.ConditionUnknown, only: safety.Unreachable, want: "-3560 state", after: "not-ready:NoSchedule -3560 state"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node = newNode("n", test.ready)
			if test.taint != "" {
				w.taint(test.taint, "", nil)
			}
			paused := false
			w.settings.Paused = clustertest.Paused(func(c safety.Cause) bool { return paused && (test.only == "" || c == test.only) })
			if test.before != "" {
				w.round(0)
				if got := w.marks(); got != test.before {
					t.Fatalf("before the pause: marks %q, want %q", got, test.before)
				}
			}
			paused = true
			w.round(time.Second)
			if got := w.marks(); got != test.want && strings.ReplaceAll(got, "+121", "+120") != test.want {
				t.Errorf("paused: marks %q, want %q", got, test.want)
			}
			if test.want == "+120 state" && !strings.Contains(w.lastNote, "the controller is paused") {
				t.Errorf("the event does not mention the pause: %q", w.lastNote)
			}
			paused = false
			w.round(time.Second)
			if got := strings.ReplaceAll(w.marks(), "+121", "+120"); got != test.after {
				t.Errorf("after the pause: marks %q, want %q", got, test.after)
			}
			paused = true
			w.untaint(test.taint)
			w.node.Status = newNode("n", v1.ConditionTrue).Status
			w.round(time.Second)
			if got := w.marks(); strings.Contains(got, "NoSchedule") {
				t.Errorf("paused, and the signal cleared: marks %q", got)
			}
		})
	}
}
