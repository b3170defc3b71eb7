package migration_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// At the default level a refusal is logged once per kind and pod. A repeated refusal is not logged.
func TestLogOfAMove(t *testing.T) {
	w := newWorld()
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	w.sync()
	refuses := true
	w.fail = func(verb, _, _ string) (error, bool) {
		if verb == "evict" && refuses {
			return tooManyRequests(), true
		}
		return nil, false
	}
	b := newBench(w, false)
	var out bytes.Buffer
	ctx := klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(2), textlogger.Output(&out))))
	for range 4 {
		s := b.snapshot()
		these := moves(s, migration.Interruption, start.Add(10*time.Minute), "db-0")
		b.executor.Do(ctx, migration.Plan(s, &room{left: 10}, these, settings, b.executor.Observe(s)))
		b.executor.Wait()
		b.pass(10 * time.Second)
		refuses = w.now.Sub(start) < 30*time.Second
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(line, "] ")
		line, _, _ = strings.Cut(line, " outcome=")
		got = append(got, strings.TrimSpace(line))
	}
	// The fields that depend on the world's node and workload have default values.
	about := ` pod="shop/db-0" action="evict" reason="interruption" way="evict" node="reclaimed" capacityType="on-demand" workload="shop/db"` +
		` desired=1 floor=0 deadline="` + start.Add(10*time.Minute).String() + `"`
	want := []string{`"Action failed, will retry"` + about, `"Evicted pod"` + about + ` why="a replacement fits on node remaining; no surge: it does not belong to a ReplicaSet"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}
