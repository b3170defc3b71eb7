package workload_test

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

func parse(t *testing.T, text string) labels.Selector {
	t.Helper()
	selector, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// The index returns the selectors that select a pod, whatever operators they use, in the order in
// which they were added.
func TestSelectors(t *testing.T) {
	var s workload.Selectors[string]
	for _, text := range []string{"app=web", "app in (web, api)", "app", "!app", "role!=leader", "app=web,role=leader", "app,role notin (x)", ""} {
		if !s.Add(parse(t, text), text) {
			t.Errorf("%q is not evaluated", text)
		}
	}
	s.Add(labels.Nothing(), "nothing")
	for _, test := range []struct {
		pod  labels.Set
		want []string
	}{
		{nil, []string{"!app", "role!=leader", ""}},
		{labels.Set{"app": "api"}, []string{"app in (web, api)", "app", "role!=leader", "app,role notin (x)", ""}},
		{labels.Set{"app": "web", "role": "leader"}, []string{"app=web", "app in (web, api)", "app", "app=web,role=leader", "app,role notin (x)", ""}},
	} {
		if got := s.Of(test.pod); !slices.Equal(got, test.want) {
			t.Errorf("%v is selected by %q, want %q", test.pod, got, test.want)
		}
	}
}

// counting counts its evaluations.
type counting struct {
	labels.Selector
	n *int
}

func (c counting) Matches(l labels.Labels) bool { *c.n++; return c.Selector.Matches(l) }

// Thousands of selectors in one namespace cost at most MaxTerms evaluations for each label of a
// pod. Selectors of different workloads all count, however many share one of their labels.
func TestManySelectors(t *testing.T) {
	n := 0
	for _, form := range []string{"!absent%d", "app=web,!absent%d", "app,x%d notin (y)", "app in (web,a%d)"} {
		var s workload.Selectors[int]
		for i := range 5000 {
			s.Add(counting{parse(t, fmt.Sprintf(form, i)), &n}, i)
		}
		n = 0
		s.Of(labels.Set{"app": "web", "team": "a"})
		if most := 5 * workload.MaxTerms; n > most {
			t.Errorf("%s: %d evaluations for one pod, want at most %d", form, n, most)
		}
	}
	var s workload.Selectors[int]
	for i := range 5000 {
		if !s.Add(counting{parse(t, fmt.Sprintf("app=a%d,team=a", i)), &n}, i) {
			t.Fatalf("selector %d is not evaluated", i)
		}
	}
	n = 0
	if got := s.Of(labels.Set{"app": "a77", "team": "a"}); !slices.Equal(got, []int{77}) || n > 2*workload.MaxTerms {
		t.Errorf("selected by %v after %d evaluations, want 77 after at most %d", got, n, 2*workload.MaxTerms)
	}
}

// A selector with thousands of terms selects nothing.
func TestSelectorOfManyTerms(t *testing.T) {
	for n, want := range map[int]bool{0: true, workload.MaxTerms: true, workload.MaxTerms + 1: false} {
		s, values := &metav1.LabelSelector{}, &metav1.LabelSelector{}
		for i := range n {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprint("k", i), Operator: metav1.LabelSelectorOpDoesNotExist})
		}
		if n > 1 {
			values.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "k", Operator: metav1.LabelSelectorOpNotIn, Values: make([]string, n-1)}}
		}
		if one, many := workload.Selector(s).Matches(labels.Set{}), workload.Selector(values).Matches(labels.Set{}); one != want || many != want {
			t.Errorf("%d terms: selects %t, with values %t; want %t", n, one, many, want)
		}
	}
}
