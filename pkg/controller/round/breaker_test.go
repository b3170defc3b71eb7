package round

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// breakerEvents records events.
type breakerEvents []string

func (e *breakerEvents) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	*e = append(*e, kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

// A change of the breaker is one event, and the metric shows it.
func TestBreakerReport(t *testing.T) {
	RegisterMetrics()
	var got breakerEvents
	p := &Planner{clients: Clients{Recorder: &got}}
	for i, open := range []bool{false, true, true, false, false} {
		state := interruption.Breaker{Open: open}
		if open {
			state.Unconfirmed = make([]*snapshot.Node, 10+i)
		}
		p.reportBreaker(state)
		want := 0.0
		if open {
			want = 1
		}
		if value, err := testutil.GetGaugeMetricValue(breakerOpen); err != nil || value != want {
			t.Errorf("%d: the metric is %v, %v, want %v", i, value, err, want)
		}
	}
	want := breakerEvents{
		"Warning BreakerOpened 11 nodes have a reclaim signal that nothing else confirms: no pod is deleted there, and pods without a ready replacement are evicted one at a time at most",
		"Normal BreakerClosed No node has an unconfirmed reclaim signal",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Pods that stay for hours while the breaker is open do not cause four rounds a second.
func TestIsMoving(t *testing.T) {
	now := time.Now()
	move := func(unconfirmed bool, left time.Duration) migration.Move {
		return migration.Move{Unconfirmed: unconfirmed, Deadline: now.Add(left)}
	}
	waiting := []migration.Move{move(true, 0)}
	for name, test := range map[string]struct {
		moves   []migration.Move
		actions []migration.Action
		want    bool
	}{
		"nothing":               {nil, nil, false},
		"a move":                {[]migration.Move{move(false, -time.Minute)}, nil, true},
		"before its deadline":   {[]migration.Move{move(true, time.Second)}, nil, true},
		"waits":                 {waiting, []migration.Action{{Move: waiting[0], Kind: migration.Stay}}, false},
		"waits, and one moves":  {append(waiting, move(false, 0)), nil, true},
		"waits, and is evicted": {waiting, []migration.Action{{Move: waiting[0], Kind: migration.EvictPod}}, true},
		"is restored":           {nil, []migration.Action{{Kind: migration.Restore}}, true},
	} {
		if got := isMoving(now, test.moves, test.actions); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
