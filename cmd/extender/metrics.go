package main

import (
	"time"

	"k8s.io/component-base/metrics"
)

// clientRetention is the time for which a client's certificate is reported after its last request.
// It is longer than a quiet night; otherwise, an alert about the certificate would start again with
// every pod. A client with a renewed certificate no longer uses the old one, but its requests may
// then go to the other replica.
const clientRetention = 24 * time.Hour

// expiryDesc describes the metric of certificates. docs/metrics.md lists it.
var expiryDesc = metrics.NewDesc("spot_aware_scheduler_extender_certificate_expiry_timestamp_seconds",
	"Expiry of a certificate or of the authority that signed it, whichever is first, in seconds since 1970. By certificate: 'serving', "+
		"which replicas also present to each other (0 if it is not valid now), or 'client', of the last "+
		"scheduler that sent a request in the past 24 hours.",
	[]string{"certificate"}, nil, metrics.ALPHA, "")

// expiries collects the expiries of certificates.
type expiries struct {
	metrics.BaseStableCollector
	*certificates
}

func (e *expiries) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- expiryDesc }

func (e *expiries) CollectWithStability(ch chan<- metrics.Metric) {
	for certificate, until := range e.expiryTimes() {
		ch <- metrics.NewLazyConstMetric(expiryDesc, metrics.GaugeValue, float64(until.Unix()), certificate)
	}
}

// expiryTimes returns the expiries of the serving certificate, 1970 if it is not valid now, and of
// the last client.
func (c *certificates) expiryTimes() map[string]time.Time {
	ends := map[string]time.Time{"serving": time.Unix(0, 0)}
	if until, err := c.servingExpiry(); err == nil {
		ends["serving"] = until
	}
	if client := c.lastClient.Load(); client != nil && c.now().Sub(client.at) < clientRetention {
		ends["client"] = client.until
	}
	return ends
}
