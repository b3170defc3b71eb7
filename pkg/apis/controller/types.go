package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the required kind of a configuration file.
const Kind = "SpotControllerConfiguration"

// GroupVersion is the required group and version of a configuration file.
var GroupVersion = schema.GroupVersion{Group: "spot-aware-scheduler.io", Version: "v1beta1"}

// +kubebuilder:object:root=true

// SpotControllerConfiguration is the configuration file of spot-controller. All fields are
// optional.
type SpotControllerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// DryRun: the controller logs its actions and performs none. It writes no object, Lease or
	// event. Default false.
	DryRun bool `json:"dryRun,omitempty"`
	// RequestsPerSecond is both the average rate and the burst of API requests for moves, node
	// marks and deletion costs together. Default 200.
	RequestsPerSecond int32 `json:"requestsPerSecond,omitempty"`
	// Concurrency is the maximum number of such requests of one namespace in flight, and a third of
	// the maximum of all. Default 50.
	Concurrency int32 `json:"concurrency,omitempty"`

	LeaderElection LeaderElection `json:"leaderElection,omitempty"`
	Metrics        Server         `json:"metrics,omitempty"`
	Health         Server         `json:"health,omitempty"`
	Interruption   Interruption   `json:"interruption,omitempty"`
	Drain          Drain          `json:"drain,omitempty"`
	Migration      Migration      `json:"migration,omitempty"`
	Limits         Limits         `json:"limits,omitempty"`
	Rebalance      Rebalance      `json:"rebalance,omitempty"`
	DeletionCosts  DeletionCosts  `json:"deletionCosts,omitempty"`
	Gating         Gating         `json:"gating,omitempty"`
	Costs          Costs          `json:"costs,omitempty"`
}

// LeaderElection configures how the replicas elect the active one. The lock is the Lease
// spot-controller in the namespace of the controller.
type LeaderElection struct {
	// LeaseDuration is the time without an active replica after a leader has died without releasing
	// the Lease: whole seconds, 2 or more. Default 15s.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitempty"`
}

// Server configures an HTTP server of the controller.
type Server struct {
	// BindAddress is a host and a port. An empty host means all addresses. Default ":8443" for
	// metrics and ":8081" for health.
	BindAddress string `json:"bindAddress,omitempty"`
}

// Interruption configures the handling of nodes that are about to be reclaimed.
type Interruption struct {
	// Enabled: the controller taints nodes that are being reclaimed and moves their pods in time.
	// Default true.
	Enabled bool `json:"enabled,omitempty"`
	// NamespaceSelector selects, by namespace labels, the namespaces whose pods are moved. Pods of
	// other namespaces run until their node is reclaimed; the node is tainted anyway. Default all.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// DefaultNotice is the assumed time until a node is reclaimed if neither its signal nor an
	// annotation specifies it: 10s or more. Default 2m.
	DefaultNotice metav1.Duration `json:"defaultNotice,omitempty"`
	// NotReadyAfter is the time without contact to the kubelet after which a spot node counts as
	// reclaimed: 20s or more. Default 40s, the same as in the scheduler.
	NotReadyAfter metav1.Duration `json:"notReadyAfter,omitempty"`
	// DeleteAtDeadline: the controller deletes a pod if a PodDisruptionBudget still forbids its
	// eviction when only the pod's grace period is left, or if its Node was deleted. Default true.
	DeleteAtDeadline bool `json:"deleteAtDeadline,omitempty"`
	// Breaker configures the breaker for reclaim signals.
	Breaker Breaker `json:"breaker,omitempty"`
	// Advisory configures the handling of nodes that may be reclaimed.
	Advisory Advisory `json:"advisory,omitempty"`
}

// Breaker configures when so many spot nodes have a reclaim signal that the controller doubts the
// signals. It deletes no pod of such a node, and without a ready replacement it evicts at most one
// pod of a workload at a time, until something confirms that the node is being reclaimed. The
// breaker also opens for signals that most nodes outlive. The zero Breaker never opens.
type Breaker struct {
	// MaxPercent is the percentage of spot nodes above which the breaker opens: 1 to 100. With 100
	// it never opens. Default 50.
	MaxPercent int32 `json:"maxPercent,omitempty"`
	// MinNodes is the number of nodes that never opens the breaker, whatever their percentage is: 1
	// or more. Default 10.
	MinNodes int32 `json:"minNodes,omitempty"`
}

// Advisory configures the handling of nodes that may be reclaimed, but often are not.
type Advisory struct {
	// Enabled: the controller taints these nodes (PreferNoSchedule) and moves their pods without a
	// deadline. Default false: these nodes only get no new pods while other nodes have room.
	Enabled bool `json:"enabled,omitempty"`
	// TimeLimit is the time after which the controller removes the taint again if the node was not
	// reclaimed: 10s or more. Default 30m.
	TimeLimit metav1.Duration `json:"timeLimit,omitempty"`
	// Pause is the time for which the controller then ignores advisory signals of the node: 1m or
	// more. Default 1h.
	Pause metav1.Duration `json:"pause,omitempty"`
}

