package round

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// breakerEvents records events.
type breakerEvents []string

func (e *breakerEvents) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	*e = append(*e, kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

func TestMain(m *testing.M) {
	RegisterMetrics()
	os.Exit(m.Run())
}

// A change of the breaker is one event, and the metric shows it.
func TestBreakerReport(t *testing.T) {
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

// Each case is a round after the rounds of the cases before it.
func TestReclaimReport(t *testing.T) {
	taint := func(confirmation string) interruption.Reclaim {
		return interruption.Reclaim{Signal: "taint example.com/gone", Confirmation: confirmation}
	}
	end := time.Unix(1800000000, 0)
	closed := safety.ForcedBreaker{State: safety.BreakerClosed}
	until := safety.ForcedBreaker{State: safety.BreakerOpen, Switch: safety.Switch{Until: &metav1.Time{Time: end}}}
	p := &Planner{reclaims: map[interruption.Reclaim]int{}}
	for _, test := range []struct {
		name     string
		reclaims map[interruption.Reclaim]int
		forced   *safety.ForcedBreaker
		want     []float64 // by node, not confirmed, forced open, forced closed, and until when
	}{
		{"nothing", nil, nil, []float64{0, 0, 0, 0, 0}},
		{"two kinds", map[interruption.Reclaim]int{taint(interruption.ConfirmedByNode): 2, taint(interruption.NotConfirmed): 3}, &closed,
			[]float64{2, 3, 0, 1, 0}},
		{"one kind ended", map[interruption.Reclaim]int{taint(interruption.NotConfirmed): 4}, &until, []float64{0, 4, 1, 0, 1800000000}},
		{"all ended", nil, nil, []float64{0, 0, 0, 0, 0}},
	} {
		p.reportReclaims(interruption.Breaker{SpotNodes: 7, Reclaims: test.reclaims}, test.forced)
		var got []float64
		for _, gauge := range []metrics.GaugeMetric{
			reclaimNodes.WithLabelValues("taint example.com/gone", "node"), reclaimNodes.WithLabelValues("taint example.com/gone", "none"),
			breakerForced.WithLabelValues("open"), breakerForced.WithLabelValues("closed"), breakerForcedUntil,
		} {
			value, err := testutil.GetGaugeMetricValue(gauge)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, value)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if value, err := testutil.GetGaugeMetricValue(spotNodes); err != nil || value != 7 {
			t.Errorf("%s: %v spot nodes, %v, want 7", test.name, value, err)
		}
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
