// Package migration plans the moves of pods.
//
//	Move    why a pod must leave its node, and by when
//	        (packages interruption, rebalance and responder)
//	Plan    returns the next Action of every move and of every released pod, as data
//
// Package execution performs the actions.
//
// All state is stored on the API objects. A new controller process finds the moves that an earlier
// one started, and completes or undoes them.
//
// The steps of Plan, one file each:
//
//	collect      one move for each pod, the most urgent first                 move.go
//	   │
//	reserve      room for replacements that the caches do not show yet        room.go
//	   │
//	methodOf     last moment reached?              yes: delete                lastmoment.go
//	   │         may the pod leave before?         no: wait                   method.go
//	   │         can the replacement start first?  yes: surge, no: evict      surge.go
//	   │
//	obstacle     would the move help, and end?     no: stay                   departures.go
//	   │
//	start        has a node room for the replacement?                         start.go
//	   │         yes, or it may wait for a new node: release or evict
//	   │         no: stay
//	   │
//	complete     each pod that an earlier plan released                       completion.go
//	   │         replacement ready, or not needed: evict or delete
//	   │         too late: restore
//	   │
//	inOrder      deletions, then moves with a deadline, then the rest         plan.go
//
// Several steps use budgets.go (what PodDisruptionBudgets allow) and replicas.go (which replicas of
// a workload serve).
package migration
