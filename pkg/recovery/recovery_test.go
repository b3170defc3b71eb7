package recovery_test

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

func TestRecover(t *testing.T) {
	var log bytes.Buffer
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	t.Cleanup(klog.ClearLogger)
	recovery.RegisterMetrics()

	if got := work(nil); got != "done" || log.Len() > 0 {
		t.Errorf("without a panic: %q, log %q; want the result and an empty log", got, log.String())
	}
	if got := work("no owner"); got != "" {
		t.Errorf("after a panic: %q, want the zero result", got)
	}
	for _, want := range []string{"panic: no owner", `object="shop/web"`, `unit="workload"`, "recovery_test.work"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q not in the log:\n%s", want, log.String())
		}
	}
	const want = `
# HELP spot_aware_scheduler_panics_total [ALPHA] Recovered panics, each a bug, by the unit of work: 'node', 'pod', 'workload', or 'round' if no smaller unit recovered it.
# TYPE spot_aware_scheduler_panics_total counter
spot_aware_scheduler_panics_total{unit="node"} 0
spot_aware_scheduler_panics_total{unit="pod"} 0
spot_aware_scheduler_panics_total{unit="round"} 0
spot_aware_scheduler_panics_total{unit="workload"} 1
`
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), "spot_aware_scheduler_panics_total"); err != nil {
		t.Error(err)
	}
}

func work(fails any) (result string) {
	defer recovery.Recover(recovery.Workload, klog.KRef("shop", "web"))
	if fails != nil {
		panic(fails)
	}
	return "done"
}
