package replay

import (
	"fmt"
	"io"
	"time"
)

// progress prints what a replay does, how long it takes, and its current figures.
type progress struct {
	out      io.Writer
	terminal bool
	arms     int
	length   time.Duration

	arm      string
	number   int // of the arm, from 1
	finished time.Duration
	began    time.Time
	printed  time.Time
	pending  bool // the cursor is on a line that is rewritten
}

func newProgress(out io.Writer, terminal bool, arms int, length time.Duration) *progress {
	return &progress{out: out, terminal: terminal, arms: arms, length: length}
}

// line prints a line that stays.
func (p *progress) line(format string, args ...any) {
	if p.pending {
		fmt.Fprint(p.out, "\r\033[K")
		p.pending = false
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// begin begins an arm.
func (p *progress) begin(arm string) {
	now := time.Now()
	if p.number > 0 {
		p.finished += now.Sub(p.began)
	}
	p.number++
	p.arm, p.began = arm, now
}

// interval is the time between two lines of progress that stay.
const interval = 10 * time.Second

// figures prints the current figures: every second on a terminal, otherwise every ten seconds.
func (p *progress) figures(at time.Duration, c Current) {
	now := time.Now()
	if !p.terminal && now.Sub(p.printed) < interval {
		return
	}
	p.printed = now
	text := fmt.Sprintf("[%d/%d] %s  %s of %s  %s left  ready %d/%d  outages %d  spot %.0f %%  $%.2f",
		p.number, p.arms, p.arm, clockText(at), clockText(p.length), p.left(now,
			at), c.Ready, c.Desired, c.Outages, 100*c.SpotShare, c.PodHoursCost)
	if !p.terminal {
		p.line("%s", text)
		return
	}
	fmt.Fprintf(p.out, "\r\033[K%s", text)
	p.pending = true
}

// left estimates the real time to the end of the last arm: this arm continues at its pace, and each
// further arm takes as long as the arms so far.
func (p *progress) left(now time.Time, at time.Duration) string {
	share := float64(at) / float64(p.length)
	if share < 0.01 {
		return "?"
	}
	arm := now.Sub(p.began)
	total := time.Duration(float64(arm) / min(share, 1))
	mean := (p.finished + total) / time.Duration(p.number)
	left := total - arm + mean*time.Duration(p.arms-p.number)
	return left.Round(time.Second).String()
}

// clockText returns a duration as hours and minutes.
func clockText(d time.Duration) string {
	return fmt.Sprintf("%d:%02d h", int(d.Hours()), int(d.Minutes())%60)
}
