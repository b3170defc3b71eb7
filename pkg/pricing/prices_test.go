package pricing

import (
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for name, test := range map[string]struct{ file, text, want string }{
		"yaml":              {"p.yaml", "- {instanceType: m, spot: 0.1}\n- {instanceType: m, zone: a, onDemand: 1}", ""},
		"csv":               {"p.csv", "instanceType,zone,spot,onDemand\nm,,0.4,1\nm,b,0.2,\nc,,,2\n", ""},
		"no rows":           {"p.yaml", "", "it has no rows"},
		"only a header":     {"p.csv", "instanceType,spot\n", "it has no rows"},
		"no header":         {"p.csv", "", "expected a header"},
		"unknown column":    {"p.csv", "type,spot\nm,1\n", `header: invalid value "type": expected instanceType, zone, spot or onDemand`},
		"unknown field":     {"p.yaml", "- {instanceType: m, price: 1}", `unknown field "price"`},
		"not a number":      {"p.csv", "instanceType,spot\nm,cheap\n", `row 1: spot: invalid value "cheap": expected US dollars per hour`},
		"a negative number": {"p.yaml", "- {instanceType: m, spot: -1}", `row 1: spot: invalid value "-1": expected US dollars per hour, 0 or more`},
		"no type":           {"p.yaml", "- {spot: 1}", `row 1: instanceType: invalid value "": expected the name of an instance type`},
		"no price":          {"p.yaml", "- {instanceType: m}", `row 1: spot, onDemand: invalid value "": expected at least one price`},
		"twice":             {"p.yaml", "- {instanceType: m, spot: 1}\n- {instanceType: m, spot: 2}", `row 2: instanceType, zone: invalid value "m ": expected a different pair than in row 1`},
		"a ragged line":     {"p.csv", "instanceType,spot\nm\n", "wrong number of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(test.text), test.file)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error with %q", err, test.want)
			}
		})
	}
}
