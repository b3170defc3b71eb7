package decision_test

import (
	"math"
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

func TestParseQuantity(t *testing.T) {
	const (
		number  = `expected a count of 0 or more such as "2", or a percentage such as "30%"`
		tooMuch = "expected a percentage of at most 100%"
	)
	tests := map[string]struct {
		want    decision.Quantity
		wantErr string
	}{
		"0":                    {want: decision.Count(0)},
		"2":                    {want: decision.Count(2)},
		"007":                  {want: decision.Count(7)},
		"2147483648":           {want: decision.Count(2147483648)},
		"0%":                   {want: decision.Percent(0)},
		"30%":                  {want: decision.Percent(30)},
		"100%":                 {want: decision.Percent(100)},
		"101%":                 {wantErr: tooMuch},
		"130%":                 {wantErr: tooMuch},
		"":                     {wantErr: number},
		"%":                    {wantErr: number},
		"-1":                   {wantErr: number},
		"-0":                   {wantErr: number},
		"-1%":                  {wantErr: number},
		"+2":                   {wantErr: number},
		"+2%":                  {wantErr: number},
		" 2":                   {wantErr: number},
		"2 ":                   {wantErr: number},
		"30 %":                 {wantErr: number},
		"30%%":                 {wantErr: number},
		"3O%":                  {wantErr: number},
		"1.5":                  {wantErr: number},
		"1e3":                  {wantErr: number},
		"0x10":                 {wantErr: number},
		"1_000":                {wantErr: number},
		"all":                  {wantErr: number},
		"99999999999999999999": {wantErr: number},
	}
	for s, test := range tests {
		t.Run(s, func(t *testing.T) {
			got, err := decision.ParseQuantity(s)
			if got != test.want || errorText(err) != test.wantErr {
				t.Errorf("ParseQuantity(%q) = %v, %v; want %v, %v", s, got, err, test.want, test.wantErr)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
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
		q, err := decision.ParseQuantity(s)
		if err != nil || q.String() != s {
			t.Errorf("ParseQuantity(%q) = %v, %v", s, q, err)
		}
	}
}
