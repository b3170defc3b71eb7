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
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// errNotSynced is an error, not a verdict: the scheduler tries the pod again after a back-off, whatever happens in the cluster.
var errNotSynced = errors.New("informer caches are not in sync yet")

// PreFilter finds out what the pod belongs to, counts its siblings in the snapshot and makes the plan for it. It skips pods that the
// policy has no opinion on, and Filter where every node is open to the pod.
func (p *Plugin) PreFilter(ctx context.Context, cycle fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !kube.HasOpinion(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.synced() {
		return nil, fwk.AsStatus(errNotSynced)
	}
	start := p.clock.Now()
	subject, err := p.owners.Subject(pod)
	if unknown := (*kube.UnknownOwner)(nil); errors.As(err, &unknown) {
		ownerWait{owner: unknown.Key, why: err.Error()}.write(cycle)
		// Unresolvable: no preemption can make the owner known.
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	p.counter.Update(nodes, start)
	first, again := p.waiting.Since(pod.UID) // its own time and not its gang's: each pod may be the first to tell of a scaling
	if !again {
		first = start
	}
	settings, invalid := p.policy.Settings(&subject.Pod)
	if until := first.Add(decision.OwnerNews); start.Before(until) {
		if why := subject.Pod.Outgrown(settings, p.counter.Placed(subject.RevisionKey)); why != "" {
			ownerWait{owner: subject.WorkloadKey, why: why, outgrown: &subject.Pod.Workload, until: until}.write(cycle)
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
		}
	}
	if len(invalid) > 0 && !slices.Equal(invalid, p.waiting.Invalid(pod.UID)) && placement.Read(cycle) == nil {
		// Once is enough, not at every attempt, nor at the second search of one.
		p.reportInvalid(pod, invalid)
	}
	var waiting decision.Waiting
	if since, waits := p.waiting.WaitingSince(pod.UID, p.gangOf(pod)); waits {
		if waiting, err = p.earned(subject, settings, start.Sub(since)); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	nominees, nominated := p.nomineesOf(pod, subject, settings, nodes)
	state := placement.NewState(subject, settings, waiting, p.counter, nominees...)
	if state.Nominated = nominated; nominated != "" {
		state.MayPreempt() // it may keep the node without another eviction
	}
	state.Invalid = invalid
	state.Hold(pod, p.waiting)
	state.Write(cycle)
	logger := klog.FromContext(ctx)
	nodesToSearch, scope := state.Search(logger, cycle, pod)
	placement.RecordDecision(p.profile, scope, p.clock.Since(start).Seconds())
	if logger = logger.V(4); logger.Enabled() { // its arguments cost more than the plan
		logger.Info("Planned placement", "pod", klog.KObj(pod), "revision", subject.Pod.Workload.Revision, "desired", subject.Pod.Workload.Desired,
			"floor", state.Plan.Floor, "spotBudget", state.Plan.Budget, "grant", state.Plan.Grant, "search", scope)
	}
	if scope != placement.FewNodes && state.AdmitsAll() {
		state.MayPreempt()
		return nil, fwk.NewStatus(fwk.Skip) // Filter would be asked thousands of times for the same answer
	}
	return nodesToSearch, nil
}

// earned returns what having waited that long may have earned the pod.
func (p *Plugin) earned(subject *kube.Subject, settings decision.Settings, waited time.Duration) (decision.Waiting, error) {
	earned := decision.Waiting{For: waited}
	if !settings.Relieves(waited) {
		return earned, nil
	}
	older, err := p.owners.OlderRevisions(subject)
	for _, revision := range older {
		earned.OlderOnDemand = earned.OlderOnDemand || p.counter.Placed(revision).OnDemand > 0
	}
	return earned, err
}

// PreFilterExtensions returns the plugin itself.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod counts a pod that preemption or a nomination puts on a node.
func (p *Plugin) AddPod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, add fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Add(add.GetPod(), node.Node().Name)
	}
	return nil
}

// RemovePod counts a pod that preemption takes off a node.
func (p *Plugin) RemovePod(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, remove fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	if s := placement.Read(cycle); s != nil {
		s.Remove(remove.GetPod(), node.Node().Name)
	}
	return nil
}

// Filter says whether the pod may go to the node.
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

// ownerWait tells PostFilter which owner the pod waits for, or for news of, and why in words.
type ownerWait struct {
	owner kube.OwnerKey
	why   string
	// outgrown is what was known of the workload that the pod has outgrown, and until is how long the pod waits for news of it; nil if the
	// owner is not known at all.
	outgrown *decision.Workload
	until    time.Time
}

const ownerWaitKey fwk.StateKey = "spot-aware-scheduler.io/owner-wait"

func (w ownerWait) write(cycle fwk.CycleState) { cycle.Write(ownerWaitKey, w) }

// Clone returns w: it never changes.
func (w ownerWait) Clone() fwk.StateData { return w }
