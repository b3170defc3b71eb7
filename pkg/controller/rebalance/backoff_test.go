package rebalance_test

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// A move fails because its replacement starts on the same node. In minute 1 the floor changes. Only
// a heal after a failed move that should save cost needs no back-off.
func TestBackOffByReason(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		floor int
		want  []string
	}{
		"a heal after a return to spot": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 o o s min=1"}, 3,
			[]string{"0: web-0 return-to-spot", "1: web-2 heal", "2: web-2 heal"}},
		"a heal after a move that made room": {[]string{"node o on-demand cpu=1", "node s spot cpu=9", "deployment one 1 - min=1", "deployment web 2 o s min=0"}, 2,
			[]string{"0: web-0 make-room", "1: web-1 heal", "2: web-1 heal"}},
		"a heal after a heal": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 s s o min=2"}, 3,
			[]string{"0: web-0 heal", "2: web-1 heal"}},
		"a return to spot after a heal": {[]string{"node o on-demand cpu=9", "node s spot cpu=9", "deployment web 3 s s o min=2"}, 0,
			[]string{"0: web-0 heal", "2: web-2 return-to-spot"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(test.lines...)
			got := script(w, []float64{0, 1, 2}, func(minute float64) {
				if minute == 1 {
					w.pod("web-0").name = "web-9"
					w.workload("web").floor, w.node("o").slots = test.floor, 9
				}
			})
			clustertest.Equal(t, "moves", test.want, got)
		})
	}
}
