package gang

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tried collects when a gang was tried again by the clock.
type tried struct {
	at []time.Duration
	// now is kept by run: the clock is locked while it has things done.
	now time.Duration
	// waits is what retry returns.
	waits bool
}

func newTestRests() (*rests, *clocktesting.FakeClock, *tried) {
	c := clocktesting.NewFakeClock(start)
	t := &tried{waits: true}
	return newRests(c, func(string) bool {
		t.at = append(t.at, t.now)
		return t.waits
	}), c, t
}

// run steps the clock by a second at a time, and lets each happen at its second.
func (t *tried) run(c *clocktesting.FakeClock, seconds int, each func(second int)) {
	for second := range seconds {
		t.now += time.Second
		c.Step(time.Second)
		each(second + 1)
	}
}

func TestRests(t *testing.T) {
	r, c, _ := newTestRests()
	expect := func(when, want string) {
		t.Helper()
		if why, rests := r.Resting("g", "unfit"); rests != (want != "") || why != want {
			t.Errorf("%s: rests %t because %q, want %q", when, rests, why, want)
		}
	}
	expect("at first", "")
	r.Unfit("g", "no room")
	expect("without anything to give back", "")
	r.Rejected("g", "victim")
	expect("rejected", "no room")
	if _, rests := r.Resting("other", "unfit"); rests {
		t.Error("another gang rests too")
	}
	c.Step(quiet)
	expect("while it is quiet", "no room")
	c.Step(1)
	expect("after that", "")

	r.Rejected("g", "victim")
	r.Happened("g")
	expect("news", "")
	r.Rejected("g", "victim")
	expect("the rest of the same rejection", "")
	r.Unfit("g", "still no room")
	expect("tried in vain after the news", "still no room")

	r.Rejected("g", "victim")
	if _, rests := r.Resting("g", "victim"); rests {
		t.Error("a victim that was woken rests")
	}
	expect("after a victim was woken", "")
	r.Unfit("g", "no room again")
	r.Rejected("g", "another")
	if _, rests := r.Resting("g", "victim"); !rests {
		t.Error("the victim of last time does not rest")
	}

	r.Refused("other")
	if _, rests := r.Resting("other", "unfit"); rests {
		t.Error("a gang that held nothing rests")
	}
}

func TestClockTriesAgain(t *testing.T) {
	seconds := func(s ...int) (times []time.Duration) {
		for _, second := range s {
			times = append(times, time.Duration(second)*time.Second)
		}
		return times
	}
	for name, test := range map[string]struct {
		each func(r *rests, t *tried, second int)
		want []time.Duration
	}{
		"in vain, at growing intervals": {
			func(r *rests, t *tried, second int) { r.Rejected("g", "victim") },
			// Each wait begins when it is refused again, here within a second.
			seconds(2, 2+4, 2+4+8, 2+4+8+16, 2+4+8+16+32, 2+4+8+16+32+60, 2+4+8+16+32+60+60),
		},
		"after news no later than newsRetry": {
			func(r *rests, t *tried, second int) {
				r.Refused("g")
				if second == 70 {
					r.Happened("g")
				}
			},
			seconds(2, 6, 14, 30, 62, 80, 90, 110, 150, 210),
		},
		"news do not put off what is near": {
			func(r *rests, t *tried, second int) {
				r.Refused("g")
				r.Happened("g")
			},
			seconds(2, 6, 14, 24, 34, 44, 54, 64, 74, 84, 94, 104, 114, 124, 134, 144, 154, 164, 174, 184, 194, 204, 214),
		},
		"soon after what others may see later": {
			func(r *rests, t *tried, second int) {
				r.Refused("g")
				if second == 70 {
					r.HappenedFirst("g")
				}
			},
			seconds(2, 6, 14, 30, 62, 71, 81, 101, 141, 201),
		},
		"until none waits": {
			func(r *rests, t *tried, second int) {
				if second < 7 {
					r.Refused("g")
				}
				t.waits = second < 5
			},
			seconds(2, 6, 8),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, c, tried := newTestRests()
			r.Refused("g")
			tried.run(c, 220, func(second int) { test.each(r, tried, second) })
			if len(tried.at) != len(test.want) {
				t.Fatalf("tried after %v, want %v", tried.at, test.want)
			}
			for i, want := range test.want {
				if tried.at[i] != want {
					t.Errorf("tried after %v, want %v", tried.at, test.want)
					break
				}
			}
		})
	}
}

func TestForgetsGangs(t *testing.T) {
	r, c, tried := newTestRests()
	tried.waits = false
	r.Rejected("g", "victim")
	c.Step(firstRetry)
	if len(r.gangs) > 0 {
		t.Errorf("%d gangs are remembered of which no pod waits", len(r.gangs))
	}
	r.Unfit("g", "no room")
	c.Step(firstRetry)
	if len(r.gangs) > 0 {
		t.Errorf("%d gangs are remembered of which no pod was ever placed", len(r.gangs))
	}
	r.Happened("g")
	if len(r.gangs) > 0 {
		t.Error("news had a gang remembered that was never refused")
	}
	tried.at = nil
	r.Rejected("g", "victim")
	r.Forget("g")
	c.Step(lastRetry)
	if len(r.gangs) > 0 || tried.at != nil {
		t.Errorf("%d gangs are remembered of which pods were bound, tried after %v", len(r.gangs), tried.at)
	}
}
