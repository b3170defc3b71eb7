package decision_test

import (
	"math"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestParseQuantity(t *testing.T) {
	tests := map[string]struct {
		want   decision.Quantity
		wantOK bool
	}{
		"0":                    {decision.Count(0), true},
		"2":                    {decision.Count(2), true},
		"007":                  {decision.Count(7), true},
		"2147483648":           {decision.Count(2147483648), true},
		"0%":                   {decision.Percent(0), true},
		"30%":                  {decision.Percent(30), true},
		"100%":                 {decision.Percent(100), true},
		"101%":                 {},
		"130%":                 {},
		"":                     {},
		"%":                    {},
		"-1":                   {},
		"-0":                   {},
		"-1%":                  {},
		"+2":                   {},
		"+2%":                  {},
		" 2":                   {},
		"2 ":                   {},
		"30 %":                 {},
		"30%%":                 {},
		"3O%":                  {},
		"1.5":                  {},
		"1e3":                  {},
		"0x10":                 {},
		"1_000":                {},
		"all":                  {},
		"99999999999999999999": {},
	}
	for s, test := range tests {
		t.Run(s, func(t *testing.T) {
			got, ok := decision.ParseQuantity(s)
			if got != test.want || ok != test.wantOK {
				t.Errorf("ParseQuantity(%q) = %v, %v; want %v, %v", s, got, ok, test.want, test.wantOK)
			}
		})
	}
}

func TestQuantityOf(t *testing.T) {
	tests := map[string]struct {
		quantity decision.Quantity
		desired  int
		want     int
	}{
		"count":                         {decision.Count(2), 10, 2},
		"count above desired":           {decision.Count(20), 10, 20},
		"the zero value":                {decision.Quantity{}, 10, 0},
		"percent, exact":                {decision.Percent(30), 10, 3},
		"percent, rounded up":           {decision.Percent(30), 11, 4},
		"the least percent of a few":    {decision.Percent(1), 1, 1},
		"0 percent":                     {decision.Percent(0), 10, 0},
		"100 percent":                   {decision.Percent(100), 7, 7},
		"percent of nothing":            {decision.Percent(50), 0, 0},
		"percent of the largest int32":  {decision.Percent(100), math.MaxInt32, math.MaxInt32},
		"99 percent of a hundred":       {decision.Percent(99), 100, 99},
		"99 percent of a hundred and 1": {decision.Percent(99), 101, 100},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.quantity.Of(test.desired); got != test.want {
				t.Errorf("%v of %d = %d, want %d", test.quantity, test.desired, got, test.want)
			}
		})
	}
}

func TestQuantityString(t *testing.T) {
	for _, s := range []string{"0", "12", "0%", "33%", "100%"} {
		q, ok := decision.ParseQuantity(s)
		if !ok || q.String() != s {
			t.Errorf("ParseQuantity(%q) = %v, %v", s, q, ok)
		}
	}
}
