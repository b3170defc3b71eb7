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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/takeover"
)

// cluster is what a takeover sees: the pods that are bound according to the API server, and those of them that the cache holds.
type cluster struct {
	mu        sync.Mutex
	bound     map[types.UID]types.NamespacedName
	cached    map[types.UID]bool
	failures  int             // how many lists from now on fail
	lists     []time.Duration // when each list was asked for, since the beginning
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
		return nil, errors.New("the API server is away")
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

// lead calls NextPod as a scheduler does that begins to lead, and again when it has returned a pod, until ctx is done.
func (c *cluster) lead(ctx context.Context) {
	next := before(ctx, takeover.Takeover{List: c.list, Holds: c.holds}, func(klog.Logger) (*framework.QueuedPodInfo, error) {
		c.do(func() { c.decisions++ })
		return &framework.QueuedPodInfo{}, nil
	})
	go func() {
		for ctx.Err() == nil {
			if pod, err := next(klog.Background()); (pod == nil) != (ctx.Err() != nil) || err != nil {
				panic(fmt.Sprintf("NextPod returned %v, %v", pod, err))
			}
			_ = takeover.Sleep(ctx, time.Hour)
		}
	}()
}

// after lets time pass and fails the test unless that many decisions have been made by then.
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

// inCluster runs a test in a time of its own, with the pods a and b bound and nothing in the cache.
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
		c.after(t, takeover.PollEvery, 1)
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
				c.after(t, takeover.Settle-time.Millisecond, 0)
				c.after(t, time.Millisecond, 1)
				if diff := cmp.Diff([]time.Duration{takeover.Settle}, c.lists); diff != "" {
					t.Errorf("lists at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// What the API server commits in the first moments of the term was sent before it.
func TestTakeoverSeesBindingsThatWereOnTheirWay(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cached["a"], c.cached["b"] = true, true
		c.lead(t.Context())
		c.after(t, takeover.Settle-time.Millisecond, 0)
		c.do(func() { c.bound["late"] = types.NamespacedName{Namespace: "n", Name: "late"} })
		c.after(t, time.Minute, 0)
		c.do(func() { c.cached["late"] = true })
		c.after(t, takeover.PollEvery, 1)
	})
}

// A pod that was deleted or has ended before the watch told of its binding never comes.
func TestTakeoverDoesNotWaitForWhatIsGone(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cached["a"] = true
		c.lead(t.Context())
		c.after(t, takeover.Settle+takeover.RelistAfter/2, 0)
		c.do(func() { delete(c.bound, "b") })
		c.after(t, takeover.RelistAfter, 1)
	})
}

// Other schedulers go on binding. Nobody has to wait for those: it would never end.
func TestTakeoverDoesNotWaitForWhatComesLater(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lead(t.Context())
		c.after(t, takeover.Settle+takeover.RelistAfter/2, 0)
		c.do(func() { c.bound["later"] = types.NamespacedName{Namespace: "n", Name: "later"} })
		c.after(t, time.Minute, 0)
		c.do(func() { c.cached["a"], c.cached["b"] = true, true })
		c.after(t, takeover.PollEvery, 1)
	})
}

func TestTakeoverListsSeldomer(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lead(t.Context())
		c.after(t, 10*time.Minute, 0)
		// 1 + 2 + 4 + 8 s, and then every 16 s.
		if n := len(c.lists); n < 38 || n > 42 {
			t.Errorf("%d lists in 10 minutes", n)
		}
	})
}

func TestTakeoverAsksAgainWhenListsFail(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cached["a"], c.cached["b"] = true, true
		c.failures = 3
		c.lead(t.Context())
		c.after(t, takeover.Settle+3*takeover.RetryAfter-time.Millisecond, 0)
		c.after(t, time.Millisecond, 1)
	})
}

// A failing list must not look like one in which the missing pods are gone.
func TestTakeoverAsksAgainWhenLaterListsFail(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lead(t.Context())
		c.after(t, takeover.Settle+takeover.RelistAfter/2, 0)
		c.do(func() { c.failures = 30 })
		c.after(t, 2*time.Minute, 0)
		c.do(func() { c.cached["a"], c.cached["b"] = true, true })
		c.after(t, takeover.PollEvery, 1)
	})
}

func TestTakeoverEndsWithTheProcess(t *testing.T) {
	for name, test := range map[string]struct {
		at       time.Duration
		failures int
	}{
		"while bindings settle":     {takeover.Settle / 2, 0},
		"while lists fail":          {takeover.Settle + 10*takeover.RetryAfter + takeover.RetryAfter/2, 1000},
		"while the cache is behind": {takeover.Settle + time.Minute, 0},
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

// It is the beginning of a term, no part of every cycle.
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
