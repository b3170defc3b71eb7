package audit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// The auditor has its own list of signals. It contains every built-in signal that excludes pods,
// and no other. It may be more precise about conditions.
func TestBuiltinSignals(t *testing.T) {
	want, got := map[signal]bool{}, map[signal]bool{}
	for _, s := range providers.Signals() {
		if s.Class == decision.Advisory {
			continue
		}
		value := s.Value
		if value == "" {
			value = anyValue
		}
		want[signal{kind: signalKind(s.Kind), key: s.Key, value: value, mentions: s.Mentions,
			onlySpot: s.OnlySpot && s.Elsewhere == decision.NoSignal}] = true
	}
	for _, s := range builtinSignals {
		s.reason = ""
		got[s] = true
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(signal{})); diff != "" {
		t.Errorf("signals that exclude pods (-product +auditor):\n%s", diff)
	}
}

func TestCapacity(t *testing.T) {
	type capacity struct{ Spot, Labelled bool }
	spot, onDemand := capacity{true, true}, capacity{false, true}
	for name, test := range map[string]struct {
		args   string
		labels map[string]string
		want   capacity
	}{
		"no label":                            {},
		"no label, unlabeled is spot":         {args: "unlabeledNodes: Spot", want: capacity{Spot: true}},
		"own spot":                            {labels: map[string]string{ownLabel: "spot"}, want: spot},
		"own label takes precedence":          {labels: map[string]string{ownLabel: "on-demand", "karpenter.sh/capacity-type": "spot"}, want: onDemand},
		"own label, unknown value":            {labels: map[string]string{ownLabel: "cheap", "karpenter.sh/capacity-type": "spot"}, want: spot},
		"own label, invented value":           {labels: map[string]string{ownLabel: "5958825377106311128", "karpenter.sh/capacity-type": "on-demand"}, want: onDemand},
		"own label and alias, unknown values": {labels: map[string]string{ownLabel: "cheap", "cloud.google.com/gke-spot": "false"}, want: spot},
		"alias, unknown value":                {labels: map[string]string{"karpenter.sh/capacity-type": "free"}, want: spot},
		"alias of one type":                   {labels: map[string]string{"spotinst.io/node-lifecycle": "spot"}},
		"Karpenter":                           {labels: map[string]string{"karpenter.sh/capacity-type": "spot"}, want: spot},
		"Karpenter reserved":                  {labels: map[string]string{"karpenter.sh/capacity-type": "reserved"}, want: onDemand},
		"EKS":                                 {labels: map[string]string{"eks.amazonaws.com/capacityType": "SPOT"}, want: spot},
		"EKS block":                           {labels: map[string]string{"eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"}, want: onDemand},
		"GKE spot":                            {labels: map[string]string{"cloud.google.com/gke-spot": "true"}, want: spot},
		"GKE preemptible":                     {labels: map[string]string{"cloud.google.com/gke-preemptible": "true"}, want: spot},
		"GKE provisioning":                    {labels: map[string]string{"cloud.google.com/gke-provisioning": "preemptible"}, want: spot},
		"GKE standard":                        {labels: map[string]string{"cloud.google.com/gke-provisioning": "standard"}, want: onDemand},
		"AKS":                                 {labels: map[string]string{"kubernetes.azure.com/scalesetpriority": "spot"}, want: spot},
		"AKS regular":                         {labels: map[string]string{"kubernetes.azure.com/scalesetpriority": "regular"}, want: onDemand},
		"ACK":                                 {labels: map[string]string{"node.alibabacloud.com/spot-strategy": "SpotAsPriceGo"}, want: spot},
		"ACK NoSpot":                          {labels: map[string]string{"node.alibabacloud.com/spot-strategy": "NoSpot"}, want: onDemand},
		"OKE":                                 {labels: map[string]string{"oci.oraclecloud.com/oke-is-preemptible": "true"}, want: spot},
		"Cluster API":                         {labels: map[string]string{"cluster.x-k8s.io/interruptible": ""}, want: spot},
		"OpenShift":                           {labels: map[string]string{"machine.openshift.io/interruptible-instance": ""}, want: spot},
		"Ocean":                               {labels: map[string]string{"spotinst.io/node-lifecycle": "od"}, want: onDemand},
		"CAST":                                {labels: map[string]string{"scheduling.cast.ai/spot": ""}, want: spot},
		"CAST false":                          {labels: map[string]string{"scheduling.cast.ai/spot": "false"}},
		"CAST fallback":                       {labels: map[string]string{"scheduling.cast.ai/spot-fallback": "true"}, want: onDemand},
		"contradiction":                       {labels: map[string]string{"eks.amazonaws.com/capacityType": "ON_DEMAND", "karpenter.sh/capacity-type": "spot"}, want: spot},
		"from the configuration": {
			args:   "capacityLabels: [{key: lifecycle, spot: [cheap], onDemand: [dear]}]",
			labels: map[string]string{"lifecycle": "dear"}, want: onDemand},
	} {
		t.Run(name, func(t *testing.T) {
			var got capacity
			got.Spot, got.Labelled = policyOf(t, test.args).capacity(test.labels)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	const spot, state = "unlabeledNodes: Spot", "spot-aware-scheduler.io/interruption-state"
	taintOf := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: key, Value: "any", Effect: corev1.TaintEffectPreferNoSchedule}}
		}
	}
	conditionOf := func(kind, status, reason string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status),
				Reason: reason, LastTransitionTime: metav1.NewTime(dawn.Add(-41 * time.Second))}}
		}
	}
	labelOf := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
	}
	for name, test := range map[string]struct {
		args string
		edit func(*corev1.Node)
		want bool
	}{
		"none":     {edit: func(*corev1.Node) {}},
		"cordoned": {edit: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		"our own":  {edit: taintOf("spot-aware-scheduler.io/interruption"), want: true},
		"our own, for an advisory": {edit: func(n *corev1.Node) {
			taintOf("spot-aware-scheduler.io/interruption")(n)
			n.Annotations = map[string]string{state: `{"class":"advisory","taint":"any"}`}
		}},
		"our own, for a drain": {edit: func(n *corev1.Node) {
			taintOf("spot-aware-scheduler.io/interruption")(n)
			n.Annotations = map[string]string{state: `{"class":"drain","taint":"any"}`}
		}, want: true},
		"NTH interruption":                   {args: spot, edit: taintOf("aws-node-termination-handler/spot-itn"), want: true},
		"NTH rebalance is advisory":          {edit: taintOf("aws-node-termination-handler/rebalance-recommendation")},
		"NTH maintenance":                    {edit: taintOf("aws-node-termination-handler/scheduled-maintenance"), want: true},
		"NTH group":                          {edit: taintOf("aws-node-termination-handler/asg-lifecycle-termination"), want: true},
		"Karpenter":                          {edit: taintOf("karpenter.sh/disrupted"), want: true},
		"deleted":                            {edit: func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: dawn} }, want: true},
		"autoscaler":                         {edit: taintOf("ToBeDeletedByClusterAutoscaler"), want: true},
		"candidate is advisory":              {edit: taintOf("DeletionCandidateOfClusterAutoscaler")},
		"GCP":                                {args: spot, edit: taintOf("cloud.google.com/impending-node-termination"), want: true},
		"Azure":                              {args: spot, edit: conditionOf("VMEventScheduled", "True", "PreemptScheduled"), want: true},
		"Azure, on-demand":                   {edit: conditionOf("VMEventScheduled", "True", "PreemptScheduled")},
		"Azure, another event":               {args: spot, edit: conditionOf("VMEventScheduled", "True", "FreezeScheduled")},
		"NTH interruption, on-demand":        {edit: taintOf("aws-node-termination-handler/spot-itn")},
		"Azure, cleared":                     {edit: conditionOf("VMEventScheduled", "False", "")},
		"AKS":                                {edit: taintOf("remediator.kubernetes.azure.com/unschedulable"), want: true},
		"Azure, preemption only":             {args: spot, edit: conditionOf("PreemptionScheduled", "True", "SpotEvictionIncoming"), want: true},
		"ACK":                                {args: spot, edit: conditionOf("InstanceExpired", "True", ""), want: true},
		"OKE":                                {args: spot, edit: taintOf("ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination"), want: true},
		"OpenShift":                          {args: spot, edit: conditionOf("Terminating", "True", "TerminationRequested"), want: true},
		"another reason":                     {edit: conditionOf("Terminating", "True", "Other")},
		"CAST":                               {edit: labelOf("autoscaling.cast.ai/draining", "spot-interruption"), want: true},
		"CAST, another value":                {edit: labelOf("autoscaling.cast.ai/draining", "evicting")},
		"unready on on-demand":               {edit: conditionOf("Ready", "False", "")},
		"drain in progress":                  {edit: conditionOf("DrainInProgress", "True", ""), want: true},
		"drained":                            {edit: conditionOf("Drained", "True", ""), want: true},
		"shutdown":                           {edit: conditionOf("GracefulNodeShutdownInProgress", "True", ""), want: true},
		"maintenance":                        {edit: conditionOf("MaintenanceInProgress", "True", "")},
		"out of service":                     {edit: taintOf("node.kubernetes.io/out-of-service"), want: true},
		"unready on spot":                    {args: spot, edit: conditionOf("Ready", "Unknown", ""), want: true},
		"not ready, reported by the kubelet": {args: spot, edit: conditionOf("Ready", "False", "")},
		"ready on spot":                      {args: spot, edit: conditionOf("Ready", "True", "")},
		"configured taint":                   {args: "signals: [{taint: bye=soon, class: drain}]", edit: taintOf("bye")},
		"configured taint, any value":        {args: "signals: [{taint: bye, class: drain}]", edit: taintOf("bye"), want: true},
		"configured and advisory":            {args: "signals: [{taint: bye, class: advisory}]", edit: taintOf("bye")},
		"configured condition":               {args: "signals: [{condition: Bye, class: reclaim}]", edit: conditionOf("Bye", "True", ""), want: true},
		"configured, for spot":               {args: "signals: [{taint: bye, class: drain, onlySpot: true}]", edit: taintOf("bye")},
		"configured mention":                 {args: "signals: [{condition: Bye, mentions: So, class: drain}]", edit: conditionOf("Bye", "True", "Soon"), want: true},
		"configured label":                   {args: "signals: [{label: bye=now, class: drain}]", edit: labelOf("bye", "now"), want: true},
		"configured annotation": {
			args: "signals: [{annotation: bye, class: drain}]",
			edit: func(n *corev1.Node) { n.Annotations = map[string]string{"bye": ""} }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{}
			test.edit(n)
			if got := policyOf(t, test.args).nodeFacts(n, dawn).signal; (got != "") != test.want {
				t.Errorf("signal %q, want one: %t", got, test.want)
			}
		})
	}
}
