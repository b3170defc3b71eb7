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

// told is a test that notes what it is told instead of failing.
type told struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (t *told) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// says returns a check that it was told this.
func (t *told) says(what string) func() error {
	return func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !slices.ContainsFunc(t.errors, func(e string) bool { return strings.Contains(e, what) }) {
			return fmt.Errorf("told %q, want %q", t.errors, what)
		}
		return nil
	}
}

// TestObserversSee has a singleton vanish without a replacement, and expects that whoever watches it fails the test.
func TestObserversSee(t *testing.T) {
	s := start(t, live.OnDemand(1, 5)...)
	observer := &told{TB: t}
	s.seen.t = observer
	s.deploy("app", 1)
	s.eventually(soon, s.is("app", split{OnDemand: 1}))
	s.protect("app", 1, minAvailable("1"))
	s.serveFor(observer, "app", 1)
	for _, what := range []string{"Service app has", "app: 0 pods are ready"} {
		if err := observer.says(what)(); err == nil {
			t.Errorf("told already: %q", observer.errors)
		}
	}
	pods, err := live.Pods(s.ctx, client, s.namespace, metav1.ListOptions{})
	s.must(err)
	s.must(client.CoreV1().Pods(s.namespace).Delete(s.ctx, pods[0].Name, metav1.DeleteOptions{}))
	s.eventually(soon, observer.says("Service app has 0 ready endpoints"))
	s.eventually(soon, observer.says("app: 0 pods are ready"))
	if left := s.seen.left("app"); len(left) != 1 || left[0].name != pods[0].Name || left[0].evicted {
		t.Errorf("left: %+v, want %s, deleted", left, pods[0].Name)
	}
}
