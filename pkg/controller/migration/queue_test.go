package migration_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// clientOf returns a client of an API server that answers as handler does.
func clientOf(t *testing.T, config *rest.Config, handler http.HandlerFunc) kubernetes.Interface {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	config.Host = server.URL
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// The executor limits concurrency, starts the most urgent actions first, and drops the queue of an
// older plan.
func TestQueue(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		w.pod(name+"-0", w.statefulSet(name, 1), "reclaimed")
	}
	w.sync()
	b := newBench(w, false)
	release, atWork := make(chan struct{}), make(chan string, 6)
	var busy, most atomic.Int32
	client := clientOf(t, &rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), busy.Add(1)))
		atWork <- path.Base(r.URL.Path)
		<-release
		busy.Add(-1)
		w.WriteHeader(http.StatusNotFound)
	})
	b.executor = execution.New(client, b.recorder, b.clock, execution.Settings{Concurrency: 2, RequestTimeout: time.Minute})
	do := func(ctx context.Context, names ...string) {
		s := b.snapshot()
		b.executor.Do(ctx, migration.Plan(s, &room{left: 10}, moves(s, migration.Heal, time.Time{}, names...), settings, b.executor.Observe(s)))
	}
	ctx, cancel := context.WithCancel(quiet)
	do(ctx, "a-0", "b-0", "c-0", "d-0")
	began := []string{<-atWork, <-atWork}
	do(ctx, "a-0", "b-0", "e-0", "f-0")
	release <- struct{}{}
	began = append(began, <-atWork)
	cancel()
	close(release)
	b.executor.Wait()
	slices.Sort(began)
	if diff := cmp.Diff([]string{"a-0", "b-0", "e-0"}, began); diff != "" || most.Load() != 2 {
		t.Errorf("at most %d at a time, want 2; started (-want +got):\n%s", most.Load(), diff)
	}
}

// A controller that stops waits for its requests: an aborted eviction would use its
// PodDisruptionBudget for two minutes.
func TestEndsAfterItsRequests(t *testing.T) {
	w := newWorld(t)
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	w.sync()
	b := newBench(w, false)
	requested, answer := make(chan struct{}), make(chan struct{})
	client := clientOf(t, &rest.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		requested <- struct{}{}
		<-answer
		w.WriteHeader(http.StatusNotFound)
	})
	b.executor = execution.New(client, b.recorder, b.clock, execution.Settings{Concurrency: 1, RequestTimeout: time.Minute})
	s := b.snapshot()
	ctx, cancel := context.WithCancel(quiet)
	b.executor.Do(ctx, migration.Plan(s, &room{left: 10}, moves(s, migration.Heal, time.Time{}, "db-0"), settings, b.executor.Observe(s)))
	<-requested
	cancel()
	ended := make(chan struct{})
	go func() {
		b.executor.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		t.Error("ended with a request in flight")
	case <-time.After(100 * time.Millisecond):
	}
	close(answer)
	<-ended
}

// Evictions that are charged to one PodDisruptionBudget are sequential. Others are concurrent.
func TestOneEvictionOfABudgetAtATime(t *testing.T) {
	var mu sync.Mutex
	now, most, atOnce, evicted := map[string]int{}, map[string]int{}, 0, 0
	client := clientOf(t, &rest.Config{QPS: -1}, func(w http.ResponseWriter, request *http.Request) {
		app, _, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/api/v1/namespaces/"+namespace+"/pods/"), "-")
		mu.Lock()
		now[app]++
		most[app] = max(most[app], now[app])
		atOnce = max(atOnce, len(now))
		mu.Unlock()
		time.Sleep(5 * time.Millisecond) // long enough for another to start
		mu.Lock()
		if now[app]--; now[app] == 0 {
			delete(now, app)
		}
		evicted++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	})
	executor := execution.New(client, &recorder{}, clocktesting.NewFakePassiveClock(start),
		execution.Settings{Concurrency: 10, RequestTimeout: time.Minute})
	var actions []migration.Action
	for app, budget := range map[string]types.UID{"web": "web-budget", "api": "api-budget", "free": ""} {
		w := &snapshot.Workload{Key: workload.OwnerKey{UID: types.UID(app)}}
		for i := range 5 {
			name := fmt.Sprintf("%s-%d", app, i)
			actions = append(actions, migration.Action{Kind: migration.EvictPod, Method: migration.Surge, DisruptionBudget: budget, Move: migration.Move{Pod: &snapshot.Pod{
				Pod:      &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}},
				Workload: w, Revision: &snapshot.Revision{Key: workload.OwnerKey{UID: types.UID(app)}, Workload: w},
			}}})
		}
	}
	executor.Do(t.Context(), actions)
	executor.Wait()
	if most["web"] != 1 || most["api"] != 1 || most["free"] < 2 || atOnce < 2 || evicted != len(actions) {
		t.Errorf("%d evictions of %d, of %d apps at once, and at most so many of each: %v", evicted, len(actions), atOnce, most)
	}
}

// actionOn returns an action for a pod of a workload of its own.
func actionOn(kind migration.Kind, namespace, name string) migration.Action {
	w := &snapshot.Workload{Key: workload.OwnerKey{Namespace: namespace, UID: types.UID(name)}}
	a := migration.Action{Kind: kind, Method: migration.Surge}
	a.Pod = &snapshot.Pod{
		Pod:      &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}},
		Workload: w, Revision: &snapshot.Revision{Key: w.Key, Workload: w},
	}
	return a
}

// Thousands of actions of one namespace, or of one kind, that hang do not delay others.
func TestHangingActionsDelayNoOthers(t *testing.T) {
	const hanging = 1000
	for name, test := range map[string]struct {
		namespace func(int) string // of the hanging evictions
		others    []migration.Action
	}{
		"of a namespace": {
			func(int) string { return "a" },
			[]migration.Action{actionOn(migration.EvictPod, "b", "web"), actionOn(migration.DeletePod, "b", "web-1")},
		},
		"of a kind": {
			func(i int) string { return fmt.Sprint("a", i) },
			[]migration.Action{actionOn(migration.DeletePod, "b", "web"), actionOn(migration.Forget, "b", "web-1")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan struct{})
			done := make(chan string, len(test.others))
			client := clientOf(t, &rest.Config{QPS: -1}, func(w http.ResponseWriter, request *http.Request) {
				if strings.Contains(request.URL.Path, "/namespaces/a") {
					<-end
				} else {
					done <- request.URL.Path
				}
				w.WriteHeader(http.StatusNotFound)
			})
			executor := execution.New(client, &recorder{}, clocktesting.NewFakePassiveClock(start),
				execution.Settings{Concurrency: 2, RequestTimeout: time.Minute})
			var actions []migration.Action
			for i := range hanging {
				actions = append(actions, actionOn(migration.EvictPod, test.namespace(i), fmt.Sprint("web-", i)))
			}
			ctx, cancel := context.WithCancel(quiet)
			executor.Do(ctx, append(actions, test.others...))
			for i := range test.others {
				select {
				case <-done:
				case <-time.After(10 * time.Second):
					t.Errorf("%d of %d other actions are performed", i, len(test.others))
				}
			}
			cancel()
			close(end)
			executor.Wait()
		})
	}
}
