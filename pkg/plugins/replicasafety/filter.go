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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// errNotSynced is an error and not an Unschedulable status. The scheduler then retries the pod
// after a back-off, even without an event in the cluster.
var errNotSynced = errors.New("informer caches are not in sync yet")

// PreFilter finds the pod's owners, counts its siblings in the snapshot and creates its plan. It
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
	if unknown := (*workload.UnknownOwner)(nil); errors.As(err, &unknown) {
		ownerWait{owner: unknown.Key, why: err.Error()}.write(cycle)
		// Unresolvable: preemption cannot make the owner known.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	p.counter.Update(nodes, start)
	first, again := p.waiting.Since(pod.UID) // not the gang's time: each pod may be the first to show that its workload was scaled up
	if !again {
		first = start
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	if until := first.Add(decision.MaxOwnerDelay); start.Before(until) {
		if why := subject.Pod.OutdatedOwner(settings, p.counter.Placed(subject.RevisionKey)); why != "" {
			ownerWait{owner: subject.WorkloadKey, why: why, outgrown: &subject.Pod.Workload, until: until}.write(cycle)
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
		}
	}
	if len(invalid) > 0 && !slices.Equal(invalid, p.waiting.Invalid(pod.UID)) && placement.Read(cycle) == nil {
		// Report once per pod: not at every attempt, and not at the second search of an attempt.
		p.reportInvalid(pod, invalid)
	}
	var waiting decision.WaitTime
	if since, waits := p.waiting.WaitingSince(pod.UID, p.gangOf(pod)); waits {
		if waiting, err = p.waitingFor(subject, settings, start.Sub(since)); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	nominees, nominated := p.nomineesOf(pod, subject, settings, nodes)
	state := placement.NewState(subject, settings, waiting, p.counter, nominees...)
	if state.Nominated = nominated; nominated != "" {
		state.MayPreempt() // the pod may keep the nomination without another eviction
	}
	state.Invalid = invalid
	state.ReserveUnlabeled(pod, p.waiting)
	state.Write(cycle)
	logger := klog.FromContext(ctx)
	nodesToSearch, scope := state.Search(logger, cycle, pod)
	placement.RecordDecision(p.profile, scope, p.clock.Since(start).Seconds())
	if logger = logger.V(4); logger.Enabled() { // computing the arguments costs more than the plan
		logger.Info("Planned placement", "pod", klog.KObj(pod), "revision", subject.Pod.Workload.Revision, "desired", subject.Pod.Workload.Desired,
			"floor", state.Plan.Floor, "spotBudget", state.Plan.Budget, "grant", state.Plan.Grant, "search", scope)
	}
	if scope != placement.FewNodes && state.AdmitsAll() {
		state.MayPreempt()
		return nil, fwk.NewStatus(fwk.Skip) // otherwise Filter would return the same answer for thousands of nodes
	}
	return nodesToSearch, nil
}

// waitingFor returns the relaxations that the pod may get for its waiting time.
func (p *Plugin) waitingFor(subject *workload.Subject, settings decision.Settings, waited time.Duration) (decision.WaitTime, error) {
	waiting := decision.WaitTime{For: waited}
	if !settings.Relieves(waited) {
		return waiting, nil
	}
	older, err := p.owners.OlderRevisions(subject)
	for _, revision := range older {
		waiting.OlderOnDemand = waiting.OlderOnDemand || p.counter.Placed(revision).OnDemand > 0
	}
	return waiting, err
}

// PreFilterExtensions returns the plugin itself.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod counts a pod that preemption or a nomination adds to a node.
func (p *Plugin) AddPod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, add fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Add(add.GetPod(), node.Node().Name)
	}
	return nil
}

// RemovePod counts a pod that preemption removes from a node.
func (p *Plugin) RemovePod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, remove fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Remove(remove.GetPod(), node.Node().Name)
	}
	return nil
}

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

// ownerWait passes the owner that the pod waits for, and the reason, from PreFilter to PostFilter.
type ownerWait struct {
	owner workload.OwnerKey
	why   string
	// outgrown is the observed state of a workload that has fewer desired replicas than pods. The
	// pod waits for an update of it until until. outgrown is nil if the owner is unknown.
	outgrown *decision.Workload
	until    time.Time
}

const ownerWaitKey fwk.StateKey = "spot-aware-scheduler.io/owner-wait"

func (w ownerWait) write(cycle fwk.CycleState) { cycle.Write(ownerWaitKey, w) }

// Clone returns w: it never changes.
func (w ownerWait) Clone() fwk.StateData { return w }
