// Package recovery prevents a panic about one object from stopping the work on all others. Every
// recovered panic is a bug, so the package logs its stack.
package recovery

import (
	"fmt"
	"runtime/debug"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
)

// Unit is the unit of work in which a panic occurred. It is the label of the metric.
type Unit string

// All values of Unit.
const (
	Node     Unit = "node"
	Pod      Unit = "pod"
	Workload Unit = "workload"
	// Round is a whole round of the controller.
	Round Unit = "round"
)

var units = []Unit{Node, Pod, Workload, Round}

var panics = metrics.NewCounterVec("panics_total",
	"Recovered panics, each a bug, by the unit of work: 'node', 'pod', 'workload', or 'round' if no smaller unit recovered it.", "unit")

// RegisterMetrics registers the metric. It must be called at most once. All series start at 0.
func RegisterMetrics() {
	legacyregistry.MustRegister(panics)
	for _, unit := range units {
		panics.WithLabelValues(string(unit))
	}
}

// Recover recovers a panic of the function that defers it, logs it with the object and the stack,
// and counts it. The function then returns the current values of its results. To avoid
// half-finished changes, it must change state only after everything that can fail.
func Recover(unit Unit, object klog.ObjectRef) {
	if value := recover(); value != nil {
		_ = Report(unit, object, value)
	}
}

// Guard calls step for an object. If step panics, Guard reports it as Recover does, and ok is
// false.
func Guard(unit Unit, object klog.ObjectRef, step func()) (ok bool) {
	defer Recover(unit, object)
	step()
	return true
}

// Report logs and counts the value of a panic that the caller recovered, and returns it as an
// error. The deferred function must call it directly, because otherwise the logged stack is not
// that of the panic.
func Report(unit Unit, object klog.ObjectRef, value any) error {
	err := fmt.Errorf("panic: %v", value)
	panics.WithLabelValues(string(unit)).Inc()
	klog.Background().Error(err, "Recovered from a panic", "unit", unit, "object", object, "stack", string(debug.Stack()))
	return err
}
