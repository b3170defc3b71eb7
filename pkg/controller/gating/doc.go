// Package gating writes the decisions of the scheduler's Filter to pods, so that autoscalers see
// them. Autoscalers simulate only kube-scheduler's own plugins. Without required affinity on the
// pod, they consider a free spot node sufficient.
//
// An admission policy (manifests/overlays/autoscaler) or the webhook adds the scheduling gate
// spot.CapacityGate to new pods. For each gated pod, the leading controller decides with package
// decision. In one patch it adds required node affinity and removes the gate. The API server allows
// tighter affinity only while a gate is on the pod.
//
//	assigner.go      the work queue, with one item per revision
//	assignment.go    decisions on the gated pods of a revision, and their patches
//	choice.go        the affinity of a gated pod
//	feasibility.go   whether a node of a capacity type could run a gated pod
//	labels.go        node affinity for spot and for not spot, and nodes that it misjudges
//	replacement.go   deletion of pods that wait too long, and grants for their successors
//	admission.go     whether the admission policy is bound
//	webhook.go       the webhook that adds the gate where the API server has no such policy
//	certificate.go   the certificate of the webhook
//
// The written affinity counts: a pod belongs to the floor if its own required affinity excludes
// spot, whether or not it is bound. If the controller does not run, the scheduler removes the gate
// after gateTimeout (package failsafe). The Filter protects every floor in any case.
package gating
