package demo

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// The demo ends with one line for each act and the next command.
func TestWriteVerdict(t *testing.T) {
	tests := map[string]struct {
		ours   map[string]result
		second reclaimed
		want   string
	}{
		"kept": {kept(), handled(), `
 Spot vanished: 12 of 12 services were down, longest >123.0 s. With spot-aware-scheduler: 0.
 A pool got notice: all 2 pods left within 20.0 s. No service was below its floor or budget.

 Next: make tools build && bin/spot-lab up
`},
		"broken": {lost(), func() reclaimed {
			r := handled()
			r.Outages["admin"] = outage{}
			return r
		}(), `
 Spot vanished: 12 of 12 services were down, longest >123.0 s. With spot-aware-scheduler: 12.
 A pool got notice: this demo failed. with spot-controller: admin fell below its floor (0 of 1)

 Next: make tools build && bin/spot-lab up
`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			writeVerdict(&out, false, report{nodes: lab.DefaultNodes(), stock: lost(), ours: test.ours}, test.second)
			if out.String() != test.want {
				t.Errorf("got:%s\nwant:%s", out.String(), test.want)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}
