package replicasafety

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// observe looks at the informer caches, at every scrape of the metrics.
func (p *Plugin) observe() placement.Observed {
	seen := placement.Observed{WaitingForOnDemand: p.waiting.ForOnDemand(), Nodes: map[decision.Capacity]int{}}
	onDemand := map[string]bool{}
	for name, facts := range p.readNodes() {
		seen.Nodes[facts.Capacity]++
		onDemand[name] = facts.Capacity.Type == decision.OnDemand
	}
	for _, w := range p.liveWorkloads(onDemand) {
		if deficit := decision.FloorDeficit(w.floor, w.live, w.onDemand); deficit > 0 {
			seen.FloorsUnmet++
			seen.FloorDeficit += deficit
		}
	}
	return seen
}

// readNodes reads all nodes of the informer cache; like the counter, it lets nodes settle only where others are labelled.
func (p *Plugin) readNodes() map[string]decision.Node {
	nodes, err := p.nodes.List(labels.Everything())
	if err != nil {
		return nil
	}
	now := p.clock.Now()
	labeled := false
	for _, node := range nodes {
		facts, _ := p.reader.Read(node, false, now)
		labeled = labeled || facts.Capacity.Labeled()
	}
	read := make(map[string]decision.Node, len(nodes))
	for _, node := range nodes {
		read[node.Name], _ = p.reader.Read(node, labeled, now)
	}
	return read
}

// workload is one workload's pods. Its floor is the largest that any of its revisions asks for.
type workload struct{ floor, live, onDemand int }

// liveWorkloads counts the live pods of this profile, bound or not, by workload, over all revisions.
func (p *Plugin) liveWorkloads(onDemand map[string]bool) map[types.UID]*workload {
	pods, err := p.pods.List(labels.Everything())
	if err != nil {
		return nil
	}
	workloads := map[types.UID]*workload{}
	byRevision := map[types.UID]*workload{} // the owner is looked up once a revision
	for _, pod := range pods {
		if pod.Spec.SchedulerName != p.profile || !kube.Live(pod) || !kube.HasOpinion(pod) {
			continue
		}
		revision := kube.RevisionOf(pod)
		w, known := byRevision[revision]
		if !known {
			if subject, err := p.owners.Subject(pod); err == nil && !subject.Pod.OnlySpot {
				if w = workloads[subject.WorkloadUID]; w == nil {
					w = &workload{}
					workloads[subject.WorkloadUID] = w
				}
				settings, _ := p.policy.Settings(&subject.Pod)
				w.floor = max(w.floor, settings.Floor(subject.Pod.Workload.Desired))
			}
			byRevision[revision] = w
		}
		if w == nil {
			continue
		}
		w.live++
		if pod.Spec.NodeName != "" && onDemand[pod.Spec.NodeName] {
			w.onDemand++
		}
	}
	return workloads
}
