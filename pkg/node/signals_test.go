package node

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

func withTaint(key, value string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffectNoSchedule})
	}
}

func withCondition(kind v1.NodeConditionType, status v1.ConditionStatus, since time.Time) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(since)})
	}
}

// withShutdown sets the condition of a kubelet that ends the pods of its node.
func withShutdown(n *v1.Node) {
	withCondition(v1.NodeReady, v1.ConditionFalse, now)(n)
	n.Status.Conditions[0].Message = "node is shutting down"
}

// withEvent sets the condition of AKS for a scheduled event.
func withEvent(reason, message string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{
			Type: "VMEventScheduled", Status: v1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)})
	}
}

func withLabel(key, value string) func(*v1.Node) {
	return func(n *v1.Node) {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = value
	}
}

// One case for each built-in signal, on spot nodes.
func TestSignals(t *testing.T) {
	cases := map[string]struct {
		node       func(*v1.Node)
		want       decision.SignalClass
		wantNotice time.Duration
	}{
		"own":                       {withTaint("spot-aware-scheduler.io/interruption", "by-hand"), decision.Reclaim, 0},
		"own, without a reason":     {withTaint("spot-aware-scheduler.io/interruption", ""), decision.Reclaim, 0},
		"NTH, spot interruption":    {withTaint("aws-node-termination-handler/spot-itn", "x"), decision.Reclaim, 2 * time.Minute},
		"NTH, rebalance":            {withTaint("aws-node-termination-handler/rebalance-recommendation", "x"), decision.Advisory, 0},
		"NTH, maintenance":          {withTaint("aws-node-termination-handler/scheduled-maintenance", "x"), decision.Reclaim, 0},
		"NTH, lifecycle hook":       {withTaint("aws-node-termination-handler/asg-lifecycle-termination", "x"), decision.Reclaim, 0},
		"Karpenter":                 {withTaint("karpenter.sh/disrupted", ""), decision.Drain, 0},
		"autoscaler, to be deleted": {withTaint("ToBeDeletedByClusterAutoscaler", "1767225600"), decision.Drain, 0},
		"autoscaler, candidate":     {withTaint("DeletionCandidateOfClusterAutoscaler", "1767225600"), decision.Advisory, 0},
		"GCP":                       {withTaint("cloud.google.com/impending-node-termination", ""), decision.Reclaim, 30 * time.Second},
		"Azure, by the message":     {withEvent("VMEventScheduled", "Preempt Scheduled: Sat, 01 Aug 2026 05:41:02 GMT"), decision.Reclaim, 30 * time.Second},
		"Azure, by the reason":      {withEvent("PreemptScheduled", ""), decision.Reclaim, 30 * time.Second},
		"Azure, Freeze":             {withEvent("VMEventScheduled", "Freeze Scheduled"), decision.Advisory, 0},
		"Azure, Reboot":             {withEvent("VMEventScheduled", "Reboot Scheduled"), decision.Advisory, 0},
		"Azure, Redeploy":           {withEvent("RedeployScheduled", ""), decision.Advisory, 0},
		"Azure, Terminate":          {withEvent("VMEventScheduled", "Terminate Scheduled"), decision.Advisory, 0},
		"Azure, no event type":      {withCondition("VMEventScheduled", v1.ConditionTrue, now), decision.Advisory, 0},
		"Azure, nothing scheduled":  {withCondition("VMEventScheduled", v1.ConditionFalse, now), decision.NoSignal, 0},
		"AKS":                       {withTaint("remediator.kubernetes.azure.com/unschedulable", ""), decision.Drain, 0},
		"Azure, preemption only":    {withCondition("PreemptionScheduled", v1.ConditionTrue, now), decision.Reclaim, 30 * time.Second},
		"ACK":                       {withCondition("InstanceExpired", v1.ConditionTrue, now), decision.Reclaim, 5 * time.Minute},
		"ACK, unknown":              {withCondition("InstanceExpired", v1.ConditionUnknown, now), decision.NoSignal, 0},
		"OKE":                       {withTaint("ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", ""), decision.Reclaim, 0},
		"OpenShift":                 {withCondition("Terminating", v1.ConditionTrue, now), decision.Reclaim, 2 * time.Minute},
		"OpenShift, false":          {withCondition("Terminating", v1.ConditionFalse, now), decision.NoSignal, 0},
		"CAST, interruption":        {withLabel("autoscaling.cast.ai/draining", "spot-interruption"), decision.Drain, 0},
		"CAST, prediction":          {withLabel("autoscaling.cast.ai/draining", "spot-prediction"), decision.Drain, 0},
		"CAST, other":               {withLabel("autoscaling.cast.ai/draining", "manual"), decision.NoSignal, 0},
		"drain in progress":         {withCondition("DrainInProgress", v1.ConditionTrue, now), decision.Drain, 0},
		"drain has ended":           {withCondition("DrainInProgress", v1.ConditionFalse, now), decision.NoSignal, 0},
		"drained":                   {withCondition("Drained", v1.ConditionTrue, now), decision.Drain, 0},
		"shutdown in progress":      {withCondition("GracefulNodeShutdownInProgress", v1.ConditionTrue, now), decision.Drain, 0},
		"shutdown has ended":        {withCondition("GracefulNodeShutdownInProgress", v1.ConditionFalse, now), decision.NoSignal, 0},
		"a kubelet that shuts down": {withShutdown, decision.Reclaim, 30 * time.Second},
		"a reboot after a cordon": {func(n *v1.Node) {
			withShutdown(n)
			n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnschedulable, TimeAdded: &metav1.Time{Time: now.Add(-time.Minute)}}}
		}, decision.Drain, 30 * time.Second},
		"not ready for another reason": {withCondition(v1.NodeReady, v1.ConditionFalse, now), decision.NoSignal, 0},
		"a readiness taint":            {withTaint("readiness.k8s.io/acme.com/network-unavailable", "pending"), decision.NoSignal, 0},
		"maintenance planned":          {withCondition("MaintenancePlanned", v1.ConditionTrue, now), decision.Advisory, 0},
		"maintenance in progress":      {withCondition("MaintenanceInProgress", v1.ConditionTrue, now), decision.Advisory, 0},
		"out of service":               {withTaint("node.kubernetes.io/out-of-service", "nodeshutdown"), decision.Drain, 0},
		"nothing":                      {func(*v1.Node) {}, decision.NoSignal, 0},
		"an unknown taint":             {withTaint("example.com/dedicated", "gpu"), decision.NoSignal, 0},
		"cordoned only":                {func(n *v1.Node) { n.Spec.Unschedulable = true; withTaint(v1.TaintNodeUnschedulable, "")(n) }, decision.NoSignal, 0},
		"being deleted":                {func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }, decision.Drain, 0},
	}
	signals := providers.Signals()
	reader := &Reader{Policy: builtin, Signals: signals}
	covered := map[int]bool{}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(maps.Clone(spotNodeLabels))
			test.node(node)
			got, until := reader.Read(node, now)
			if diff := cmp.Diff(test.want, got.Signal); diff != "" {
				t.Errorf("Signal (-want +got):\n%s", diff)
			}
			if !until.IsZero() {
				t.Errorf("until = %v, want zero", until)
			}
			var notice time.Duration
			for i := range signals {
				if signals[i].IsOn(node) {
					covered[i], notice = true, max(notice, signals[i].Notice)
				}
			}
			if notice != test.wantNotice {
				t.Errorf("notice = %v, want %v", notice, test.wantNotice)
			}
		})
	}
	for i, s := range signals {
		if !covered[i] {
			t.Errorf("no case for the built-in signal %s %s=%s", s.Kind, s.Key, s.Value)
		}
		if s.Class != decision.Drain && (s.SparesPods || s.Termination != "") {
			t.Errorf("%s: SparesPods and Termination have no effect on a signal of class %s", s.String(), s.Class)
		}
	}
}

