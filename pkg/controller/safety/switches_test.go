package safety_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// paused returns the causes that are paused, separated by spaces.
func paused(stops func(safety.Cause) bool) string {
	var all []string
	for _, c := range []safety.Cause{safety.Reclaim, safety.Deadline, safety.Heal, safety.Pending} {
		if stops(c) {
			all = append(all, string(c))
		}
	}
	return strings.Join(all, " ")
}

// An invalid pause stops everything, and an invalid breaker is open. A switch ends at its time.
func TestReadSwitches(t *testing.T) {
	const everything = "reclaim deadline heal pending"
	for name, test := range map[string]struct {
		data    map[string]string
		want    string // paused causes
		breaker string
		invalid string
	}{
		"nothing":         {},
		"another key":     {data: map[string]string{"paused": "true"}},
		"all":             {data: map[string]string{"pause": "by: jane\nsince: 2026-11-27T11:00:00Z"}, want: everything},
		"not yet over":    {data: map[string]string{"pause": "until: 2026-11-27T12:00:01Z"}, want: everything},
		"over":            {data: map[string]string{"pause": "until: 2026-11-27T12:00:00Z"}},
		"in another zone": {data: map[string]string{"pause": "until: 2026-11-27T13:30:00+02:00"}},
		"only one":        {data: map[string]string{"pause": "only: [heal]"}, want: "heal"},
		"only reclaims":   {data: map[string]string{"pause": "only: [reclaim]"}, want: "reclaim deadline"},
		"only deletions":  {data: map[string]string{"pause": "only: [deadline]"}, want: "deadline"},
		"only none":       {data: map[string]string{"pause": "only: []"}, want: everything},
		"empty":           {data: map[string]string{"pause": ""}, want: everything},

		"unknown cause":    {data: map[string]string{"pause": "only: [heel]"}, want: everything, invalid: `unknown reason "heel": expected advisory, assign, `},
		"unknown field":    {data: map[string]string{"pause": "end: 2026-11-27T11:00:00Z"}, want: everything, invalid: "end"},
		"no time":          {data: map[string]string{"pause": "until: tomorrow"}, want: everything, invalid: "tomorrow"},
		"no object":        {data: map[string]string{"pause": "yes"}, want: everything, invalid: "cannot unmarshal"},
		"no YAML":          {data: map[string]string{"pause": "{"}, want: everything, invalid: "key pause is invalid"},
		"only as a text":   {data: map[string]string{"pause": "only: heal"}, want: everything, invalid: "cannot unmarshal"},
		"open":             {data: map[string]string{"breaker": "state: Open"}, breaker: "Open"},
		"closed":           {data: map[string]string{"breaker": "state: Closed\nuntil: 2026-11-27T12:00:01Z"}, breaker: "Closed"},
		"closed, over":     {data: map[string]string{"breaker": "state: Closed\nuntil: 2026-11-27T12:00:00Z"}},
		"unknown state":    {data: map[string]string{"breaker": "state: ajar"}, breaker: "Open", invalid: `invalid value "ajar"`},
		"wrong case":       {data: map[string]string{"breaker": "state: closed"}, breaker: "Open", invalid: `invalid value "closed"`},
		"no state":         {data: map[string]string{"breaker": "by: jane"}, breaker: "Open", invalid: `invalid value ""`},
		"breaker, field":   {data: map[string]string{"breaker": "{state: Open, reason: INC-42}"}, breaker: "Open", invalid: "reason"},
		"breaker, no time": {data: map[string]string{"breaker": "state: Closed\nuntil: 18:00"}, breaker: "Open", invalid: "18:00"},
		"breaker, no YAML": {data: map[string]string{"breaker": "{", "pause": "only: [heal]"}, want: "heal", breaker: "Open",
			invalid: "key breaker is invalid, so the breaker is open"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := safety.ReadSwitches(&v1.ConfigMap{Data: test.data})
			if (err == nil) != (test.invalid == "") || err != nil && !strings.Contains(err.Error(), test.invalid) {
				t.Errorf("error %v, want %q", err, test.invalid)
			}
			values = values.At(now)
			got, breaker := "", ""
			if values.Pause != nil {
				got = paused(values.Pause.Stops)
			}
			if values.Breaker != nil {
				breaker = string(values.Breaker.State)
			}
			if got != test.want || breaker != test.breaker {
				t.Errorf("paused %q and breaker %q, want %q and %q", got, breaker, test.want, test.breaker)
			}
		})
	}
}

// What is stored is read again, and what is not set is removed.
func TestStoreSwitches(t *testing.T) {
	configMap := &v1.ConfigMap{}
	want := safety.SwitchValues{
		Pause: &safety.Pause{Only: []safety.Cause{safety.Heal}, Message: "a: b\nc", Switch: safety.Switch{By: "jane", Since: &metav1.Time{Time: now},
			Until: &metav1.Time{Time: now.Add(time.Hour)}}},
		Breaker: &safety.ForcedBreaker{State: safety.BreakerOpen, Switch: safety.Switch{Until: &metav1.Time{Time: now.Add(time.Minute)}}},
	}
	for _, want := range []safety.SwitchValues{want, {Breaker: want.Breaker}, {}} {
		if err := want.Store(configMap); err != nil {
			t.Fatal(err)
		}
		got, err := safety.ReadSwitches(configMap)
		if err != nil {
			t.Fatal(err)
		}
		clustertest.Equal(t, "switches", text(want), text(got))
	}
}

func text(values safety.SwitchValues) (all []string) {
	if values.Pause != nil {
		all = append(all, values.Pause.String())
	}
	if values.Breaker != nil {
		all = append(all, values.Breaker.String())
	}
	return all
}
