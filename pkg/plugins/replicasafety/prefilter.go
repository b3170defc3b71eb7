package replicasafety

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// errNotSynced is an error and not an Unschedulable status. The scheduler then retries the pod
// after a back-off, even without an event in the cluster.
var errNotSynced = errors.New("informer caches are not in sync yet")

// PreFilter decides everything about the pod that does not depend on the node: its workload, its
// settings, its plan, and which nodes to search. The result is the State of the cycle. PreFilter
// skips pods without a policy. It also skips Filter if the policy admits the pod on every node.
func (p *Plugin) PreFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !workload.PolicyApplies(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.synced() {
		return nil, fwk.AsStatus(errNotSynced)
	}
	start := p.clock.Now()
	subject, err := p.owners.Subject(pod)
	if err != nil {
		return nil, refuseUnknownOwner(cycle, err)
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	p.counter.Update(nodes, start)
	if status := p.refuseOutdatedOwner(cycle, pod, subject, settings, start); status != nil {
		return nil, status
	}
	p.reportInvalid(cycle, pod, invalid)
	state, err := p.newState(pod, subject, settings, nodes, start)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	state.Invalid = invalid
	state.Write(cycle)
	logger := klog.FromContext(ctx)
	nodesToSearch, scope := state.Search(cycle, pod)
	recordDecision(p.profile, scope, p.clock.Since(start).Seconds())
	logPlan(logger, pod, state, scope)
	if scope != placement.FewNodes && state.AdmitsAll() {
		state.MarkMayPreempt()
		return nil, fwk.NewStatus(fwk.Skip) // otherwise Filter would return the same answer for thousands of nodes
	}
	return nodesToSearch, nil
}

// newState returns the decision for the pod at now, from the counts of its revision, its waiting
// time, and the nodes that its constraints admit or that are nominated or reserved for other pods.
func (p *Plugin) newState(pod *v1.Pod, subject *workload.Subject, settings decision.WorkloadSettings, nodes []fwk.NodeInfo, now time.Time) (*placement.State, error) {
	waited, err := p.waiting.WaitTime(pod, p.gangOf(pod), subject, settings, p.owners, p.counter, now)
	if err != nil {
		return nil, err
	}
	siblings, own := p.nominatedSiblings(pod, subject, settings, nodes)
	state := placement.NewState(subject, settings, waited, p.counter, siblings...)
	if p.counter.Evidence.Judge(pod, p.volumesOf, &subject.Pod, &state.Plan) {
		state = placement.NewState(subject, settings, waited, p.counter, siblings...)
	}
	if state.NominatedNode = own; own != "" {
		state.MarkMayPreempt() // the pod may keep the nomination without another eviction
	}
	state.ReserveUnlabeled(pod, p.waiting)
	return state, nil
}

// reportInvalid reports the ignored annotations of a pod once: not at every attempt, and not at the
// second search of an attempt. All annotations share one event, because the recorder merges similar
// events for one object and preserves only the first note.
func (p *Plugin) reportInvalid(cycle fwk.CycleState, pod *v1.Pod, invalid []decision.InvalidAnnotation) {
	if len(invalid) == 0 || slices.Equal(invalid, p.waiting.Last(pod.UID).Invalid) || placement.Read(cycle) != nil {
		return
	}
	profilemetrics.RecordInvalidAnnotations(p.profile, len(invalid))
	workload.RecordInvalid(p.recorder, pod, invalid)
}

// logPlan logs the plan and the scope of the search.
func logPlan(logger klog.Logger, pod *v1.Pod, s *placement.State, scope placement.Scope) {
	if logger = logger.V(4); !logger.Enabled() { // computing the arguments costs more than the plan
		return
	}
	w := &s.Subject.Pod.Workload
	logger.Info("Planned placement", "pod", klog.KObj(pod), "revision", w.Revision, "desired", w.Desired,
		"floor", s.Plan.Floor, "spotBudget", s.Plan.Budget, "grant", s.Plan.Grant, "search", scope)
}

// PreFilterExtensions returns the plugin itself.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod counts a pod that preemption or a nomination adds to a node.
func (p *Plugin) AddPod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, add fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.AddPod(add.GetPod(), node.Node().Name)
	}
	return nil
}

// RemovePod counts a pod that preemption removes from a node.
func (p *Plugin) RemovePod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, remove fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.RemovePod(remove.GetPod(), node.Node().Name)
	}
	return nil
}