// On an on-demand node, only the project's own signal, maintenance and configured signals have the
// class reclaim. All other signals that announce the end of a spot node are advisory there.
func TestSignalsOfOnDemandNodes(t *testing.T) {
	reader := &Reader{Policy: builtin, Signals: append(providers.Signals(),
		providers.Signal{Kind: providers.TaintSignal, Key: "example.com/gone", Class: decision.Reclaim},
		providers.Signal{Kind: providers.TaintSignal, Key: "example.com/gone-if-spot", Class: decision.Reclaim, OnlySpot: true},
		providers.Signal{Kind: providers.TaintSignal, Key: "example.com/drained-if-spot", Class: decision.Drain, OnlySpot: true},
		providers.Signal{Kind: providers.ConditionSignal, Key: "InstanceExpired", Value: "True", Mentions: "by hand", Class: decision.Reclaim},
	)}
	cases := map[string]struct {
		node func(*v1.Node)
		want decision.SignalClass
	}{
		"own":                         {withTaint(spot.InterruptionTaint, "by-hand"), decision.Reclaim},
		"NTH, maintenance":            {withTaint("aws-node-termination-handler/scheduled-maintenance", "x"), decision.Reclaim},
		"NTH, lifecycle hook":         {withTaint("aws-node-termination-handler/asg-lifecycle-termination", "x"), decision.Reclaim},
		"NTH, spot interruption":      {withTaint("aws-node-termination-handler/spot-itn", "x"), decision.Advisory},
		"GCP":                         {withTaint("cloud.google.com/impending-node-termination", ""), decision.Advisory},
		"Azure, Preempt":              {withEvent("VMEventScheduled", "Preempt Scheduled"), decision.Advisory},
		"Azure, Freeze":               {withEvent("VMEventScheduled", "Freeze Scheduled"), decision.Advisory},
		"ACK":                         {withCondition("InstanceExpired", v1.ConditionTrue, now), decision.Advisory},
		"OKE":                         {withTaint("ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", ""), decision.Advisory},
		"OpenShift":                   {withCondition("Terminating", v1.ConditionTrue, now), decision.Advisory},
		"Karpenter":                   {withTaint("karpenter.sh/disrupted", ""), decision.Drain},
		"configured":                  {withTaint("example.com/gone", ""), decision.Reclaim},
		"configured, for spot":        {withTaint("example.com/gone-if-spot", ""), decision.Advisory},
		"configured, drain, for spot": {withTaint("example.com/drained-if-spot", ""), decision.Advisory},
		"configured over a built-in one": {func(n *v1.Node) {
			withCondition("InstanceExpired", v1.ConditionTrue, now)(n)
			n.Status.Conditions[len(n.Status.Conditions)-1].Message = "ended by hand"
		}, decision.Reclaim},
		"unreachable for an hour": {withCondition(v1.NodeReady, v1.ConditionUnknown, now.Add(-time.Hour)), decision.NoSignal},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(map[string]string{spot.CapacityLabel: "on-demand"})
			test.node(node)
			if got, _ := reader.Read(node, now); got.Signal != test.want {
				t.Errorf("Signal = %s, want %s", got.Signal, test.want)
			}
		})
	}
}

