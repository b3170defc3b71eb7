package replicasafety

import (
	"sync"

	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/metrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
)

// These are the metrics that only the scheduler has, served by the scheduler's own /metrics
// endpoint. The label profile is the schedulerName of a configured profile.
var (
	decisionDuration = metrics.NewHistogramVec("decision_duration_seconds",
		"Time of PreFilter of ReplicaSafety: find the pod's owner, count its siblings, plan its placement and choose the nodes to "+
			"search. The label search is 'few', 'all', or 'all-after-few' if the pod fit on none of the few nodes.",
		// 1 us to 0.5 s: a warm count takes microseconds. A cold count of 100,000 nodes takes tens
		// of milliseconds.
		basemetrics.ExponentialBuckets(1e-6, 2, 20), "profile", "search")
)

var registerOnce sync.Once

// registerMetrics registers the metrics with the scheduler's registry.
func registerMetrics(cluster *profilemetrics.Cluster) {
	registerOnce.Do(func() { legacyregistry.MustRegister(decisionDuration) })
	profilemetrics.Register(cluster)
	for _, scope := range []placement.Scope{placement.FewNodes, placement.AllNodes, placement.AllAfterFew} {
		decisionDuration.WithLabelValues(cluster.Profile, string(scope))
	}
}
