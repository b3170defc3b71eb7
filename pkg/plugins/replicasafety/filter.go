package replicasafety

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
)

// Filter returns whether the policy admits the pod on the node.
func (p *Plugin) Filter(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	s := placement.Read(cycle)
	if s == nil {
		return nil
	}
	verdict := s.Admit(node.Node().Name)
	if verdict == decision.Admitted {
		return nil
	}
	return s.Refusal(verdict)
}
