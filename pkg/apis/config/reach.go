package config

import (
	"errors"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// reach is the set of pods that the conditions of a rule match, in a form that is comparable with
// the reach of another rule.
type reach struct {
	rule string
	// lists are the namespaces, priority classes, QoS classes and owner kinds. An empty list
	// matches every pod.
	lists       [4][]string
	minPriority int32
	// labels are the permitted values of the pod's labels, by key. Labels with other keys may have
	// any value.
	labels map[string]values
}

func (r *Rule) reach(minPriority *int32) reach {
	result := reach{
		rule:        r.Name,
		lists:       [...][]string{r.Namespaces, r.PriorityClasses, r.QOSClasses, r.OwnerKinds},
		minPriority: ptr.Deref(minPriority, math.MinInt32),
		labels:      map[string]values{},
	}
	if qos := &result.lists[2]; len(*qos) == 0 {
		*qos = qosClasses
	}
	if r.PodSelector != nil {
		restrict := func(key string, to values) {
			if already, ok := result.labels[key]; ok {
				to = to.and(already)
			}
			result.labels[key] = to
		}
		for key, value := range r.PodSelector.MatchLabels {
			restrict(key, values{listed: sets.New(value)})
		}
		for _, requirement := range r.PodSelector.MatchExpressions {
			restrict(requirement.Key, valuesOf(requirement))
		}
	}
	return result
}

// neverMatches returns an error if the rule can never match a pod, given the earlier rules; nil if
// it can.
func (r reach) neverMatches(earlier []reach) error {
	for _, labels := range r.labels {
		if labels.empty() {
			return errors.New("can never match: its podSelector contradicts itself")
		}
	}
	for _, other := range earlier {
		if r.within(other) {
			return errors.New("can never match: every pod that it selects is matched by rule " + other.rule + " before it")
		}
	}
	if r.withinAny(earlier) {
		return errors.New("can never match: every pod that it selects is matched by a rule before it")
	}
	return nil
}

// withinAny reports whether each pod of r is also in one of the other reaches. It splits r by the
// values in its lists, to find other reaches that cover r only together.
func (r reach) withinAny(others []reach) bool {
	for i, list := range r.lists {
		if len(list) > 1 {
			return !slices.ContainsFunc(list, func(value string) bool {
				part := r
				part.lists[i] = []string{value}
				return !part.withinAny(others)
			})
		}
	}
	return slices.ContainsFunc(others, r.within)
}

// within reports whether each pod of r is also in other.
func (r reach) within(other reach) bool {
	for i, allowed := range other.lists {
		if len(allowed) == 0 {
			continue
		}
		if len(r.lists[i]) == 0 || slices.ContainsFunc(r.lists[i], func(v string) bool { return !slices.Contains(allowed, v) }) {
			return false
		}
	}
	for key, allowed := range other.labels {
		mine, ok := r.labels[key]
		if !ok {
			mine = anyValue
		}
		if !mine.within(allowed) {
			return false
		}
	}
	return r.minPriority >= other.minPriority
}

// values is the set of permitted values of one label.
type values struct {
	// listed are the permitted values, or the forbidden values if except is set.
	listed sets.Set[string]
	except bool
	// absent: the pod need not have the label.
	absent bool
}

// anyValue permits every value and an absent label.
var anyValue = values{except: true, absent: true}

func valuesOf(r metav1.LabelSelectorRequirement) values {
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return values{listed: sets.New(r.Values...)}
	case metav1.LabelSelectorOpNotIn:
		return values{listed: sets.New(r.Values...), except: true, absent: true}
	case metav1.LabelSelectorOpExists:
		return values{except: true}
	default: // DoesNotExist; validation rejected all other operators.
		return values{absent: true}
	}
}

// and returns the intersection of v and w.
func (v values) and(w values) values {
	result := values{except: v.except && w.except, absent: v.absent && w.absent}
	switch {
	case v.except && w.except:
		result.listed = v.listed.Union(w.listed)
	case v.except:
		result.listed = w.listed.Difference(v.listed)
	case w.except:
		result.listed = v.listed.Difference(w.listed)
	default:
		result.listed = v.listed.Intersection(w.listed)
	}
	return result
}

func (v values) empty() bool { return !v.except && !v.absent && len(v.listed) == 0 }

// within reports whether every value of v is also in w.
func (v values) within(w values) bool {
	switch {
	case v.absent && !w.absent, v.except && !w.except:
		return false
	case v.except:
		return v.listed.IsSuperset(w.listed)
	case w.except:
		return !v.listed.HasAny(w.listed.UnsortedList()...)
	}
	return w.listed.IsSuperset(v.listed)
}