// Drain configures the handling of nodes that another actor drains: an autoscaler, a managed
// service, or kubectl drain.
type Drain struct {
	// Assist: the controller releases a pod if a PodDisruptionBudget forbids its eviction now, or
	// if it is the only ready replica of its workload. Its replacement is then ready before the pod
	// is evicted. The controller evicts no pod itself. Default true.
	Assist bool `json:"assist,omitempty"`
	// Cordons: a cordoned node counts as being drained. kubectl drain cordons the node and leaves
	// no other sign. Default false.
	Cordons bool `json:"cordons,omitempty"`
}

// Migration configures how pods are moved.
type Migration struct {
	// SurgeTimeout is the time in which a replacement must become ready, in addition to
	// minReadySeconds, before the controller restores the released pod to its ReplicaSet: 5s or
	// more. If the node is being reclaimed, the deadline applies instead. Default 2m.
	SurgeTimeout metav1.Duration `json:"surgeTimeout,omitempty"`
	// EvictableOwners are kinds of controllers, such as "CloneSet.apps.kruise.io", that recreate a
	// pod after its eviction. The controller evicts such a pod as soon as its node gets notice. The
	// kinds of Kubernetes itself are always included. Default: the kinds of Strimzi, CloudNativePG
	// and OpenKruise.
	EvictableOwners []string `json:"evictableOwners,omitempty"`
}

// Limits bounds the moves that start within any hour, if their reason is one that Reasons may
// contain. Other moves, such as moves with a deadline, are never refused: metrics count them. 0
// forbids moves.
type Limits struct {
	// MovesPerHour is the maximum in the whole cluster: 0 to 2000. Default 1200.
	MovesPerHour int32 `json:"movesPerHour,omitempty"`
	// MovesPerHourPerNamespace is the maximum in one namespace: 0 to 2000. Default 1200.
	MovesPerHourPerNamespace int32 `json:"movesPerHourPerNamespace,omitempty"`
	// MovesPerHourPerWorkload is the maximum of one workload: 0 to 2000. Default 300.
	MovesPerHourPerWorkload int32 `json:"movesPerHourPerWorkload,omitempty"`
	// Reasons contains the maximum for a reason in the whole cluster: advisory, heal, make-room,
	// return-to-spot or assign. Default none.
	Reasons map[string]int32 `json:"reasons,omitempty"`
	// Schedules are the times at which no pod returns to spot. They add up. Default none.
	Schedules []Schedule `json:"schedules,omitempty"`
}

// LimitedReasons are the reasons of moves that Limits bounds.
var LimitedReasons = []string{"advisory", "assign", "heal", "make-room", "return-to-spot"}

// Schedule is a recurring period.
type Schedule struct {
	// Schedule is when the period begins, in UTC: five fields of cron, such as "0 9 * * mon-fri",
	// or a word such as "@daily".
	Schedule string `json:"schedule"`
	// Duration is how long the period lasts: 1m or more. It must end before it always begins again.
	Duration metav1.Duration `json:"duration"`
}

// Rebalance configures which pods are moved to better nodes, and how many.
type Rebalance struct {
	// NamespaceSelector selects, by namespace labels, the namespaces whose pods are moved. Default
	// all.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Heal: the controller moves pods that run on spot against the policy to on-demand nodes with
	// room. Default true.
	Heal bool `json:"heal,omitempty"`
	// MakeRoom: the controller moves pods that may run on spot off on-demand if a pod that may not
	// needs the room. Default true.
	MakeRoom bool `json:"makeRoom,omitempty"`
	// ReturnToSpot: the controller moves pods that may run on spot, but were placed on on-demand
	// when spot was full, to spot nodes with room. Default true.
	ReturnToSpot bool `json:"returnToSpot,omitempty"`
	// LocalStorage decides whether pods that would lose data on their node (hostPath, emptyDir)
	// return to spot. Keep (the default): only if annotations permit their eviction. Move: always.
	LocalStorage LocalStorage `json:"localStorage,omitempty"`
	// MaxMoves is the maximum number of rebalance moves in progress in the whole cluster. A
	// workload never has more than one. Default 5.
	MaxMoves int32 `json:"maxMoves,omitempty"`
	// PauseAfterInterruption is the time for which the controller does not rebalance a workload
	// after an interruption of one of its pods. Default 5m.
	PauseAfterInterruption metav1.Duration `json:"pauseAfterInterruption,omitempty"`
	// CalmPeriod is the time without a lost node after which pods may return to a spot pool.
	// Default 10m.
	CalmPeriod metav1.Duration `json:"calmPeriod,omitempty"`
}

// DeletionCosts configures whether a scale-down of a Deployment spares its floor.
type DeletionCosts struct {
	// Enabled: the controller sets the annotation controller.kubernetes.io/pod-deletion-cost on the
	// pods of the floor. Default true.
	Enabled bool `json:"enabled,omitempty"`
}

