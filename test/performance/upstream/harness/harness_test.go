// Package harness is Kubernetes' benchmark of its scheduler, with this project's plugins
// registered.
package harness

import (
	"flag"
	"fmt"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/narrowsearch"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"

	// The plugins' args, for the scheduler's own decoder.
	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

var testCases = flag.String("test-cases", "", "`file` with the test cases; the paths in it start at the current folder")

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkPerfScheduling runs the test cases of a file. It writes the results to a file in the
// folder of -data-items-dir.
func BenchmarkPerfScheduling(b *testing.B) {
	perf.RunBenchmarkPerfScheduling(b, *testCases, "upstream", frameworkruntime.Registry{
		replicasafety.Name:  replicasafety.NewFactory(nil, &leader.Memory{}),
		spotpreference.Name: spotpreference.New,
	}, perf.WithNodeUpdateFn(searchNarrowly()))
}

// searchNarrowly returns a function that enables narrow searches of each scheduler once, before its
// first pod. The stock profile is not affected, because only ReplicaSafety reads the setting.
func searchNarrowly() perf.NodeUpdateFn {
	enabled := map[*scheduler.Scheduler]bool{}
	return func(_ ktesting.TContext, sched *scheduler.Scheduler, _ *perf.Workload, _ *v1.NodeList) error {
		if !enabled[sched] {
			enabled[sched] = true
			narrowsearch.Enable(sched, nil)
		}
		return nil
	}
}
