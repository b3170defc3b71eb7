package controller

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// serve makes a Service of the app, returns when so many endpoints are ready, and has the test fail at every later moment at which fewer
// are.
func (s *scenario) serve(app string, least int) {
	s.Helper()
	s.serveFor(s.T, app, least)
}

// serveFor is serve for another test than the scenario's.
func (s *scenario) serveFor(t testing.TB, app string, least int) {
	s.Helper()
	s.must(live.Serve(s.ctx, client, s.namespace, app, least, func(gap live.Gap) { t.Errorf("%v", gap) }))
}
