package replicasafety

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// logged captures the log of the plugin at that verbosity. The returned function returns the lines
// since its last call.
func (w *world) logged(verbosity int) (take func() []string) {
	var out bytes.Buffer
	w.ctx = klog.NewContext(w.ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity), textlogger.Output(&out))))
	return func() (lines []string) {
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "] ") // after the time and the source position
			lines = append(lines, line)
		}
		out.Reset()
		return lines
	}
}

// At the default level, a placed pod has one log line. A waiting pod has one line until its reason
// changes.
func TestLogOfAPod(t *testing.T) {
	w := newWorld(t, nil, withAnnotations(map[string]string{spot.FallbackAfterAnnotation: "5s"}, deployment("web", 3, "1"))...)
	w.nodes(spotNode("spot"))
	w.addPods("spot", web("a"))
	take := w.logged(2)
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, take()); diff != "" {
			t.Errorf("%s: logged (-want +got):\n%s", when, diff)
		}
	}
	pod := web("p")
	w.bind(w.try(pod), pod, "spot")
	expect("placed", `"Placed pod" pod="shop/p" workload="shop/web-1" desired=3 floor=1 onDemand=0 spot=1 spotBudget=2 node="spot" capacityType="spot" reason="budget" waited="0s"`)

	w.addPods("spot", pod)
	last := web("q")
	w.try(last)
	const why = "spot budget used up: 2 of at most 2 replicas of shop/web-1 run on spot (waits for on-demand room, may run on any spot node after 5s)"
	expect("no feasible node", `"Pod waiting" pod="shop/q" workload="shop/web-1" desired=3 floor=1 onDemand=0 spot=2 spotBudget=2 reason="`+why+`"`)
	w.try(last)
	expect("still no feasible node")
	w.clock.Step(5 * time.Second)
	w.bind(w.try(last), last, "spot")
	expect("placed", `"Placed pod" pod="shop/q" workload="shop/web-1" desired=3 floor=1 onDemand=0 spot=2 spotBudget=2 node="spot" capacityType="spot" reason="fallback" waited="5s"`)
}

// testdata/plans.txt of package decision has the reasons of plans.
func TestWhyAPodWaits(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want []string
	}{
		"a plan": {web("p"), []string{`"Pod waiting" pod="shop/p" workload="shop/web-1" desired=3 floor=1 onDemand=0 spot=0 spotBudget=2 ` +
			`reason="no feasible node: the pod may run on on-demand and on spot"`}},
		"unknown owner":    {podOf("p", by("ReplicaSet", "gone")), []string{`"Pod waiting" pod="shop/p" reason="owner not known yet: waits for ReplicaSet shop/gone to appear in the cache"`}},
		"without a policy": {podOf("p", by("DaemonSet", "ds")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, deployment("web", 3, "1")...)
			take := w.logged(2)
			w.try(test.pod)
			if diff := cmp.Diff(test.want, take()); diff != "" {
				t.Errorf("logged (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingIsLoggedBelow(t *testing.T) {
	w := newWorld(t, nil, deployment("web", 3, "1")...)
	w.nodes(spotNode("spot"))
	take := w.logged(1)
	for _, name := range []string{"a", "b", "c"} {
		pod := web(name)
		if o := w.try(pod); len(o.feasible) > 0 {
			w.bind(o, pod, "spot")
			w.addPods("spot", pod)
		}
	}
	if lines := take(); len(lines) > 0 {
		t.Errorf("logged %q, want nothing", lines)
	}
}

// This measures the cost of a line that is written, and of a line that is not.
func BenchmarkLogOfAPod(b *testing.B) {
	for _, verbosity := range []int{1, 2} {
		b.Run(fmt.Sprintf("v=%d", verbosity), func(b *testing.B) {
			w := newWorld(b, nil, deployment("web", 3, "1")...)
			w.nodes(spotNode("spot"))
			pod := web("p")
			o := w.try(pod)
			w.must(w.framework.RunReservePluginsReserve(w.ctx, o.state, pod, "spot").AsError())
			ctx := klog.NewContext(w.ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(verbosity), textlogger.Output(io.Discard))))
			b.ReportAllocs()
			for b.Loop() {
				w.plugin.PostBind(ctx, o.state, pod, "spot")
			}
		})
	}
}
