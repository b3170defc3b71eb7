package node

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// The signals that raise the risk of a spot pool. The test lists every built-in signal, so that a
// new signal requires a decision.
func TestInterruptionSignals(t *testing.T) {
	want := map[string]bool{
		"taint spot-aware-scheduler.io/interruption":                                         true,
		"taint aws-node-termination-handler/spot-itn":                                        true,
		"taint aws-node-termination-handler/rebalance-recommendation":                        false,
		"taint aws-node-termination-handler/scheduled-maintenance":                           false,
		"taint aws-node-termination-handler/asg-lifecycle-termination":                       false,
		"taint karpenter.sh/disrupted":                                                       false,
		"taint ToBeDeletedByClusterAutoscaler":                                               false,
		"taint DeletionCandidateOfClusterAutoscaler":                                         false,
		"taint cloud.google.com/impending-node-termination":                                  true,
		"condition VMEventScheduled=True (Preempt)":                                          true,
		"condition VMEventScheduled=True":                                                    false,
		"taint remediator.kubernetes.azure.com/unschedulable":                                false,
		"condition PreemptionScheduled=True":                                                 true,
		"condition InstanceExpired=True":                                                     true,
		"taint ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination": true,
		"condition Terminating=True":                                                         true,
		"label autoscaling.cast.ai/draining=spot-interruption":                               true,
		"label autoscaling.cast.ai/draining=spot-prediction":                                 false,
		"condition DrainInProgress=True":                                                     false,
		"condition Drained=True":                                                             false,
		"condition GracefulNodeShutdownInProgress=True":                                      false,
		"condition Ready=False (node is shutting down)":                                      true,
		"condition MaintenancePlanned=True":                                                  false,
		"condition MaintenanceInProgress=True":                                               false,
		"taint node.kubernetes.io/out-of-service":                                            false,
	}
	got := map[string]bool{}
	for _, s := range providers.Signals() {
		got[s.String()] = s.IsInterruption()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interruptions (-want +got):\n%s", diff)
	}
	for class, want := range map[decision.SignalClass]bool{decision.Reclaim: true, decision.Drain: false, decision.Advisory: false} {
		if s := (providers.Signal{Kind: providers.TaintSignal, Key: "example.com/gone", Class: class}); s.IsInterruption() != want {
			t.Errorf("a configured signal of the class %s is an interruption: %t, want %t", class, !want, want)
		}
	}
}

func TestDisruption(t *testing.T) {
	var (
		itn                      = withTaint("aws-node-termination-handler/spot-itn", "")
		maintenance              = withTaint("aws-node-termination-handler/scheduled-maintenance", "")
		karpenter                = withTaint("karpenter.sh/disrupted", "")
		recommended              = withTaint("aws-node-termination-handler/rebalance-recommendation", "")
		deleted                  = func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }
		unreachable              = withCondition(v1.NodeReady, v1.ConditionUnknown, now.Add(-NotReadyReclaimAfter))
		notUnreachableLongEnough = withCondition(v1.NodeReady, v1.ConditionUnknown, now.Add(1-NotReadyReclaimAfter))
	)
	cases := map[string]struct {
		changes []func(*v1.Node)
		want    Disruption
	}{
		"nothing":                        {nil, NotDisrupted},
		"interruption":                   {[]func(*v1.Node){itn}, Reclaimed},
		"drained and interrupted":        {[]func(*v1.Node){karpenter, itn}, Reclaimed},
		"interrupted and deleted":        {[]func(*v1.Node){itn, deleted}, Reclaimed},
		"drained":                        {[]func(*v1.Node){karpenter, deleted}, Voluntary},
		"maintenance":                    {[]func(*v1.Node){maintenance}, Voluntary},
		"unreachable":                    {[]func(*v1.Node){unreachable}, Unreachable},
		"unreachable, not long enough":   {[]func(*v1.Node){notUnreachableLongEnough}, NotDisrupted},
		"recommended, and unreachable":   {[]func(*v1.Node){recommended, unreachable}, Unreachable},
		"drained, and unreachable":       {[]func(*v1.Node){karpenter, unreachable}, Voluntary},
		"deleted, and unreachable":       {[]func(*v1.Node){deleted, unreachable}, Voluntary},
		"in maintenance and unreachable": {[]func(*v1.Node){maintenance, unreachable}, Voluntary},
	}
	reader := &Reader{Policy: builtin, Signals: providers.Signals()}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(spotNodeLabels)
			for _, change := range test.changes {
				change(node)
			}
			if got := reader.Disruption(node, now); got != test.want {
				t.Errorf("Disruption = %d, want %d", got, test.want)
			}
		})
	}
}

// The order in which Karpenter writes distinguishes an interruption from a voluntary disruption.
func TestBeginsInterruption(t *testing.T) {
	states := map[string]func(*v1.Node){
		"plain":     func(*v1.Node) {},
		"labelled":  withLabel("example.com/team", "a"),
		"tainted":   withTaint("karpenter.sh/disrupted", ""),
		"candidate": withTaint("DeletionCandidateOfClusterAutoscaler", ""),
		"deleted":   func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Second)} },
	}
	states["tainted, deleted"] = func(n *v1.Node) { states["tainted"](n); states["deleted"](n) }
	states["candidate, deleted"] = func(n *v1.Node) { states["candidate"](n); states["deleted"](n) }
	states["removed, deleted"] = func(n *v1.Node) { withTaint("ToBeDeletedByClusterAutoscaler", "")(n); states["deleted"](n) }
	states["advised"] = func(n *v1.Node) { // by the controller
		withTaint(spot.InterruptionTaint, "rebalance-recommendation")(n)
		n.Annotations = map[string]string{spot.InterruptionStateAnnotation: `{"class":"advisory","taint":"rebalance-recommendation"}`}
	}
	// Taint and deletion arrive in one event: their order is unknown.
	begin := []string{"candidate, deleted", "deleted", "tainted, deleted"}
	want := map[string][]string{"plain": begin, "labelled": begin, "candidate": begin, "advised": begin}
	reader := &Reader{Policy: builtin, Signals: providers.Signals()}
	got := map[string][]string{}
	for _, from := range slices.Sorted(maps.Keys(states)) {
		for _, to := range slices.Sorted(maps.Keys(states)) {
			before, after := nodeWith(spotNodeLabels), nodeWith(spotNodeLabels)
			states[from](before)
			states[to](after)
			if reader.BeginsInterruption(before, after) {
				got[from] = append(got[from], to)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes that begin an interruption (-want +got):\n%s", diff)
	}
}
