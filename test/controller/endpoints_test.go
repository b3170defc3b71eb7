package controller

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// serve creates a Service of the app and returns when at least `least` endpoints are ready. The
// test fails at every later moment with fewer ready endpoints.
func (s *scenario) serve(app string, least int) {
	s.Helper()
	s.serveFor(s.T, app, least)
}

// serveFor is serve for a test other than the scenario's.
func (s *scenario) serveFor(t testing.TB, app string, least int) {
	s.Helper()
	s.Must(live.Serve(s.Ctx, client, s.Namespace, app, least, func(gap live.Gap) { t.Errorf("%v", gap) }))
}
