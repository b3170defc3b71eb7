package decision_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// planned is the input of a plan and of its verdicts, as the directive "plan" describes it.
type planned struct {
	pod      decision.Pod
	settings decision.WorkloadSettings
	placed   decision.PlacedPods
	waiting  decision.WaitTime
	// morePlaced and inPool are as in Plan.Admit. signal is the signal of all nodes.
	morePlaced, inPool int
	signal             decision.SignalClass
}

var grants = map[string]decision.Grant{
	"none": decision.NotGranted, "anyway": decision.GrantScheduleAnyway, "fallback": decision.GrantFallback, "relief": decision.GrantRolloutRelief,
}

func parsePlanned(a args) (p planned, err error) {
	w := &p.pod.Workload
	w.Revision, w.Desired = "shop/web", 5
	values := map[string]string{"minOnDemand": "2", "fallbackAfter": "never", "rolloutRelief": "never"}
	flags := map[string]*bool{
		"ordered": &w.Ordered, "blocksLater": &w.BlocksLater, "spreadByAffinity": &p.pod.SpreadByAffinity, "spreadToOnDemand": &p.pod.SpreadToOnDemand,
		"olderRevisionOnDemand": &p.waiting.OlderRevisionOnDemand, "healing": &p.waiting.Healing,
	}
	for _, word := range a.words {
		if flags[word] == nil {
			return p, fmt.Errorf("no such word: %q", word)
		}
		*flags[word] = true
	}
	disruptions := 0
	numbers := map[string]*int{
		"desired": &w.Desired, "ordinal": &w.Ordinal, "spot": &p.placed.Spot, "onDemand": &p.placed.OnDemand,
		"morePlaced": &p.morePlaced, "inPool": &p.inPool, "disruptions": &disruptions,
	}
	err = a.each(func(key, value string) (err error) {
		if number := numbers[key]; number != nil {
			*number, err = strconv.Atoi(value)
			return err
		}
		switch key {
		case "waited":
			p.waiting.For, err = time.ParseDuration(value)
		case "requires":
			p.pod.OnlySpot, err = oneOf(value, map[string]bool{"spot": true, "on-demand": false})
			p.pod.OnlyOnDemand = value == "on-demand"
		case "assigned":
			p.pod.Assigned = decision.ParseAssignedCapacity(value)
		case "granted":
			p.pod.Granted, err = oneOf(value, grants)
		case "signal":
			p.signal, err = oneOf(value, signals)
		default:
			var ok bool
			if ok, err = override(values, key, value); !ok {
				return errors.New("no such key")
			}
		}
		return err
	})
	o, _ := decision.ParseOverrides(values)
	p.settings = o.Apply(decision.WorkloadSettings{})
	p.settings.Disruptions = disruptions
	return p, err
}

func (p *planned) plan() decision.Plan {
	return decision.NewPlan(&p.pod, p.settings, p.placed, p.waiting)
}

// planOfArgs returns the plan that the arguments of the directive describe.
func planOfArgs(t testing.TB, text string) decision.Plan {
	t.Helper()
	p, err := parsePlanned(parseArgs(text))
	if err != nil {
		t.Fatal(err)
	}
	return p.plan()
}

// showPlan prints the plan of one pod. For some kinds of nodes it prints the outcome of a
// placement, or the reason why the plan refuses the node.
func showPlan(_ *cluster, a args) (string, error) {
	p, err := parsePlanned(a)
	if err != nil {
		return "", err
	}
	plan := p.plan()
	facts := []string{fmt.Sprintf("floor %d", plan.Floor), fmt.Sprintf("budget %d", plan.Budget)}
	if plan.PoolCap > 0 {
		facts = append(facts, fmt.Sprintf("cap %d", plan.PoolCap))
	}
	for name, grant := range grants {
		if grant == plan.Grant && grant != decision.NotGranted {
			facts = append(facts, "granted "+name)
		}
	}
	facts = append(facts, "prefers "+plan.Prefer.String())
	for _, fact := range []struct {
		name string
		is   bool
	}{
		{"exempt", plan.Exempt}, {"beyond the floor", plan.BeyondFloor()}, {"overflows", plan.Overflows()}, {"admits spot", plan.AdmitsSpot()},
		{"admits on-demand", plan.AdmitsOnDemand()}, {"requires on-demand", plan.RequiresOnDemand()},
		{"depends on siblings", plan.DependsOnSiblings()}, {"may unblock siblings", plan.MayUnblockSiblings()},
	} {
		if fact.is {
			facts = append(facts, fact.name)
		}
	}
	var out strings.Builder
	fmt.Fprintln(&out, strings.Join(facts, ", "))
	pool := decision.NewPool("m5.large", "a")
	var names, texts []string // the names of nodes with the same text are joined
	for _, node := range []struct {
		name     string
		capacity decision.Capacity
		pool     decision.Pool
	}{
		{"on-demand", decision.Capacity{}, pool},
		{"spot without a pool", decision.Capacity{Type: decision.Spot}, decision.Pool{}},
		{"spot", decision.Capacity{Type: decision.Spot}, pool},
		{"settling", decision.Capacity{Type: decision.Spot, Source: decision.Settling}, pool},
	} {
		facts := decision.Node{Capacity: node.capacity, Pool: node.pool, Signal: p.signal}
		text := string(plan.Outcome(facts, p.inPool))
		if verdict := plan.Admit(facts, p.morePlaced, p.inPool); verdict != decision.Admitted {
			text = "refused: " + plan.Reason(verdict)
		}
		if last := len(texts) - 1; last >= 0 && texts[last] == text {
			names[last] += ", " + node.name
			continue
		}
		names, texts = append(names, node.name), append(texts, text)
	}
	for i := range names {
		fmt.Fprintf(&out, "  %s: %s\n", names[i], texts[i])
	}
	fmt.Fprintf(&out, "  waits: %s\n", plan.WaitReason())
	return out.String(), nil
}
