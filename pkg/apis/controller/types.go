package controller

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/scalar"
)

// Kind is what a configuration file must say that it is.
const Kind = "SpotControllerConfiguration"

// GroupVersion is that of Kind.
var GroupVersion = schema.GroupVersion{Group: "spot-aware-scheduler.io", Version: "v1alpha1"}

// SpotControllerConfiguration is the configuration file of spot-controller. Nothing in it is required.
type SpotControllerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// DryRun says what would be done and does nothing: no object is written, no Lease and no event either. Default false.
	DryRun scalar.Value `json:"dryRun,omitempty"`
	// RequestsPerSecond is how many requests a second, on average and at once, moves, marks and deletion costs make together. Default 200.
	RequestsPerSecond scalar.Value `json:"requestsPerSecond,omitempty"`
	// Concurrency is how many of these requests are under way at a time. Default 50.
	Concurrency scalar.Value `json:"concurrency,omitempty"`

	LeaderElection LeaderElection `json:"leaderElection,omitempty"`
	Metrics        Server         `json:"metrics,omitempty"`
	Health         Server         `json:"health,omitempty"`
	Interruption   Interruption   `json:"interruption,omitempty"`
	Drain          Drain          `json:"drain,omitempty"`
	Migration      Migration      `json:"migration,omitempty"`
	Rebalance      Rebalance      `json:"rebalance,omitempty"`
	DeletionCosts  DeletionCosts  `json:"deletionCosts,omitempty"`
	Gating         Gating         `json:"gating,omitempty"`
}

// LeaderElection says how the replicas agree on the one that acts. The lock is the Lease kube-system/spot-controller.
type LeaderElection struct {
	// LeaseDuration is how long nobody acts after a leader has died without a word: whole seconds, 2 or more. Default 15s.
	LeaseDuration scalar.Value `json:"leaseDuration,omitempty"`
}

// Server is an HTTP server of the controller.
type Server struct {
	// BindAddress is a host (may be empty: all addresses) and a port: ":8443" of metrics, ":8081" of health by default.
	BindAddress scalar.Value `json:"bindAddress,omitempty"`
}

// Interruption says what happens on nodes that go.
type Interruption struct {
	// Enabled: nodes that are reclaimed are tainted and emptied in time. Default true.
	Enabled scalar.Value `json:"enabled,omitempty"`
	// NamespaceSelector selects the namespaces, by their labels, whose pods are moved. Pods of the others stay to the end of their node, which is
	// tainted all the same. Default all.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// DefaultNotice is how long a reclaimed node is taken to last where neither its signal nor an annotation says: 10s or more. Default 2m.
	DefaultNotice scalar.Value `json:"defaultNotice,omitempty"`
	// NotReadyAfter is for how long nothing must be heard of a spot node's kubelet for the node to count as reclaimed: 20s or more. Default 40s,
	// as the scheduler has it.
	NotReadyAfter scalar.Value `json:"notReadyAfter,omitempty"`
	// DeleteAtDeadline: a pod whose budget still forbids its eviction when only its grace period is left is deleted. Default true.
	DeleteAtDeadline scalar.Value `json:"deleteAtDeadline,omitempty"`
	// Advisory is for nodes that may go.
	Advisory Advisory `json:"advisory,omitempty"`
}

// Advisory says what happens on nodes that may go, and often do not.
type Advisory struct {
	// Enabled: they are tainted and emptied, without haste. Default false: they only get no new pods if others have room.
	Enabled scalar.Value `json:"enabled,omitempty"`
	// TimeLimit is after how long the taint is removed again from a node that did not go: 10s or more. Default 30m.
	TimeLimit scalar.Value `json:"timeLimit,omitempty"`
	// Pause is for how long such a node is then left alone, whatever it says: 1m or more. Default 1h.
	Pause scalar.Value `json:"pause,omitempty"`
}

