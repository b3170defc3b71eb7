package migration

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// Record is what an action costs the workload of its pod, as far as the caches show it.
type Record struct {
	// Ready counts the ready pods of the workload before the action, including released pods.
	Ready int
	// BrokenBudget is the first PodDisruptionBudget that forbids the planned deletion; "" if none.
	BrokenBudget string
	// Replacement describes the replacement to users. State is one of ReplacementStates.
	Replacement, State string
}

const notCreated, notScheduled, notReady, isReady = "not-created", "not-scheduled", "not-ready", "ready"

// ReplacementStates are the states of a replacement, and labels of metrics.
var ReplacementStates = []string{notCreated, notScheduled, notReady, isReady}

// String describes a removal for an event. Its length is bounded.
func (r *Record) String() string {
	text := fmt.Sprintf("; ready pods before: %d; replacement: %s", r.Ready, r.Replacement)
	if r.BrokenBudget != "" {
		text = "; breaks PodDisruptionBudget " + r.BrokenBudget + text
	}
	return refusal.Short(text)
}

// record returns the record of the next action of a pod. A deletion is charged to all its
// PodDisruptionBudgets.
func (p *planner) record(o *observation, kind Kind) Record {
	r := Record{Ready: o.serving}
	r.State, r.Replacement = ReplacementOf(o.Pod, p.now, kind == EvictPod)
	if kind == DeletePod && o.serves {
		for _, one := range o.budgets {
			if one.allowed--; one.allowed < 0 {
				r.BrokenBudget = cmp.Or(r.BrokenBudget, one.Name)
			}
		}
	}
	switch {
	case kind != DeletePod:
	case o.Refused:
		r.Replacement += ": its eviction was refused"
	case o.noSurge != "":
		r.Replacement += ": " + o.noSurge
	}
	return r
}

// ReplacementOf returns the state of the replacement of a pod, and describes the replacement to
// users. The released pods of a revision share their replacements: a ready one replaces an evicted
// pod, and another one a pod that waits.
func ReplacementOf(pod *snapshot.Pod, now time.Time, evicted bool) (state, text string) {
	state, text = notCreated, "not created"
	revision := pod.ReleasedFrom
	if revision == nil || !evicted && len(revision.Pods) < desiredPods(revision) {
		return state, text
	}
	for _, other := range revision.Pods {
		created := other.CreationTimestamp.Time
		since, ready := other.Ready()
		if created.Before(pod.Release.At.Truncate(time.Second)) || state != notCreated && ready != evicted {
			continue
		}
		switch state = notReady; {
		case ready:
			state = isReady
		case other.Spec.NodeName == "":
			state = notScheduled
		}
		age := max(now.Sub(cmp.Or(since, created)), 0).Truncate(time.Second)
		text = fmt.Sprintf("%s (%s for %s)", other.Name, strings.ReplaceAll(state, "-", " "), age)
	}
	return state, text
}
