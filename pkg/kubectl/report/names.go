package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	return slices.Concat(reasons, v.ignoredOptIns(p.Pod), origins.Overruled, unknownKeys(&p.Subject.Pod.Workload, p.Pod))
}

// optInMistakes returns what was probably meant to opt in a workload that does not, and why it has
// no effect. owner is the workload, and pod a pod of its newest template. placed reports whether a
// scheduler with the pod's schedulerName has placed pods.
func (v *View) optInMistakes(ref Ref, owner *decision.Workload, pod *v1.Pod, placed bool) (reasons []string) {
	name := pod.Spec.SchedulerName
	mistakes := append(v.ignoredOptIns(pod), unknownKeys(owner, pod)...)
	if v.labelsOf(ref)[spot.OptInLabel] != "" && pod.Labels[spot.OptInLabel] == "" {
		mistakes = append(mistakes, fmt.Sprintf("label %s on the %s has no effect: it must be in the pod template", spot.OptInLabel, ref.Kind))
	}
	if hint := didYouMean(name, []string{v.Scope.Profile}); hint != "" && !placed {
		mistakes = append(mistakes, fmt.Sprintf("schedulerName %q%s", name, hint))
	}
	for _, mistake := range mistakes {
		reasons = append(reasons, "it does not opt in: "+mistake)
	}
	setting := cmp.Or(decision.SettingAnnotation(owner.Annotations), decision.SettingAnnotation(pod.Annotations))
	if len(reasons) == 0 && name == v1.DefaultSchedulerName && setting != "" {
		reasons = append(reasons, fmt.Sprintf("it does not opt in (schedulerName %q), so annotation %s has no effect", name, setting))
	}
	return reasons
}

// object returns the object that ref names; nil if it is unknown.
func (v *View) object(ref Ref) metav1.Object {
	if v.Object == nil {
		return nil
	}
	return v.Object(ref.APIVersion, ref.Kind, ref.Namespace, ref.Name)
}

// labelsOf returns the labels of the object that ref names; nil if it is unknown.
func (v *View) labelsOf(ref Ref) map[string]string {
	if object := v.object(ref); object != nil {
		return object.GetLabels()
	}
	return nil
}

// ignoredOptIns returns why the labels of a pod and its namespace that were probably meant to opt
// in the pod have no effect, or not yet. A namespace opts in no pod that names another scheduler.
func (v *View) ignoredOptIns(pod *v1.Pod) (reasons []string) {
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	own, name := pod.Labels[spot.OptInLabel], pod.Spec.SchedulerName
	if ignored := v.Scope.IgnoredOptIn(pod); ignored != "" {
		add("%s", ignored)
	}
	if own == spot.KeepScheduler || own == spot.OptOut || name == v.Scope.Profile {
		return reasons
	}
	namespace := v.labelsOf(Ref{APIVersion: "v1", Kind: "Namespace", Name: pod.Namespace})
	for _, key := range slices.Sorted(maps.Keys(namespace)) {
		switch value := namespace[key]; {
		case key != spot.OptInLabel && strings.HasPrefix(key, anyDomain):
			add("label %s on the namespace has no effect%s", key, didYouMean(key, []string{spot.OptInLabel}))
		case key != spot.OptInLabel || value == spot.OptOut:
		case value == spot.KeepScheduler && v.Scope.KeepsNone(pod.Namespace) != "":
			add("label %s=%s on the namespace has no effect: %s", key, value, v.Scope.KeepsNone(pod.Namespace))
		case value == "true" && name == v1.DefaultSchedulerName:
			add("label %s=true on the namespace sets schedulerName of new pods, if the namespace opt-in is installed; %s needs only the controller",
				key, spot.KeepScheduler)
		case value != "true" && value != spot.KeepScheduler:
			add("label %s=%s on the namespace has no effect: expected %s or true", key, value, spot.KeepScheduler)
		}
	}
	return reasons
}

// unknownKeys returns a reason for each annotation and label of a pod and its owner that has the
// prefix of this project, and that nothing reads.
func unknownKeys(owner *decision.Workload, pod *v1.Pod) (reasons []string) {
	addUnknown := func(annotations map[string]string, object string) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			switch {
			case key == spot.OptInLabel:
				reasons = append(reasons, fmt.Sprintf("annotation %s on the %s has no effect: it must be a label of the pod", key, object))
			case strings.HasPrefix(key, anyDomain) && !slices.Contains(spot.Annotations, key):
				reasons = append(reasons, fmt.Sprintf("annotation %s on the %s is unknown%s", key, object, didYouMean(key, spot.Annotations)))
			}
		}
	}
	addUnknown(owner.Annotations, owner.Kind)
	if owner.Kind != "Pod" { // else the pod is its own workload
		addUnknown(pod.Annotations, "pod")
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Labels)) {
		switch {
		case key == spot.OptInLabel: // see Scope.IgnoredOptIn
		case slices.Contains(spot.Annotations, key):
			reasons = append(reasons, fmt.Sprintf("label %s on the pod has no effect: it must be an annotation", key))
		case strings.HasPrefix(key, anyDomain):
			hint := didYouMean(key, append([]string{spot.OptInLabel}, spot.Annotations...))
			reasons = append(reasons, fmt.Sprintf("label %s on the pod has no effect%s", key, hint))
		}
	}
	return reasons
}

// didYouMean returns the end of a sentence about an unknown name: ": did you mean NAME?" with the
// closest known name, or "" if none is close.
func didYouMean(name string, known []string) string {
	closest, distance := "", len(name)
	for _, k := range known {
		most := max(len(strings.TrimPrefix(name, spot.Domain)), len(strings.TrimPrefix(k, spot.Domain))) / 3
		if d := editDistance(name, k); d <= most && d < distance {
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
