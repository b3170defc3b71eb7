package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// failureRecorder is a test that records its errors instead of failing.
type failureRecorder struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (t *failureRecorder) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// hasError returns a check that the test recorded this error.
func (t *failureRecorder) hasError(what string) func() error {
	return func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !slices.ContainsFunc(t.errors, func(e string) bool { return strings.Contains(e, what) }) {
			return fmt.Errorf("errors %q, want %q", t.errors, what)
		}
		return nil
	}
}

// TestObserversReportUnavailability deletes a singleton without a replacement. Every observer of
// the singleton must fail the test.
func TestObserversReportUnavailability(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	observer := &failureRecorder{TB: t}
	s.Seen.ReportTo(observer)
	s.Deploy("app", 1)
	s.Eventually(soon, s.HasReadySplit("app", split{OnDemand: 1}))
	s.protect("app", 1, minAvailable("1"))
	s.serveFor(observer, "app", 1)
	for _, what := range []string{"Service app has", "app: 0 pods are ready"} {
		if err := observer.hasError(what)(); err == nil {
			t.Errorf("errors before the deletion: %q", observer.errors)
		}
	}
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	s.Must(client.CoreV1().Pods(s.Namespace).Delete(s.Ctx, pods[0].Name, metav1.DeleteOptions{}))
	s.Eventually(soon, observer.hasError("Service app has 0 ready endpoints"))
	s.Eventually(soon, observer.hasError("app: 0 pods are ready"))
	if left := s.Seen.Removed("app"); len(left) != 1 || left[0].Name != pods[0].Name || left[0].Evicted {
		t.Errorf("left: %+v, want %s, deleted", left, pods[0].Name)
	}
}
