package kube

// The reasons of the events on nodes that announce their end.
const (
	// ReasonInterruption (Warning, on the node): it goes at a deadline; it was tainted, and its pods leave.
	ReasonInterruption = "SpotInterruption"
	// ReasonAdvice (Normal, on the node): it may go; it was tainted, and its pods leave one after the other.
	ReasonAdvice = "InterruptionAdvised"
	// ReasonInterruptionOver (Normal, on the node): the project's taint was taken off it, because nothing announces its end any more, or
	// an advice has lasted for too long to be believed.
	ReasonInterruptionOver = "InterruptionOver"
	// ReasonInvalidDeadline (Warning, on the node): its deadline annotation does not parse; what its signals say counts.
	ReasonInvalidDeadline = "InvalidInterruptionDeadline"
)
