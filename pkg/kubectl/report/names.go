package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// anyDomain is the start of spot.Domain, also if the rest is misspelled.
const anyDomain = "spot-aware-"

// ignoredOf returns a reason for each annotation and label of a pod and its owner that has no
// effect.
func (v *View) ignoredOf(p *snapshot.Pod, origins decision.Origins, invalid []decision.InvalidAnnotation) (reasons []string) {
	for _, annotation := range invalid {
		reasons = append(reasons, annotation.String())
	}
	if ignored := v.Scope.IgnoredOptIn(p.Pod); ignored != "" {
		reasons = append(reasons, ignored)
	}
	return append(append(reasons, origins.Overruled...), unknownKeys(p)...)
}

// unknownKeys returns a reason for each annotation and label of a pod and its owner that has the
// prefix of this project, and that nothing reads.
func unknownKeys(p *snapshot.Pod) (reasons []string) {
	addUnknown := func(annotations map[string]string, object string) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if strings.HasPrefix(key, anyDomain) && !slices.Contains(spot.Annotations, key) {
				reasons = append(reasons, fmt.Sprintf("annotation %s on the %s is unknown%s", key, object, didYouMean(key, spot.Annotations)))
			}
		}
	}
	owner := &p.Subject.Pod.Workload
	addUnknown(owner.Annotations, owner.Kind)
	if owner.Kind != "Pod" { // else the pod is its own workload
		addUnknown(p.Annotations, "pod")
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		switch {
		case key == spot.OptInLabel: // see Scope.IgnoredOptIn
		case slices.Contains(spot.Annotations, key):
			reasons = append(reasons, fmt.Sprintf("label %s on the pod has no effect: it must be an annotation", key))
		case strings.HasPrefix(key, anyDomain):
			reasons = append(reasons, fmt.Sprintf("label %s on the pod has no effect%s", key, didYouMean(key, spot.Annotations)))
		}
	}
	return reasons
}

// didYouMean returns the end of a sentence about an unknown name: ": did you mean NAME?" with the
// closest known name, or "" if none is close.
func didYouMean(name string, known []string) string {
	closest, distance := "", len(strings.TrimPrefix(name, spot.Domain))/3+1
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			closest, distance = k, d
		}
	}
	if closest != "" {
		closest = fmt.Sprintf(": did you mean %s?", closest)
	}
	return closest
}

// editDistance returns the smallest number of bytes to insert, delete or replace that makes a of b.
func editDistance(a, b string) int {
	distances := make([]int, len(b)+1) // from a[:i] to b[:j]
	for j := range distances {
		distances[j] = j
	}
	for i := range len(a) {
		diagonal := distances[0]
		distances[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = distances[j+1]
			distances[j+1] = min(replaced, distances[j]+1, distances[j+1]+1)
		}
	}
	return distances[len(b)]
}
