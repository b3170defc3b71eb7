package workload

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A long selector is parsed once for each version of an object, and forgotten with the object.
func TestLongSelectorIsParsedOnce(t *testing.T) {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := range MaxTerms {
		s.MatchLabels[fmt.Sprint("k", i)] = "v"
	}
	if !Selector(s).Matches(labels.Set(s.MatchLabels)) {
		t.Fatal("the selector does not match its own labels")
	}
	if got := testing.AllocsPerRun(10, func() { Selector(s) }); got > 5 {
		t.Errorf("%.0f allocations for the second time, want none of its terms", got)
	}
	other := s.DeepCopy()
	other.MatchLabels["k0"] = "w"
	if Selector(other).Matches(labels.Set(s.MatchLabels)) {
		t.Error("another version has the result of the first")
	}
	size := func() (n int) {
		parsed.Range(func(any, any) bool { n++; return true })
		return n
	}
	runtime.KeepAlive(s)
	for end := time.Now().Add(10 * time.Second); size() > 0; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("%d selectors are cached without their objects", size())
		}
	}
}