// Drain says what happens on nodes that somebody else drains: an autoscaler, a managed service, or kubectl drain.
type Drain struct {
	// Assist: a pod whose eviction a PodDisruptionBudget forbids now, or that is the only ready replica of its workload, is released, so that its
	// replacement is ready before it is evicted. The controller evicts none. Default true.
	Assist scalar.Value `json:"assist,omitempty"`
	// Cordons: a cordoned node counts as one that is drained. kubectl drain cordons it and leaves no other sign. Default false.
	Cordons scalar.Value `json:"cordons,omitempty"`
	// EvictionRequests: pods that name the responder spot-aware-scheduler.io/surge, and whose eviction is asked for by an EvictionRequest of
	// Kubernetes 1.37 (alpha), are replaced first and evicted then. Default false.
	EvictionRequests scalar.Value `json:"evictionRequests,omitempty"`
}

// Migration says how pods are moved.
type Migration struct {
	// SurgeTimeout is how long a pod waits for its replacement to become ready, besides minReadySeconds, before it is given back to its
	// ReplicaSet: 5s or more. Where its node goes, the deadline counts instead. Default 2m.
	SurgeTimeout scalar.Value `json:"surgeTimeout,omitempty"`
	// EvictableOwners are kinds of controllers, such as "CloneSet.apps.kruise.io", that make a pod
	// again after its eviction: such a pod is evicted as soon as its node gets notice. Kubernetes'
	// own kinds need not be named. Default: those of Strimzi, CloudNativePG and OpenKruise.
	EvictableOwners []scalar.Value `json:"evictableOwners,omitempty"`
}

// Rebalance says which pods are moved for a better place, and how many.
type Rebalance struct {
	// NamespaceSelector selects the namespaces, by their labels, whose pods are moved. Default all.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Heal: pods that stand on spot against the policy go to on-demand that has room. Default true.
	Heal scalar.Value `json:"heal,omitempty"`
	// MakeRoom: pods that may run on spot leave on-demand to one that must not. Default true.
	MakeRoom scalar.Value `json:"makeRoom,omitempty"`
	// ReturnToSpot: pods that may run on spot, and went to on-demand when spot was full, go to spot that has room. Default true.
	ReturnToSpot scalar.Value `json:"returnToSpot,omitempty"`
	// LocalStorage says whether pods that lose data on their node by it (hostPath, emptyDir) return to spot: Keep (the default: they do not,
	// unless their annotations say that they may be evicted) or Move.
	LocalStorage scalar.Value `json:"localStorage,omitempty"`
	// MaxMoves is how many such moves are under way at a time in the whole cluster; one of a workload, always. Default 5.
	MaxMoves scalar.Value `json:"maxMoves,omitempty"`
	// PauseAfterInterruption is how long a workload is left alone after an interruption of one of its pods. Default 5m.
	PauseAfterInterruption scalar.Value `json:"pauseAfterInterruption,omitempty"`
	// CalmPeriod is how long a spot pool must have lost no node before pods return to it. Default 10m.
	CalmPeriod scalar.Value `json:"calmPeriod,omitempty"`
}

// DeletionCosts says whether a scale-down of a Deployment is to leave its floor.
type DeletionCosts struct {
	// Enabled: the pods of the floor get the annotation controller.kubernetes.io/pod-deletion-cost. Default true.
	Enabled scalar.Value `json:"enabled,omitempty"`
}

