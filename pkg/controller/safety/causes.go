// Package safety bounds what the controller may remove. Every request that removes or releases a
// pod, or that taints a node, has a Cause. The table in this file decides what limits, schedules,
// the breaker and a pause do to it. docs/operations.md explains the table to users.
package safety

// Cause is why a request removes or releases a pod. It is a label of metrics.
type Cause string

// All values of Cause.
const (
	// Reclaim: the pod's node is being reclaimed, and its PodDisruptionBudgets are respected.
	Reclaim Cause = "reclaim"
	// Deadline: the pod's node is being reclaimed, and no time is left for its
	// PodDisruptionBudgets.
	Deadline Cause = "deadline"
	// Unreachable: the kubelet of the pod's node is unreachable, or the Node was deleted.
	Unreachable Cause = "unreachable"
	// Advisory: the pod's node may be reclaimed.
	Advisory Cause = "advisory"
	// Heal, MakeRoom, ReturnToSpot and Assign are the reasons of the rebalancer
	// (migration.Reason).
	Heal         Cause = "heal"
	MakeRoom     Cause = "make-room"
	ReturnToSpot Cause = "return-to-spot"
	Assign       Cause = "assign"
	// Drain: a user or a tool drains the pod's node. The controller only releases the pod.
	Drain Cause = "drain"
	// Requested: another actor requests the eviction of the pod. No planner requests it yet.
	Requested Cause = "eviction-request"
	// Pending: a pod that never ran is deleted, because its successor gets another capacity type.
	Pending Cause = "pending"
	// Obsolete: a released pod whose workload wants no replacement is removed.
	Obsolete Cause = "obsolete"
)

// Rule is a row of the table.
type Rule struct {
	// Limited: the limits of moves per hour apply.
	Limited bool
	// SavesCost: the move only saves cost, so the schedules apply.
	SavesCost bool
	// Confirmed: while the breaker is open, the removal waits until something confirms the end of
	// the node. A Reclaim then needs a ready replacement, or room for one and a turn.
	Confirmed bool
	// Checked: the Node and the Lease of its kubelet are read from the API server before the
	// removal.
	Checked bool
}

// Rules is the table. A pause, unless it names other causes, stops every row.
var Rules = map[Cause]Rule{
	Reclaim:      {},
	Deadline:     {Confirmed: true, Checked: true},
	Unreachable:  {Checked: true},
	Advisory:     {Limited: true},
	Heal:         {Limited: true},
	MakeRoom:     {Limited: true},
	ReturnToSpot: {Limited: true, SavesCost: true},
	Assign:       {Limited: true},
	Drain:        {},
	Requested:    {},
	Pending:      {},
	Obsolete:     {},
}
