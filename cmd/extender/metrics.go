package main

import (
	"crypto/x509"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// askedWithin is how long a client is of interest after it asked: longer than a quiet night, or an alert about its certificate would begin
// anew with every pod. One that has got a new certificate does not come back with the old one, but may ask the other replica from then on.
const askedWithin = 24 * time.Hour

// expiryDesc is of the metric of certificates. docs/metrics.md lists it.
var expiryDesc = metrics.NewDesc("spot_aware_scheduler_extender_certificate_expiry_timestamp_seconds",
	"When a certificate ends, or an authority that signed it, in seconds since 1970, by certificate: serving, which replicas also show each "+
		"other (0: it is not good now), or client, of the scheduler that asked last, unless that was long ago.",
	[]string{"certificate"}, nil, metrics.ALPHA, "")

// expiries collects when certificates end.
type expiries struct {
	metrics.BaseStableCollector
	*certificates
}

// registerMetrics is to be called once.
func (c *certificates) registerMetrics() {
	legacyregistry.CustomMustRegister(&expiries{certificates: c})
}

func (e *expiries) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- expiryDesc }

func (e *expiries) CollectWithStability(ch chan<- metrics.Metric) {
	for certificate, until := range e.ends() {
		ch <- metrics.NewLazyConstMetric(expiryDesc, metrics.GaugeValue, float64(until.Unix()), certificate)
	}
}

// ends returns when certificates end: that to serve with, in 1970 if it is not good now, and that of the client that asked last.
func (c *certificates) ends() map[string]time.Time {
	serving := time.Unix(0, 0)
	if own, err := c.own(); err == nil {
		if until, err := c.verify(chainOf(own), x509.ExtKeyUsageServerAuth, ""); err == nil {
			serving = until
		}
	}
	ends := map[string]time.Time{"serving": serving}
	if asked := c.asked.Load(); asked != nil && c.now().Sub(asked.at) < askedWithin {
		ends["client"] = asked.until
	}
	return ends
}