// A signal that only spot nodes get proves that a node without a capacity label is spot. Read and
// Capacity agree.
func TestSpotNotice(t *testing.T) {
	onDemand := decision.Capacity{Type: decision.OnDemand, Source: decision.FromDefault}
	proven := decision.Capacity{Type: decision.Spot, Source: decision.FromSignal}
	both := func(changes ...func(*v1.Node)) func(*v1.Node) {
		return func(n *v1.Node) {
			for _, change := range changes {
				change(n)
			}
		}
	}
	itn := withTaint("aws-node-termination-handler/spot-itn", "x")
	for name, test := range map[string]struct {
		node func(*v1.Node)
		want decision.Node
	}{
		"nothing":      {func(*v1.Node) {}, decision.Node{Capacity: onDemand}},
		"spot notice":  {itn, decision.Node{Capacity: proven, Signal: decision.Reclaim}},
		"preemption":   {withEvent("", "Preempt Scheduled: now"), decision.Node{Capacity: proven, Signal: decision.Reclaim}},
		"a new signal": {withCondition("PreemptionScheduled", v1.ConditionTrue, now), decision.Node{Capacity: proven, Signal: decision.Reclaim}},
		"a recommendation": {withTaint("aws-node-termination-handler/rebalance-recommendation", ""),
			decision.Node{Capacity: proven, Signal: decision.Advisory}},
		"CAST AI":           {withLabel("autoscaling.cast.ai/draining", "spot-interruption"), decision.Node{Capacity: proven, Signal: decision.Drain}},
		"a reboot":          {withEvent("", "Reboot Scheduled: now"), decision.Node{Capacity: onDemand, Signal: decision.Advisory}},
		"a scale-in":        {withTaint("aws-node-termination-handler/asg-lifecycle-termination", ""), decision.Node{Capacity: onDemand, Signal: decision.Reclaim}},
		"a drain":           {withTaint("karpenter.sh/disrupted", ""), decision.Node{Capacity: onDemand, Signal: decision.Drain}},
		"a signal of yours": {withTaint("example.com/gone-if-spot", ""), decision.Node{Capacity: onDemand, Signal: decision.Advisory}},
		"labelled on-demand": {both(itn, withLabel(spot.CapacityLabel, "on-demand")),
			decision.Node{Capacity: decision.Capacity{Type: decision.OnDemand, Source: decision.FromLabel}, Signal: decision.Advisory}},
		"labelled by a provisioner": {both(itn, withLabel("karpenter.sh/capacity-type", "on-demand")),
			decision.Node{Capacity: decision.Capacity{Type: decision.OnDemand, Source: decision.FromAlias}, Signal: decision.Advisory}},
		"labelled spot": {both(itn, withLabel(spot.CapacityLabel, "spot")),
			decision.Node{Capacity: decision.Capacity{Type: decision.Spot, Source: decision.FromLabel}, Signal: decision.Reclaim}},
		"unreachable": {both(itn, withCondition(v1.NodeReady, v1.ConditionUnknown, now.Add(-time.Hour))), decision.Node{Capacity: proven, Signal: decision.Reclaim}},
	} {
		t.Run(name, func(t *testing.T) {
			signals := append(providers.Signals(),
				providers.Signal{Kind: providers.TaintSignal, Key: "example.com/gone-if-spot", Class: decision.Reclaim, OnlySpot: true})
			reader := &Reader{Policy: &decision.Policy{CapacityLabels: providers.CapacityLabels()}, Signals: signals}
			node := nodeWith(nil)
			test.node(node)
			got, _ := reader.Read(node, now)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			if capacity := reader.Capacity(node, now); capacity != got.Capacity {
				t.Errorf("Capacity is %+v, but Read returns %+v", capacity, got.Capacity)
			}
			class := decision.NoSignal
			for _, a := range reader.Announcements(node, got.Capacity.Type, now) {
				class = max(class, a.Class)
			}
			if class != got.Signal {
				t.Errorf("Announcements have class %s, but Read returns %s", class, got.Signal)
			}
		})
	}
}

