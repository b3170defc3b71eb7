package workload

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// MaxTerms is the largest number of terms of one object that is evaluated, and of selectors that
// share a label. An object has room for 20,000 terms, and a namespace for thousands of objects. The
// objects of one tenant must not delay the others.
const MaxTerms = 200

// cachedTerms is the number of terms from which on a parsed selector is cached.
const cachedTerms = 10

// parsed contains the labels.Selectors of the selectors with cachedTerms, while a cache refers to
// them. An informer never changes an object that it has published.
var parsed sync.Map // of weak.Pointer[metav1.LabelSelector]

// Selector returns the selector of pods that an object in the cache of an informer contains. It
// parses a long selector once. An invalid selector, and one with more than MaxTerms terms, selects
// nothing, and so does nil, as in Kubernetes' controllers.
func Selector(s *metav1.LabelSelector) labels.Selector {
	switch terms := Terms(s); {
	case terms > MaxTerms:
		return labels.Nothing()
	case terms < cachedTerms:
		return parse(s)
	}
	key := weak.Make(s)
	known, ok := parsed.Load(key)
	if !ok {
		known = parse(s)
		parsed.Store(key, known)
		runtime.AddCleanup(s, func(key weak.Pointer[metav1.LabelSelector]) { parsed.Delete(key) }, key)
	}
	return known.(labels.Selector)
}

// Terms returns the number of terms of a selector. It counts no further than MaxTerms expressions.
func Terms(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	terms := len(s.MatchLabels) + len(s.MatchExpressions)
	for i := range min(len(s.MatchExpressions), MaxTerms) {
		terms += len(s.MatchExpressions[i].Values)
	}
	return terms
}

func parse(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// Selectors finds the objects of a namespace that select a pod. It evaluates at most MaxTerms
// selectors for each label of the pod. The zero Selectors are empty.
type Selectors[T any] struct {
	// byLabel contains each selector under "key=value" or "key" of a label that it requires, and
	// under "" if it requires none.
	byLabel map[string][]selecting[T]
	added   int
}

type selecting[T any] struct {
	selector labels.Selector
	object   T
	number   int // in the order of Add
}

// Add adds an object. It reports whether it is evaluated: not if too many selectors require the
// same labels.
func (s *Selectors[T]) Add(selector labels.Selector, object T) bool {
	requirements, _ := selector.Requirements()
	keys := []string{""}
	for _, r := range requirements {
		var of []string
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			for value := range r.Values() {
				of = append(of, r.Key()+"="+value)
			}
		case selection.Exists:
			of = []string{r.Key()}
		default:
			continue
		}
		if keys[0] == "" || s.most(of) < s.most(keys) {
			keys = of
		}
	}
	if s.most(keys) >= MaxTerms {
		return false
	}
	if s.byLabel == nil {
		s.byLabel = map[string][]selecting[T]{}
	}
	s.added++
	for _, key := range keys {
		s.byLabel[key] = append(s.byLabel[key], selecting[T]{selector, object, s.added})
	}
	return true
}

// most returns the largest number of selectors under one of the keys.
func (s *Selectors[T]) most(keys []string) (n int) {
	for _, key := range keys {
		n = max(n, len(s.byLabel[key]))
	}
	return n
}

// Of returns the objects that select a pod with these labels, in the order of Add.
func (s *Selectors[T]) Of(pod labels.Set) (objects []T) {
	if len(s.byLabel) == 0 {
		return nil
	}
	keys := []string{""}
	for key, value := range pod {
		keys = append(keys, key, key+"="+value)
	}
	var found []selecting[T]
	for _, key := range keys {
		for _, one := range s.byLabel[key] {
			if one.selector.Matches(pod) {
				found = append(found, one)
			}
		}
	}
	slices.SortFunc(found, func(a, b selecting[T]) int { return cmp.Compare(a.number, b.number) })
	for _, one := range found {
		objects = append(objects, one.object)
	}
	return objects
}
