// Package gating writes the decisions of the scheduler's Filter to pods, so that autoscalers see
// them. Autoscalers simulate only kube-scheduler's own plugins. Without required affinity on the
// pod, they consider a free spot node sufficient.
//
// An admission policy (manifests/overlays/autoscaler) or the webhook adds the scheduling gate
// spot.CapacityGate to new pods. For each gated pod, the leading controller decides with package
// decision. In one patch it adds required node affinity and removes the gate. The API server allows
// tighter affinity only while a gate is on the pod.
//
// The written affinity counts: a pod belongs to the floor if its own required affinity excludes
// spot, whether or not it is bound. If the controller does not run, the scheduler removes the gate
// after gateTimeout (package failsafe). The Filter protects every floor in any case.
package gating