func TestTaintEffectDoesNotMatter(t *testing.T) {
	reader := &Reader{Policy: builtin, Signals: providers.Signals()}
	for _, effect := range []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute} {
		node := nodeWith(nil)
		node.Spec.Taints = []v1.Taint{{Key: spot.InterruptionTaint, Effect: effect}}
		if got, _ := reader.Read(node, now); got.Signal != decision.Reclaim {
			t.Errorf("effect %s: Signal = %s, want reclaim", effect, got.Signal)
		}
	}
}

// If a node has several signals, the highest class counts, regardless of their order.
func TestWorstSignalWins(t *testing.T) {
	var (
		advisory    = withTaint("DeletionCandidateOfClusterAutoscaler", "")
		drain       = withTaint("karpenter.sh/disrupted", "")
		reclaim     = withEvent("VMEventScheduled", "Preempt Scheduled")
		deleted     = func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }
		unreachable = withCondition(v1.NodeReady, v1.ConditionUnknown, now.Add(-time.Hour))
	)
	cases := map[string]struct {
		signals []func(*v1.Node)
		want    decision.SignalClass
	}{
		"advisory and drain":                     {[]func(*v1.Node){advisory, drain}, decision.Drain},
		"drain and advisory":                     {[]func(*v1.Node){drain, advisory}, decision.Drain},
		"all three":                              {[]func(*v1.Node){advisory, drain, reclaim}, decision.Reclaim},
		"deleted and advisory":                   {[]func(*v1.Node){deleted, advisory}, decision.Drain},
		"deleted and reclaimed":                  {[]func(*v1.Node){deleted, reclaim}, decision.Reclaim},
		"advisory, and unreachable for too long": {[]func(*v1.Node){advisory, unreachable}, decision.Reclaim},
		"drained, and unreachable for too long":  {[]func(*v1.Node){drain, unreachable}, decision.Reclaim},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(spotNodeLabels)
			for _, signal := range test.signals {
				signal(node)
			}
			signals := providers.Signals()
			reader := &Reader{Policy: builtin, Signals: signals}
			if got, _ := reader.Read(node, now); got.Signal != test.want {
				t.Errorf("Signal = %s, want %s", got.Signal, test.want)
			}
		})
	}
}

