package safety

import (
	"context"
	"fmt"
	"net/http"
)

// Gate decides which removals may be requested. It is safe for concurrent use.
type Gate struct {
	switches Switches
}

// NewGate returns a Gate. switches may be nil: then nothing is paused.
func NewGate(switches Switches) *Gate { return &Gate{switches: switches} }

// Allow returns nil if a removal may be requested now. It returns a *PausedError while a user has
// paused its cause.
func (g *Gate) Allow(_ context.Context, r Removal) error {
	if _, known := Rules[r.Cause]; !known {
		return fmt.Errorf("bug: removal with the unknown cause %q", r.Cause)
	}
	if g.switches == nil {
		return nil
	}
	if message, paused := g.switches.Paused(r.Cause); paused {
		return &PausedError{r.Cause, message}
	}
	return nil
}

// answered records the answer of the API server to a removal; nil if there was none.
func (g *Gate) answered(Removal, bool, *http.Response) {}
