package gang

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
)

var start = clustertest.Now

// tried records when the timer retried a gang.
type tried struct {
	at []time.Duration
	// run maintains now, because the clock is locked while it calls functions.
	now time.Duration
	// rejected is when the timer rejected the gang.
	rejected []time.Duration
	// waits is the result of retry.
	waits bool
}

func newTestBackoffs() (*backoffs, *clocktesting.FakeClock, *tried) {
	c := clocktesting.NewFakeClock(start)
	t := &tried{waits: true}
	return newBackoffs(c, func(string) { t.rejected = append(t.rejected, t.now) }, func(string) bool {
		t.at = append(t.at, t.now)
		return t.waits
	}), c, t
}

// run steps the clock by one second at a time and calls each after every step.
func (t *tried) run(c *clocktesting.FakeClock, seconds int, each func(second int)) {
	for second := range seconds {
		t.now += time.Second
		c.Step(time.Second)
		each(second + 1)
	}
}

func TestPause(t *testing.T) {
	r, c, _ := newTestBackoffs()
	expect := func(when, want string) {
		t.Helper()
		if why, paused := r.Paused("g", "unfit"); paused != (want != "") || why != want {
			t.Errorf("%s: paused = %t, reason %q, want %q", when, paused, why, want)
		}
	}
	expect("at first", "")
	r.NoNode("g", "no room")
	expect("without an assumed node", "")
	r.Rejected("g", "victim")
	expect("rejected", "no room")
	if _, paused := r.Paused("other", "unfit"); paused {
		t.Error("another gang is paused too")
	}
	c.Step(firstPause)
	expect("within the pause", "no room")
	c.Step(1)
	expect("after the pause", "")

	r.Rejected("g", "victim")
	r.EventSeen("g")
	expect("event", "")
	r.Rejected("g", "victim")
	expect("the remaining pods of the same rejection", "")
	r.NoNode("g", "still no room")
	expect("no node after the event", "still no room")

	r.Rejected("g", "victim")
	if _, paused := r.Paused("g", "victim"); paused {
		t.Error("the gang pauses for a woken victim")
	}
	expect("after the attempt for a victim", "")
	r.NoNode("g", "no room again")
	r.Rejected("g", "another")
	if _, paused := r.Paused("g", "victim"); !paused {
		t.Error("the gang does not pause for a victim of the previous rejection")
	}

	r.Refused("other")
	if _, paused := r.Paused("other", "unfit"); paused {
		t.Error("a gang without assumed nodes is paused")
	}
}

// The pause ends for a pod that its owner or time unblocked.
func TestPauseEndsForUnblockedPods(t *testing.T) {
	for _, unblocked := range []bool{false, true} {
		r, _, _ := newTestBackoffs()
		r.NoNode("g", "no room")
		r.Rejected("g", "victim")
		cycle := framework.NewCycleState()
		(&placement.State{Unblocked: unblocked}).Write(cycle)
		if _, paused := (&Plugin{backoffs: r}).paused("g", cycle, &v1.Pod{}); paused == unblocked {
			t.Errorf("unblocked = %t: paused = %t", unblocked, paused)
		}
	}
}

// Two gangs without room retry each other if a rejection of one lasts longer than the pause of the
// other.
func TestPauseGrows(t *testing.T) {
	const slowRejection = time.Second
	gangs := []string{"a", "b"}
	// attempts returns how many attempts follow one of a, at most 20. Each attempt that is not
	// paused ends in a rejection, which retries the pod of the other gang that had found no node.
	attempts := func(r *backoffs, c *clocktesting.FakeClock) (n int) {
		for n < 20 {
			if _, paused := r.Paused(gangs[n%2], "unfit"); paused {
				break
			}
			r.NoNode(gangs[n%2], "no room")
			c.Step(slowRejection)
			r.Rejected(gangs[n%2], "victim")
			n++
		}
		return n
	}
	r, c, tried := newTestBackoffs()
	tried.waits = true
	if n := attempts(r, c); n < 3 || n > 10 {
		t.Errorf("%d attempts after the first, want a few", n)
	}
	r.EventSeen("a")
	if n := attempts(r, c); n < 1 || n > 10 {
		t.Errorf("%d attempts after an event, want a few", n)
	}
	r.EventSeen("a")
	r.NoNode("a", "no room")
	r.Rejected("a", "victim")
	c.Step(firstPause + 1)
	if _, paused := r.Paused("a", "unfit"); paused {
		t.Error("after an event the pause is not short again")
	}
}

