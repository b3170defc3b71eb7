package replicasafety

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// SignPod lets pods share one decision (opportunistic batching) if it depends on the pod and the
// args only. This applies to pods without a policy, and to pods without a controller that are tried
// for the first time. SignPod refuses all other pods, because their decision depends on the nodes
// of their siblings or on their waiting time.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	const key = "spot-aware-scheduler.io/policy"
	if !workload.PolicyApplies(pod) {
		return []fwk.SignFragment{{Key: key, Value: "none"}}, nil
	}
	if metav1.GetControllerOfNoCopy(pod) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the decision depends on the pod's siblings")
	}
	if _, waits := p.waiting.Since(pod); waits {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the decision depends on how long the pod has waited")
	}
	subject, err := p.owners.Subject(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	if len(invalid) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod has invalid annotations to report")
	}
	return []fwk.SignFragment{{Key: key, Value: fmt.Sprintf("%s onlySpot=%t onlyOnDemand=%t assigned=%s granted=%d",
		settings, subject.Pod.OnlySpot, subject.Pod.OnlyOnDemand, subject.Pod.Assigned, subject.Pod.Granted)}}, nil
}