func TestExtendedSignals(t *testing.T) {
	reader := &Reader{Policy: builtin, Signals: append(providers.Signals(),
		providers.Signal{Kind: providers.TaintSignal, Key: "example.com/retiring-soon", Value: "now", Class: decision.Reclaim},
		providers.Signal{Kind: providers.ConditionSignal, Key: "Healthy", Value: "False", Class: decision.Drain},
		providers.Signal{Kind: providers.LabelSignal, Key: "example.com/retiring", Class: decision.Advisory},
		providers.Signal{Kind: providers.AnnotationSignal, Key: "example.com/maintenance", Value: "tonight", Class: decision.Drain},
	)}
	annotated := func(value string) func(*v1.Node) {
		return func(n *v1.Node) { n.Annotations = map[string]string{"example.com/maintenance": value} }
	}
	cases := map[string]struct {
		node func(*v1.Node)
		want decision.SignalClass
	}{
		"taint":                       {withTaint("example.com/retiring-soon", "now"), decision.Reclaim},
		"taint of another value":      {withTaint("example.com/retiring-soon", "later"), decision.NoSignal},
		"condition":                   {withCondition("Healthy", v1.ConditionFalse, now), decision.Drain},
		"condition, other status":     {withCondition("Healthy", v1.ConditionTrue, now), decision.NoSignal},
		"label, any value":            {withLabel("example.com/retiring", "any"), decision.Advisory},
		"label, empty value":          {withLabel("example.com/retiring", ""), decision.Advisory},
		"annotation":                  {annotated("tonight"), decision.Drain},
		"annotation of another value": {annotated("tomorrow"), decision.NoSignal},
		"a built-in one still counts": {withTaint("karpenter.sh/disrupted", ""), decision.Drain},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(nil)
			test.node(node)
			if got, _ := reader.Read(node, now); got.Signal != test.want {
				t.Errorf("Signal = %s, want %s", got.Signal, test.want)
			}
		})
	}
}

