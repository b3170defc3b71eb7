package report_test

import (
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// basic returns the policy of most tests: a floor of 1, and a fallback to spot after 5 minutes.
func basic() *decision.Policy {
	return &decision.Policy{
		Defaults:       decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: 5 * time.Minute, RolloutRelief: 30 * time.Second},
		CapacityLabels: providers.CapacityLabels(),
		LabelGrace:     30 * time.Second,
	}
}

// newView returns a View of a cluster, in the notation of clustertest, under a policy.
func newView(t *testing.T, policy *decision.Policy, cluster string) *report.View {
	t.Helper()
	return viewOf(t, list(t, cluster, lister.Scope{IncludeScaledToZero: true}), policy)
}

// list reads a cluster once.
func list(t *testing.T, cluster string, scope lister.Scope) *lister.Objects {
	t.Helper()
	listed, err := lister.List(t.Context(), listertest.Start(t, clustertest.Objects(cluster)...).Client(), scope)
	if err != nil {
		t.Fatal(err)
	}
	return listed
}

func viewOf(t clustertest.TB, listed *lister.Objects, policy *decision.Policy) *report.View {
	t.Helper()
	return viewWith(t, listed, policy, lister.AssumedGating())
}

// viewWith is like viewOf, for a configuration of the controller.
func viewWith(t clustertest.TB, listed *lister.Objects, policy *decision.Policy, gating controller.Gating) *report.View {
	t.Helper()
	scope := workload.NewScope(clustertest.Profile, gating.Enabled, listed.Factory().Core().V1().Namespaces().Lister())
	snapshot, err := listed.Snapshot(policy, providers.Signals(), scope, clustertest.Now)
	if err != nil {
		t.Fatal(err)
	}
	owners, err := listed.Owners(policy)
	if err != nil {
		t.Fatal(err)
	}
	return &report.View{
		Snapshot: snapshot, Policy: policy, Signals: providers.Signals(), Scope: scope, Gating: gating, Owners: owners,
		TemplatePods: listed.TemplatePods(), Object: listed.Object,
	}
}