// Gating configures the autoscaler mode: the controller writes the required capacity type on each
// pod, where autoscalers can see it. It requires the admission policy of
// manifests/overlays/autoscaler, or the webhook, which add a scheduling gate to new pods.
type Gating struct {
	// Enabled: the controller writes the capacity type on gated pods and removes their gate.
	// Default false: the scheduler removes the gate after gateTimeout.
	Enabled bool `json:"enabled,omitempty"`
	// Labels are the node labels that exclude pods of a floor from spot nodes. They must be
	// capacity labels that the autoscaler itself sets: Karpenter invents a value for any other
	// label. Default karpenter.sh/capacity-type.
	Labels []string `json:"labels,omitempty"`
	// SpotLabel is the node label by which pods require spot. Labels, and other labels of spot
	// nodes, are alternatives. Default karpenter.sh/capacity-type. With "" no pod requires spot.
	SpotLabel string `json:"spotLabel,omitempty"`
	// NodeStartup is the time in which an autoscaler may start a node before a pod that waits for
	// it falls back, or a move is undone: 10s or more. Default 3m.
	NodeStartup metav1.Duration `json:"nodeStartup,omitempty"`
	// ProvisionForReturn: a replica that returns to spot requires spot, so that an autoscaler
	// provisions spot capacity for it. Default true.
	ProvisionForReturn bool `json:"provisionForReturn,omitempty"`
	// HealRunning: the controller replaces replicas of a floor that run on on-demand without
	// requiring it, one of a workload at a time. These replicas started before the mode was
	// enabled. Default true.
	HealRunning bool `json:"healRunning,omitempty"`
	// Webhook configures the webhook that gates new pods instead of the admission policy.
	Webhook Webhook `json:"webhook,omitempty"`
}

// Webhook configures the webhook of manifests/components/webhook, for API servers without
// MutatingAdmissionPolicies.
type Webhook struct {
	// BindAddress is a host and a port on which every replica serves the webhook. An empty host
	// means all addresses. The manifests expect ":9443". Default none: no webhook is served.
	BindAddress string `json:"bindAddress,omitempty"`
}

// Costs configures the metrics of hourly costs.
type Costs struct {
	// PriceFile is the path of a price list: US dollars per hour as CSV (.csv) with the header
	// instanceType,zone,spot,onDemand, or as YAML, a list of such objects. A relative path is
	// relative to the folder of this file. Default none: list prices of a dozen AWS types.
	PriceFile string `json:"priceFile,omitempty"`
}

// LocalStorage decides whether pods that would lose data on their node return to spot.
type LocalStorage string

// The values of LocalStorage.
const (
	KeepLocalStorage LocalStorage = "Keep"
	MoveLocalStorage LocalStorage = "Move"
)

// Default returns the configuration without a file. A file overrides single fields.
func Default() *SpotControllerConfiguration {
	duration := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	return &SpotControllerConfiguration{
		RequestsPerSecond: 200,
		Concurrency:       50,
		LeaderElection:    LeaderElection{LeaseDuration: duration(15 * time.Second)},
		Metrics:           Server{BindAddress: ":8443"},
		Health:            Server{BindAddress: ":8081"},
		Interruption: Interruption{
			Enabled: true, DefaultNotice: duration(2 * time.Minute), NotReadyAfter: duration(40 * time.Second), DeleteAtDeadline: true,
			Breaker:  Breaker{MaxPercent: 50, MinNodes: 10},
			Advisory: Advisory{TimeLimit: duration(30 * time.Minute), Pause: duration(time.Hour)},
		},
		Drain: Drain{Assist: true},
		Migration: Migration{
			SurgeTimeout: duration(2 * time.Minute),
			EvictableOwners: []string{
				"StrimziPodSet.core.strimzi.io", "Cluster.postgresql.cnpg.io", "CloneSet.apps.kruise.io", "StatefulSet.apps.kruise.io",
			},
		},
		Limits: Limits{MovesPerHour: 1200, MovesPerHourPerNamespace: 1200, MovesPerHourPerWorkload: 300},
		Rebalance: Rebalance{
			Heal: true, MakeRoom: true, ReturnToSpot: true, LocalStorage: KeepLocalStorage, MaxMoves: 5,
			PauseAfterInterruption: duration(5 * time.Minute), CalmPeriod: duration(10 * time.Minute),
		},
		DeletionCosts: DeletionCosts{Enabled: true},
		Gating: Gating{
			Labels: []string{"karpenter.sh/capacity-type"}, SpotLabel: "karpenter.sh/capacity-type",
			NodeStartup: duration(3 * time.Minute), ProvisionForReturn: true, HealRunning: true,
		},
	}
}

// ProvisionsForReturn reports whether an autoscaler adds spot nodes for replicas that return to
// spot. Without a label by which a pod requires spot, it could add on-demand nodes.
func (g *Gating) ProvisionsForReturn() bool {
	return g.Enabled && g.ProvisionForReturn && g.SpotLabel != ""
}

// ServesWebhook reports whether the controller serves the webhook that gates new pods.
func (g *Gating) ServesWebhook() bool { return g.Enabled && g.Webhook.BindAddress != "" }
