// Package migration plans the moves of pods. Plan is a function of a snapshot and of the moves that
// other planners request (packages interruption and rebalance). It returns the next
// Action of every move and of every released pod as data. Package execution performs the actions.
//
// All state is stored on the API objects. A new controller process finds the moves that an earlier
// one started, and completes or undoes them.
//
// The steps of a pod that must leave its node:
//
//	observe       reads the pod, its workload and its PodDisruptionBudgets         observation.go
//	inStartOrder  the most urgent pods get room first                              order.go
//	lastMoment    no time is left: delete                                          lastmoment.go
//	waits         no controller recreates it, or a draining client evicts it: wait start.go
//	obstacle      the move would not help, or not end: stay                        departures.go
//	method        the replacement can start first: release, else: evict            surge.go
//	room          no node has room, or will have: stay                             start.go, room.go
//	inTurn        the eviction comes too early: wait                               start.go
//	add           charges the PodDisruptionBudget; the pod no longer serves        plan.go
//	inOrder       deletions, then moves with a deadline, then the rest             order.go
//
// The steps of a pod that an earlier plan released:
//
//	observe           as above
//	inLeavingOrder    the most urgent pods get replacements first                  completion.go
//	completeAlone     not needed, or no time is left: delete or evict              completion.go
//	completeReplaced  its replacement is ready: evict; is late: restore            replacements.go
//	add, inOrder      as above
package migration
