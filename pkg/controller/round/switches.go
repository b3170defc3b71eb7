package round

import (
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// Paused reports whether removals with the cause are paused. It is safe for concurrent use.
func (c *Clients) Paused(cause safety.Cause) (paused bool) {
	if c.Switches != nil {
		_, paused = c.Switches.Paused(cause)
	}
	return paused
}

// observeSwitches reads and reports the switches. ok is false if they are not read yet: no move may
// start or end, and a released pod does not return to its ReplicaSet either.
func (p *Planner) observeSwitches() (ok bool) {
	w := p.clients.Switches
	if w == nil {
		return true
	}
	safety.ReportPaused(w)
	p.interruptions.ForcedBreaker = w.Breaker()
	if object, err := w.Invalid(); err != nil {
		p.defects.warn(object, spot.ReasonInvalidSwitches, err.Error())
	}
	return w.Unread() == nil
}