func TestTimerRetries(t *testing.T) {
	seconds := func(s ...int) (times []time.Duration) {
		for _, second := range s {
			times = append(times, time.Duration(second)*time.Second)
		}
		return times
	}
	for name, test := range map[string]struct {
		each func(r *backoffs, t *tried, second int)
		want []time.Duration
	}{
		"no node, growing intervals": {
			func(r *backoffs, t *tried, second int) { r.Rejected("g", "victim") },
			// Each wait begins when the gang is refused again, here within a second.
			seconds(2, 2+4, 2+4+8, 2+4+8+16, 2+4+8+16+32, 2+4+8+16+32+60, 2+4+8+16+32+60+60),
		},
		"within eventRetry after an event": {
			func(r *backoffs, t *tried, second int) {
				r.Refused("g")
				if second == 70 {
					r.EventSeen("g")
				}
			},
			seconds(2, 6, 14, 30, 62, 80, 90, 110, 150, 210),
		},
		"an event does not postpone a retry that is due soon": {
			func(r *backoffs, t *tried, second int) {
				r.Refused("g")
				r.EventSeen("g")
			},
			seconds(2, 6, 14, 24, 34, 44, 54, 64, 74, 84, 94, 104, 114, 124, 134, 144, 154, 164, 174, 184, 194, 204, 214),
		},
		"soon after an event that Coscheduling may see later": {
			func(r *backoffs, t *tried, second int) {
				r.Refused("g")
				if second == 70 {
					r.PodGroupSeen("g", false)
				}
			},
			seconds(2, 6, 14, 30, 62, 71, 81, 101, 141, 201),
		},
		"until no pod waits": {
			func(r *backoffs, t *tried, second int) {
				if second < 7 {
					r.Refused("g")
				}
				t.waits = second < 5
			},
			seconds(2, 6, 8),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, c, tried := newTestBackoffs()
			r.Refused("g")
			tried.run(c, 220, func(second int) { test.each(r, tried, second) })
			if len(tried.at) != len(test.want) {
				t.Fatalf("retried after %v, want %v", tried.at, test.want)
			}
			for i, want := range test.want {
				if tried.at[i] != want {
					t.Errorf("retried after %v, want %v", tried.at, test.want)
					break
				}
			}
		})
	}
}

// A pod that Coscheduling placed with the old PodGroup waits at Permit until its timeout. Only the
// retry after a change of the spec rejects it, also if a timer was due earlier.
func TestChangedPodGroupRejects(t *testing.T) {
	for name, test := range map[string]struct {
		due     bool // a retry is due, and its pods are being tried
		changed bool
		want    []time.Duration
	}{
		"spec":                 {changed: true, want: []time.Duration{watchLag}},
		"spec, during a retry": {due: true, changed: true, want: []time.Duration{firstRetry + watchLag}},
		"status":               {},
	} {
		t.Run(name, func(t *testing.T) {
			r, c, tried := newTestBackoffs()
			r.Refused("g")
			if test.due {
				tried.run(c, int(firstRetry/time.Second), func(int) {})
			}
			r.PodGroupSeen("g", test.changed)
			tried.run(c, 10, func(int) { r.Refused("g") })
			if !slices.Equal(tried.rejected, test.want) {
				t.Errorf("rejected after %v, want %v", tried.rejected, test.want)
			}
		})
	}
}

func TestForgetsGangs(t *testing.T) {
	r, c, tried := newTestBackoffs()
	tried.waits = false
	r.Rejected("g", "victim")
	c.Step(firstRetry)
	if len(r.gangs) > 0 {
		t.Errorf("%d gangs recorded without a waiting pod", len(r.gangs))
	}
	r.NoNode("g", "no room")
	c.Step(firstRetry)
	if len(r.gangs) > 0 {
		t.Errorf("%d gangs recorded without any pod", len(r.gangs))
	}
	r.EventSeen("g")
	if len(r.gangs) > 0 {
		t.Error("an event recorded a gang that was never refused")
	}
	tried.at = nil
	r.Rejected("g", "victim")
	r.Forget("g")
	c.Step(lastRetry)
	if len(r.gangs) > 0 || tried.at != nil {
		t.Errorf("%d gangs recorded with bound pods, retried after %v", len(r.gangs), tried.at)
	}
}
