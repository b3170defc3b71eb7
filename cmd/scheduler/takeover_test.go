package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// cluster contains the pods that are bound according to the API server, and which pods the cache
// contains.
type cluster struct {
	mu        sync.Mutex
	bound     map[types.UID]types.NamespacedName
	cached    map[types.UID]bool
	failures  int             // number of next lists that fail
	lists     []time.Duration // start of each list, since the beginning
	began     time.Time
	decisions int // calls of the scheduler's own NextPod
}

// do changes or reads the cluster.
func (c *cluster) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) list(context.Context) (map[types.UID]types.NamespacedName, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists = append(c.lists, time.Since(c.began))
	if c.failures > 0 {
		c.failures--
		return nil, errors.New("the API server is unavailable")
	}
	bound := map[types.UID]types.NamespacedName{}
	for uid, name := range c.bound {
		bound[uid] = name
	}
	return bound, nil
}

func (c *cluster) holds(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cached[uid]
}

// lead calls NextPod like a scheduler that begins to lead, repeatedly until ctx is done.
func (c *cluster) lead(ctx context.Context) {
	next := afterTakeover(ctx, leader.Takeover{List: c.list, IsCached: c.holds}, func(klog.Logger) (*framework.QueuedPodInfo, error) {
		c.do(func() { c.decisions++ })
		return &framework.QueuedPodInfo{}, nil
	})
	go func() {
		for ctx.Err() == nil {
			if pod, err := next(klog.Background()); (pod == nil) != (ctx.Err() != nil) || err != nil {
				panic(fmt.Sprintf("NextPod returned %v, %v", pod, err))
			}
			_ = leader.Sleep(ctx, time.Hour)
		}
	}()
}

// after advances the time and fails the test unless that many decisions have been made.
func (c *cluster) after(t *testing.T, d time.Duration, decisions int) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	c.do(func() {
		if c.decisions != decisions {
			t.Fatalf("%d decisions after %s, want %d", c.decisions, time.Since(c.began), decisions)
		}
	})
}

// inCluster runs a test in a synctest bubble, with the pods a and b bound and an empty cache.
func inCluster(t *testing.T, test func(*testing.T, *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &cluster{
			bound:  map[types.UID]types.NamespacedName{"a": {Namespace: "n", Name: "a"}, "b": {Namespace: "n", Name: "b"}},
			cached: map[types.UID]bool{},
			began:  time.Now(),
		})
	})
}

func TestTakeoverWaitsForTheCache(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lead(t.Context())
		c.after(t, time.Minute, 0)
		c.do(func() { c.cached["b"] = true })
		c.after(t, time.Minute, 0)
		c.do(func() { c.cached["a"] = true })
		c.after(t, leader.PollEvery, 1)
		if seconds := int(time.Since(c.began).Seconds()); seconds != 120 {
			t.Fatalf("the test took %d s", seconds)
		}
	})
}

func TestTakeoverIsShortWhenNothingIsMissing(t *testing.T) {
	for name, empty := range map[string]bool{"all in the cache": false, "no pods": true} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				c.cached["a"], c.cached["b"] = true, true
				if empty {
					c.bound = nil
				}
				c.lead(t.Context())
				c.after(t, leader.Settle-time.Millisecond, 0)
				c.after(t, time.Millisecond, 1)
				if diff := cmp.Diff([]time.Duration{leader.Settle}, c.lists); diff != "" {
					t.Errorf("lists at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The API server may commit bindings shortly after the start of the term that were sent before it.
func TestTakeoverSeesLateCommits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cached["a"], c.cached["b"] = true, true
		c.lead(t.Context())
		c.after(t, leader.Settle-time.Millisecond, 0)
		c.do(func() { c.bound["late"] = types.NamespacedName{Namespace: "n", Name: "late"} })
		c.after(t, time.Minute, 0)
		c.do(func() { c.cached["late"] = true })
		c.after(t, leader.PollEvery, 1)
	})
}

// The cache never contains a pod that was deleted or has ended before the watch reported its
// binding.
func TestTakeoverIgnoresDeletedPods(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cached["a"] = true
		c.lead(t.Context())
		c.after(t, leader.Settle+leader.RelistAfter/2, 0)
		c.do(func() { delete(c.bound, "b") })
		c.after(t, leader.RelistAfter, 1)
	})
}

// Other schedulers continue to bind pods. The takeover must not wait for these bindings, or it
// would never end.
func TestTakeoverIgnoresLaterBindings(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lead(t.Context())
		c.after(t, leader.Settle+leader.RelistAfter/2, 0)
		c.do(func() { c.bound["later"] = types.NamespacedName{Namespace: "n", Name: "later"} })
		c.after(t, time.Minute, 0)
		c.do(func() { c.cached["a"], c.cached["b"] = true, true })
		c.after(t, leader.PollEvery, 1)
	})
}

func TestTakeoverListsLessOften(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lead(t.Context())
		c.after(t, 10*time.Minute, 0)
		// 1 + 2 + 4 + 8 s, and then every 16 s.
		if n := len(c.lists); n < 38 || n > 42 {
			t.Errorf("%d lists in 10 minutes", n)
		}
	})
}

func TestTakeoverRetriesFailedLists(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cached["a"], c.cached["b"] = true, true
		c.failures = 3
		c.lead(t.Context())
		c.after(t, leader.Settle+3*leader.RetryAfter-time.Millisecond, 0)
		c.after(t, time.Millisecond, 1)
	})
}

// After a failed list, the takeover must not assume that the missing pods were deleted.
func TestTakeoverRetriesFailedLaterLists(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lead(t.Context())
		c.after(t, leader.Settle+leader.RelistAfter/2, 0)
		c.do(func() { c.failures = 30 })
		c.after(t, 2*time.Minute, 0)
		c.do(func() { c.cached["a"], c.cached["b"] = true, true })
		c.after(t, leader.PollEvery, 1)
	})
}

func TestTakeoverEndsWithTheProcess(t *testing.T) {
	for name, test := range map[string]struct {
		at       time.Duration
		failures int
	}{
		"while bindings settle":     {leader.Settle / 2, 0},
		"while lists fail":          {leader.Settle + 10*leader.RetryAfter + leader.RetryAfter/2, 1000},
		"while the cache is behind": {leader.Settle + time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				c.failures = test.failures
				ctx, cancel := context.WithCancel(t.Context())
				c.lead(ctx)
				c.after(t, test.at, 0)
				cancel()
				c.after(t, 0, 0)
				c.do(func() { c.cached["a"], c.cached["b"], c.failures = true, true, 0 })
				c.after(t, time.Hour, 0)
			})
		})
	}
}

// The takeover runs once per term, not in every cycle.
func TestTakeoverHappensOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cached["a"], c.cached["b"] = true, true
		c.lead(t.Context())
		c.after(t, time.Minute, 1)
		c.do(func() { c.cached = nil })
		c.after(t, 3*time.Hour, 4)
		if len(c.lists) != 1 {
			t.Errorf("%d lists", len(c.lists))
		}
	})
}
