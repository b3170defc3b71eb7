package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// anyDomain is the start of spot.Domain, also if the rest is misspelled.
const anyDomain = "spot-aware-"

// unknownKeys returns a reason for each annotation and label of a pod and its owner that has the
// prefix of this project, and that nothing reads.
func unknownKeys(p *snapshot.Pod) (reasons []string) {
	owner := &p.Subject.Pod.Workload
	on := []struct {
		object      string
		annotations map[string]string
	}{{owner.Kind, owner.Annotations}, {"pod", p.Annotations}}
	for _, o := range on {
		for _, key := range slices.Sorted(maps.Keys(o.annotations)) {
			if strings.HasPrefix(key, anyDomain) && !slices.Contains(spot.Annotations, key) {
				reasons = append(reasons, fmt.Sprintf("annotation %s on the %s is unknown%s", key, o.object, didYouMean(key, spot.Annotations)))
			}
		}
		if o.object == owner.Kind && owner.Kind == "Pod" {
			break // the pod is its own workload
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		switch {
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
	if closest == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", closest)
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
