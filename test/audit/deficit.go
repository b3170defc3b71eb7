package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Deficit is a workload with fewer pods on on-demand than its floor. It is a state, not a breach.
type Deficit struct {
	Workload string // kind and namespace/name
	Floor    int    // number of Live pods that must be on on-demand
	OnDemand int
	Live     int // pods of all live revisions that are neither terminating nor terminal
	Waiting  int // number of Live pods that are not bound
}

func (d Deficit) String() string {
	return fmt.Sprintf("floor deficit: %s has %d on on-demand of a floor of %d (%d live pods, %d waiting)",
		d.Workload, d.OnDemand, d.Floor, d.Live, d.Waiting)
}

// deficits returns every workload of the profile that is below its floor, ordered by name. It
// omits pods that require spot and pods with an unknown owner.
func (c *core) deficits(now time.Time) []Deficit {
	found := map[types.UID]*Deficit{}
	for _, p := range c.pods {
		if !p.live() || p.member.kind == noOpinion || p.member.kind == released || p.object.Spec.SchedulerName != c.profile {
			continue
		}
		all := c.readings(p, now, stamp{at: now})
		r := all[len(all)-1]
		if !r.known || r.exempt {
			continue
		}
		t := found[r.uid]
		if t == nil {
			t = &Deficit{Workload: r.kind + " " + r.name}
			found[r.uid] = t
		}
		t.Live++
		if p.node == "" {
			t.Waiting++
		}
		n := c.nodes[p.node]
		runsOnDemand := n != nil && n.facts.last().exists && !n.facts.last().spot
		if ordinal, ok := r.ordinal(p.object.Name); ok {
			// Only the first ordinals can satisfy the floor of a StatefulSet, and only existing
			// pods count as missing.
			if ordinal < r.start || ordinal >= r.start+r.floor {
				continue
			}
			t.Floor++
		} else {
			t.Floor = max(t.Floor, r.floor)
		}
		if runsOnDemand {
			t.OnDemand++
		}
	}
	var out []Deficit
	for _, t := range found {
		t.Floor = min(t.Floor, t.Live)
		if t.OnDemand < t.Floor {
			out = append(out, *t)
		}
	}
	slices.SortFunc(out, func(a, b Deficit) int { return strings.Compare(a.Workload, b.Workload) })
	return out
}