// Gating says how the capacity type that a pod must have is written on the pod, where autoscalers see it. It needs the admission policy of
// manifests/overlays/autoscaler, which holds new pods by a scheduling gate until that has been done.
type Gating struct {
	// Enabled: gated pods are given their capacity type and let go. Default false: the scheduler lets them go after gateTimeout.
	Enabled scalar.Value `json:"enabled,omitempty"`
	// Labels are the node labels by which pods of a floor are kept off spot: capacity labels that the autoscaler itself sets. Karpenter makes up
	// a value for any other. Default karpenter.sh/capacity-type.
	Labels []scalar.Value `json:"labels,omitempty"`
	// SpotLabel is the node label by which pods require spot. Default karpenter.sh/capacity-type; "": no pod requires spot.
	SpotLabel scalar.Value `json:"spotLabel,omitempty"`
	// NodeStartup is how long an autoscaler may take to start a node, before a pod that waits for that node falls back, or a move is undone:
	// 10s or more. Default 3m.
	NodeStartup scalar.Value `json:"nodeStartup,omitempty"`
	// BuyForReturn: a replica that returns to spot requires it, so that an autoscaler buys spot for it. Default true.
	BuyForReturn scalar.Value `json:"buyForReturn,omitempty"`
	// HealRunning: replicas of a floor that run on on-demand and do not require it are replaced, one of a workload at a time. They are those from
	// before the mode was switched on. Default true.
	HealRunning scalar.Value `json:"healRunning,omitempty"`
}

// SetDefaults fills in what is not set.
func (c *SpotControllerConfiguration) SetDefaults() {
	c.DryRun.SetDefault("false")
	c.RequestsPerSecond.SetDefault("200")
	c.Concurrency.SetDefault("50")
	c.LeaderElection.LeaseDuration.SetDefault("15s")
	c.Metrics.BindAddress.SetDefault(":8443")
	c.Health.BindAddress.SetDefault(":8081")

	c.Interruption.Enabled.SetDefault("true")
	c.Interruption.DefaultNotice.SetDefault("2m")
	c.Interruption.NotReadyAfter.SetDefault("40s")
	c.Interruption.DeleteAtDeadline.SetDefault("true")
	c.Interruption.Advisory.Enabled.SetDefault("false")
	c.Interruption.Advisory.TimeLimit.SetDefault("30m")
	c.Interruption.Advisory.Pause.SetDefault("1h")

	c.Drain.Assist.SetDefault("true")
	c.Drain.Cordons.SetDefault("false")
	c.Drain.EvictionRequests.SetDefault("false")

	c.Migration.SurgeTimeout.SetDefault("2m")
	if c.Migration.EvictableOwners == nil {
		c.Migration.EvictableOwners = []scalar.Value{
			"StrimziPodSet.core.strimzi.io", "Cluster.postgresql.cnpg.io", "CloneSet.apps.kruise.io", "StatefulSet.apps.kruise.io",
		}
	}
	c.Rebalance.Heal.SetDefault("true")
	c.Rebalance.MakeRoom.SetDefault("true")
	c.Rebalance.ReturnToSpot.SetDefault("true")
	c.Rebalance.LocalStorage.SetDefault("Keep")
	c.Rebalance.MaxMoves.SetDefault("5")
	c.Rebalance.PauseAfterInterruption.SetDefault("5m")
	c.Rebalance.CalmPeriod.SetDefault("10m")
	c.DeletionCosts.Enabled.SetDefault("true")
	c.Gating.Enabled.SetDefault("false")
	if c.Gating.Labels == nil {
		c.Gating.Labels = []scalar.Value{"karpenter.sh/capacity-type"}
	}
	c.Gating.SpotLabel.SetDefault("karpenter.sh/capacity-type")
	c.Gating.NodeStartup.SetDefault("3m")
	c.Gating.BuyForReturn.SetDefault("true")
	c.Gating.HealRunning.SetDefault("true")
}

// DeepCopyObject implements runtime.Object.
func (c *SpotControllerConfiguration) DeepCopyObject() runtime.Object {
	result := *c
	result.Migration.EvictableOwners = slices.Clone(c.Migration.EvictableOwners)
	result.Gating.Labels = slices.Clone(c.Gating.Labels)
	result.Interruption.NamespaceSelector = c.Interruption.NamespaceSelector.DeepCopy()
	result.Rebalance.NamespaceSelector = c.Rebalance.NamespaceSelector.DeepCopy()
	return &result
}