// Facts that change only with time: an unreachable spot node counts as lost, and the label grace
// ends. until is the exact time of the change.
func TestReadUntil(t *testing.T) {
	created := func(age time.Duration) func(*v1.Node) {
		return func(n *v1.Node) { n.CreationTimestamp = metav1.NewTime(now.Add(-age)) }
	}
	unreachable := func(status v1.ConditionStatus, since time.Duration) func(*v1.Node) {
		return withCondition(v1.NodeReady, status, now.Add(-since))
	}
	settling := decision.Capacity{Type: decision.Spot, Source: decision.Settling}
	onSpot := decision.Capacity{Type: decision.Spot, Source: decision.FromLabel}
	cases := map[string]struct {
		labels    map[string]string
		node      []func(*v1.Node)
		want      decision.Node
		wantUntil time.Duration // from now; 0 for never
	}{
		"spot, unknown for 10 s": {spotNodeLabels, []func(*v1.Node){unreachable(v1.ConditionUnknown, 10*time.Second)},
			decision.Node{Capacity: onSpot}, 30 * time.Second},
		"spot, reports NotReady for an hour": {spotNodeLabels, []func(*v1.Node){unreachable(v1.ConditionFalse, time.Hour)},
			decision.Node{Capacity: onSpot}, 0},
		"spot, unknown for 39.999 s": {spotNodeLabels, []func(*v1.Node){unreachable(v1.ConditionUnknown, 39999*time.Millisecond)},
			decision.Node{Capacity: onSpot}, time.Millisecond},
		"spot, unknown for 40 s": {spotNodeLabels, []func(*v1.Node){unreachable(v1.ConditionUnknown, 40*time.Second)},
			decision.Node{Capacity: onSpot, Signal: decision.Reclaim}, 0},
		"spot, unknown for an hour": {spotNodeLabels, []func(*v1.Node){unreachable(v1.ConditionUnknown, time.Hour)},
			decision.Node{Capacity: onSpot, Signal: decision.Reclaim}, 0},
		"spot, ready for an hour": {spotNodeLabels, []func(*v1.Node){unreachable(v1.ConditionTrue, time.Hour)},
			decision.Node{Capacity: onSpot}, 0},
		"spot, not reported yet": {spotNodeLabels, nil, decision.Node{Capacity: onSpot}, 0},
		"spot, unknown for 10 s, and reclaimed anyway": {spotNodeLabels,
			[]func(*v1.Node){unreachable(v1.ConditionUnknown, 10*time.Second), withTaint(spot.InterruptionTaint, "")},
			decision.Node{Capacity: onSpot, Signal: decision.Reclaim}, 0},
		"on-demand, unknown for 10 s": {onDemandLabels, []func(*v1.Node){unreachable(v1.ConditionUnknown, 10*time.Second)},
			decision.Node{Capacity: decision.Capacity{Type: decision.OnDemand, Source: decision.FromLabel}}, 0},
		"unlabelled and young": {nil, []func(*v1.Node){created(10 * time.Second)},
			decision.Node{Capacity: settling}, 20 * time.Second},
		"unlabelled, age equals the grace": {nil, []func(*v1.Node){created(30 * time.Second)},
			decision.Node{Capacity: decision.Capacity{Source: decision.FromDefault}}, 0},
		"labelled and young": {spotNodeLabels, []func(*v1.Node){created(time.Second)}, decision.Node{Capacity: onSpot}, 0},
		"settling and unknown since its creation: the label grace ends first": {nil,
			[]func(*v1.Node){created(10 * time.Second), unreachable(v1.ConditionUnknown, 10*time.Second)},
			decision.Node{Capacity: settling}, 20 * time.Second},
		"settling and unknown for long: NotReadyAfter ends first": {nil,
			[]func(*v1.Node){created(10 * time.Second), unreachable(v1.ConditionUnknown, 35*time.Second)},
			decision.Node{Capacity: settling}, 5 * time.Second},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(test.labels)
			for _, change := range test.node {
				change(node)
			}
			reader := &Reader{Policy: builtin, Signals: providers.Signals()}
			got, until := reader.Read(node, now)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			want := time.Time{}
			if test.wantUntil != 0 {
				want = now.Add(test.wantUntil)
			}
			if !until.Equal(want) {
				t.Fatalf("until = %v, want %v", until, want)
			}
			if until.IsZero() {
				return
			}
			if before, _ := reader.Read(node, until.Add(-1)); before != got {
				t.Errorf("facts already changed before %v: %+v", until, before)
			}
			if after, _ := reader.Read(node, until); after == got {
				t.Errorf("facts not changed at %v: %+v", until, after)
			}
		})
	}
}
