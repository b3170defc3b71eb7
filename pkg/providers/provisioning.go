package providers

// ProvisioningEvent is an event on a pending pod by which an autoscaler reports that it starts, or
// expects, a node for the pod, or that it cannot provide one.
type ProvisioningEvent struct {
	Reason string
	// Mentions must be contained in the message; empty matches any.
	Mentions string
	// Refusal means that the autoscaler cannot provide a node.
	Refusal bool
}

// ProvisioningEvents are the known events, each with its source.
var ProvisioningEvents = []ProvisioningEvent{
	// karpenter pkg/controllers/provisioning/scheduling/events.go. The scheduler's events have
	// the reason FailedScheduling too, with another message.
	{Reason: "Nominated"},
	{Reason: "FailedScheduling", Mentions: "Failed to schedule pod", Refusal: true},
	// cluster-autoscaler processors/status/eventing_scale_up_processor.go.
	{Reason: "TriggeredScaleUp"},
	{Reason: "NotTriggerScaleUp", Refusal: true},
}
