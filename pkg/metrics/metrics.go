// Package metrics creates the metrics of this project. Their names begin with spot_aware_scheduler,
// their stability level is ALPHA, and their labels are small closed sets. docs/metrics.md lists
// them.
//
// A metric records nothing before it is registered with legacyregistry.
package metrics

import (
	"k8s.io/component-base/metrics"
)

const prefix = "spot_aware_scheduler"

// NewCounter returns a counter without labels.
func NewCounter(name, help string) *metrics.Counter {
	return metrics.NewCounter(&metrics.CounterOpts{Subsystem: prefix, Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

// NewCounterVec returns a counter with labels.
func NewCounterVec(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Subsystem: prefix, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

// NewGauge returns a gauge without labels.
func NewGauge(name, help string) *metrics.Gauge {
	return metrics.NewGauge(&metrics.GaugeOpts{Subsystem: prefix, Name: name, Help: help, StabilityLevel: metrics.ALPHA})
}

// NewGaugeFunc returns a gauge whose value is measured at a scrape. labels are the same at each.
func NewGaugeFunc(name, help string, labels map[string]string, value func() float64) metrics.GaugeFunc {
	return metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Subsystem: prefix, Name: name, Help: help, ConstLabels: labels, StabilityLevel: metrics.ALPHA,
	}, value)
}

// NewGaugeVec returns a gauge with labels.
func NewGaugeVec(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Subsystem: prefix, Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

// NewHistogram returns a histogram without labels. The bounds of its buckets have the unit in name.
func NewHistogram(name, help string, buckets []float64) *metrics.Histogram {
	return metrics.NewHistogram(histogramOptions(name, help, buckets))
}

// NewHistogramVec returns a histogram with labels. The bounds of its buckets have the unit in name.
func NewHistogramVec(name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
	return metrics.NewHistogramVec(histogramOptions(name, help, buckets), labels)
}

func histogramOptions(name, help string, buckets []float64) *metrics.HistogramOpts {
	return &metrics.HistogramOpts{Subsystem: prefix, Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA}
}

// NewDesc returns the description of a metric whose collector knows its values at a scrape.
func NewDesc(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc(prefix+"_"+name, help, labels, nil, metrics.ALPHA, "")
}

// SendGauge sends the value of a gauge with a description to the channel of a scrape.
func SendGauge(ch chan<- metrics.Metric, desc *metrics.Desc, value float64, labels ...string) {
	ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
}
