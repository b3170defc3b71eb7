package replicasafety

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// SignPod lets pods share one decision (opportunistic batching) where it depends on nothing but the pod and the args: pods that
// the policy has no opinion on, and pods without a controller that are tried for the first time. It refuses all others: what they may
// do depends on where their siblings are, or on how long they have waited.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	const key = "spot-aware-scheduler.io/policy"
	if !kube.HasOpinion(pod) {
		return []fwk.SignFragment{{Key: key, Value: "none"}}, nil
	}
	if metav1.GetControllerOfNoCopy(pod) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the decision depends on the pod's siblings")
	}
	if _, waits := p.waiting.Since(pod.UID); waits {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the decision depends on how long the pod has waited")
	}
	subject, err := p.owners.Subject(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	if len(invalid) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod's annotations are to be reported")
	}
	of := &subject.Pod
	return []fwk.SignFragment{{Key: key, Value: fmt.Sprintf("%s onlySpot=%t onlyOnDemand=%t assigned=%s granted=%d",
		settings, of.OnlySpot, of.OnlyOnDemand, of.Assigned, of.Granted)}}, nil
}
