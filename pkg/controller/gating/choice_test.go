package gating

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

func TestChoose(t *testing.T) {
	deployment := decision.Workload{Kind: "Deployment", Revision: "shop/web-1", Desired: 10}
	set := decision.Workload{Kind: "StatefulSet", Revision: "shop/db", Desired: 3, Ordered: true}
	at := func(w decision.Workload, ordinal int) decision.Workload { w.Ordinal = ordinal; return w }
	job := decision.Workload{Kind: "Job", Revision: "shop/sum", Desired: 5, Batch: decision.Retriable}
	third := decision.Percent(30)
	pools := decision.Count(1)
	for name, test := range map[string]struct {
		pod      decision.Pod
		settings decision.WorkloadSettings
		facts    facts
		want     decision.AssignedCapacity
		require  string
		warns    bool
	}{
		"first of the floor":                            {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MinOnDemand: third}, want: decision.AssignedOnDemand, require: "NotIn"},
		"last of the floor":                             {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MinOnDemand: third}, facts: facts{assigned: 2}, want: decision.AssignedOnDemand, require: "NotIn"},
		"first beyond the floor":                        {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MinOnDemand: third}, facts: facts{assigned: 3}, want: decision.AssignedAny},
		"user's annotation is ignored":                  {pod: decision.Pod{Workload: deployment, Assigned: decision.AssignedAny}, settings: decision.WorkloadSettings{MinOnDemand: third}, want: decision.AssignedOnDemand, require: "NotIn"},
		"no floor":                                      {pod: decision.Pod{Workload: deployment}, want: decision.AssignedAny},
		"overflow Never":                                {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{Overflow: decision.NeverOverflow}, want: decision.AssignedSpot, require: "In"},
		"overflow Never, own affinity for on-demand":    {pod: decision.Pod{Workload: deployment, OnlyOnDemand: true}, settings: decision.WorkloadSettings{Overflow: decision.NeverOverflow}, want: decision.Unassigned},
		"returns to spot":                               {pod: decision.Pod{Workload: deployment}, facts: facts{returns: "web-0"}, want: decision.AssignedSpot, require: "In"},
		"returns to spot, part of the floor":            {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MinOnDemand: third}, facts: facts{returns: "web-0"}, want: decision.AssignedOnDemand, require: "NotIn"},
		"granted":                                       {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MinOnDemand: third}, facts: facts{granted: spot.GrantedFallback}, want: decision.AssignedAny},
		"a floor that is a preference":                  {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MinOnDemand: third, WhenUnsatisfiable: decision.ScheduleAnyway}, want: decision.Unassigned},
		"an ordinal of the floor":                       {pod: decision.Pod{Workload: at(set, 0)}, settings: decision.WorkloadSettings{MinOnDemand: decision.Count(1)}, facts: facts{assigned: 3}, want: decision.AssignedOnDemand, require: "NotIn"},
		"an ordinal beyond":                             {pod: decision.Pod{Workload: at(set, 1)}, settings: decision.WorkloadSettings{MinOnDemand: decision.Count(1)}, want: decision.AssignedAny},
		"only spot, of the floor":                       {pod: decision.Pod{Workload: deployment, OnlySpot: true}, settings: decision.WorkloadSettings{MinOnDemand: third}, want: decision.Unassigned, warns: true},
		"only spot, exemptions ignored":                 {pod: decision.Pod{Workload: deployment, OnlySpot: true}, settings: decision.WorkloadSettings{MinOnDemand: third, Exemptions: decision.IgnoreExemptions}, want: decision.Unassigned, warns: true},
		"only spot, beyond the floor":                   {pod: decision.Pod{Workload: deployment, OnlySpot: true}, settings: decision.WorkloadSettings{MinOnDemand: third}, facts: facts{assigned: 3}, want: decision.Unassigned},
		"a cap":                                         {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MaxPerPool: &pools}, want: decision.AssignedAny, warns: true},
		"a cap, and overflow Never":                     {pod: decision.Pod{Workload: deployment}, settings: decision.WorkloadSettings{MaxPerPool: &pools, Overflow: decision.NeverOverflow}, want: decision.AssignedSpot, require: "In", warns: true},
		"a retriable Job":                               {pod: decision.Pod{Workload: decision.Workload{Kind: "Job", Desired: 5, Batch: decision.Retriable}}, want: decision.AssignedAny},
		"a Job at its disruption limit":                 {pod: decision.Pod{Workload: job}, settings: decision.WorkloadSettings{DisruptionLimit: 3, Disruptions: 3}, want: decision.AssignedOnDemand, require: "NotIn"},
		"a Job at its limit that prefers on-demand":     {pod: decision.Pod{Workload: job}, settings: decision.WorkloadSettings{DisruptionLimit: 3, Disruptions: 3, OnDisruptionLimit: decision.PreferOnDemand}, want: decision.Unassigned},
		"a Job below its disruption limit":              {pod: decision.Pod{Workload: job}, settings: decision.WorkloadSettings{DisruptionLimit: 3, Disruptions: 2}, want: decision.AssignedAny},
		"a spread, of the floor":                        {pod: decision.Pod{Workload: deployment, SpreadByAffinity: true}, settings: decision.WorkloadSettings{MinOnDemand: third}, want: decision.AssignedOnDemand, warns: true},
		"a spread, next of the floor":                   {pod: decision.Pod{Workload: deployment, SpreadByAffinity: true}, settings: decision.WorkloadSettings{MinOnDemand: third}, facts: facts{assigned: 2}, want: decision.AssignedOnDemand},
		"a spread, beyond the floor":                    {pod: decision.Pod{Workload: deployment, SpreadByAffinity: true}, want: decision.AssignedAny},
		"a spread that ignores affinity, of the floor":  {pod: decision.Pod{Workload: deployment, SpreadToOnDemand: true}, settings: decision.WorkloadSettings{MinOnDemand: third}, want: decision.AssignedOnDemand, require: "NotIn"},
		"a spread, overflow Never":                      {pod: decision.Pod{Workload: deployment, SpreadByAffinity: true}, settings: decision.WorkloadSettings{Overflow: decision.NeverOverflow}, want: decision.AssignedAny, warns: true},
		"a spread to on-demand, overflow Never":         {pod: decision.Pod{Workload: deployment, SpreadByAffinity: true, SpreadToOnDemand: true}, settings: decision.WorkloadSettings{Overflow: decision.NeverOverflow}, want: decision.AssignedAny, warns: true},
		"only counts on on-demand, overflow Never":      {pod: decision.Pod{Workload: deployment, SpreadToOnDemand: true}, settings: decision.WorkloadSettings{Overflow: decision.NeverOverflow}, want: decision.AssignedAny, warns: true},
		"a spread, returns to spot":                     {pod: decision.Pod{Workload: deployment, SpreadByAffinity: true}, facts: facts{returns: "web-0"}, want: decision.AssignedAny, warns: true},
		"own affinity for on-demand, part of the floor": {pod: decision.Pod{Workload: deployment, OnlyOnDemand: true}, settings: decision.WorkloadSettings{MinOnDemand: third}, want: decision.Unassigned},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := NewLabels(builtin(), []string{karpenter}, karpenter)
			if err != nil {
				t.Fatal(err)
			}
			test.facts.couldRun = anyNode
			c := l.choose(&workload.Subject{Pod: test.pod}, test.settings, test.facts)
			if c.assigned != test.want || c.warning != "" != test.warns || c.granted != test.facts.granted {
				t.Errorf("choose = %+v, want %q and a warning %v", c, test.want, test.warns)
			}
			var operators []string
			for _, e := range c.require {
				operators = append(operators, string(e.MatchExpressions[0].Operator))
			}
			if got := strings.Join(operators, " "); got != test.require {
				t.Errorf("requires %v, want %q", c.require, test.require)
			}
			prefers := ""
			if len(c.prefer) > 0 {
				prefers = string(c.prefer[0].MatchExpressions[0].Operator)
			}
			want := map[decision.AssignedCapacity]string{decision.AssignedAny: "In", decision.Unassigned: "NotIn"}[test.want]
			if test.want == decision.AssignedOnDemand && test.require == "" {
				want = "NotIn"
			}
			if test.pod.OnlySpot || test.pod.OnlyOnDemand {
				want = ""
			}
			if prefers != want {
				t.Errorf("prefers %v, want %q", c.prefer, want)
			}
			if c.why == "" {
				t.Error("the annotation has no reason")
			}
		})
	}
}

