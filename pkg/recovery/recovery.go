// Package recovery keeps a panic about one object from ending the work on all others. What it recovers is a bug: the stack is logged.
package recovery

import (
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// Unit is what the work was about: the label of the metric.
type Unit string

// Every Unit there is.
const (
	Node     Unit = "node"
	Pod      Unit = "pod"
	Workload Unit = "workload"
	// Round is a whole round of the controller.
	Round Unit = "round"
)

var units = []Unit{Node, Pod, Workload, Round}

// panics counts the recovered panics. docs/metrics.md lists it.
var panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Subsystem: "spot_aware_scheduler",
	Name:      "panics_total",
	Help:      "Panics that were recovered, by what the work was about: node, pod, workload, or round, for one that nothing smaller recovered.",
}, []string{"unit"})

// RegisterMetrics registers the metric, once for a registry. Every series exists from then on, as 0.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(panics)
	for _, unit := range units {
		panics.WithLabelValues(string(unit))
	}
}

// Recover ends a panic of the function that defers it, logs it with the object and the stack, and counts it. That function returns what its
// results are at that moment. It must not leave anything half changed: it changes state after all that can fail.
func Recover(unit Unit, object klog.ObjectRef) {
	if value := recover(); value != nil {
		_ = Report(unit, object, value)
	}
}

// Report logs and counts the value of a panic that the caller recovered, and returns it as an error. It must be called by the deferred
// function, or the stack is not that of the panic.
func Report(unit Unit, object klog.ObjectRef, value any) error {
	err := fmt.Errorf("panic: %v", value)
	panics.WithLabelValues(string(unit)).Inc()
	klog.Background().Error(err, "Recovered from a panic", "unit", unit, "object", object, "stack", string(debug.Stack()))
	return err
}