func anyNode(decision.AssignedCapacity) bool { return true }

// Without a label for spot, choose cannot require spot for replicas beyond the floor.
func TestChooseWithoutSpotLabel(t *testing.T) {
	l, err := NewLabels(builtin(), []string{karpenter}, "")
	if err != nil {
		t.Fatal(err)
	}
	pod := decision.Pod{Workload: decision.Workload{Kind: "Deployment", Desired: 2}}
	for _, f := range []facts{{couldRun: anyNode}, {couldRun: anyNode, returns: "web-0"}} {
		if c := l.choose(&workload.Subject{Pod: pod}, decision.WorkloadSettings{Overflow: decision.NeverOverflow}, f); c.assigned != decision.AssignedAny || c.require != nil {
			t.Errorf("choose = %+v, want no requirement", c)
		}
	}
}

// Another scheduler ignores the cap, and ours lets the pod wait.
func TestWarningOfACap(t *testing.T) {
	l, err := NewLabels(builtin(), []string{karpenter}, karpenter)
	if err != nil {
		t.Fatal(err)
	}
	pools := decision.Count(1)
	for kept, want := range map[bool]string{true: "maxPerPool has no effect", false: "the pod may wait"} {
		subject := &workload.Subject{Pod: decision.Pod{Workload: decision.Workload{Kind: "Deployment", Desired: 3}}}
		if c := l.choose(subject, decision.WorkloadSettings{MaxPerPool: &pools}, facts{couldRun: anyNode, kept: kept}); !strings.Contains(c.warning, want) {
			t.Errorf("keeps its scheduler: %t: warning %q, want %q", kept, c.warning, want)
		}
	}
}

// A reason counts only pods that require on-demand: no pod counts of a floor that nothing can meet.
func TestFloorWords(t *testing.T) {
	w := decision.Workload{Kind: "Deployment", Revision: "shop/web-r", Desired: 6}
	l := &Labels{notSpot: []v1.NodeSelectorRequirement{expression(karpenter, v1.NodeSelectorOpNotIn, "spot")}}
	for _, test := range []struct {
		couldRun bool
		when     decision.WhenUnsatisfiable
		want     string
	}{
		{true, decision.DoNotSchedule, "floor of shop/web-r, 1 of 2"},
		{false, decision.DoNotSchedule, "floor of shop/web-r, which is 2, but no on-demand node that exists or existed could run it"},
		{true, decision.ScheduleAnyway, "whenUnsatisfiable ScheduleAnyway: the floor is a preference, floor of shop/web-r, which is 2"},
	} {
		could := func(decision.AssignedCapacity) bool { return test.couldRun }
		c := l.choose(&workload.Subject{Pod: decision.Pod{Workload: w}}, decision.WorkloadSettings{MinOnDemand: decision.Count(2), WhenUnsatisfiable: test.when},
			facts{couldRun: could, onlySpot: func() bool { return false }})
		if c.why != test.want {
			t.Errorf("%q, want %q", c.why, test.want)
		}
	}
}
