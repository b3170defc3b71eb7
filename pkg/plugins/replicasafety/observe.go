package replicasafety

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/placement"
)

// observe looks at the informer caches, at every scrape of the metrics. It must not be called concurrently.
func (p *Plugin) observe() placement.Observed {
	seen := placement.Observed{
		CachesSynced: p.synced(), Bound: map[placement.Standing]int{}, Nodes: map[decision.Capacity]int{},
	}
	seen.WaitingForOnDemand, seen.LongestWait = p.waiting.ForOnDemand()
	nodes := p.readNodes()
	for _, facts := range nodes {
		seen.Nodes[facts.Capacity]++
	}
	now, unmet := p.clock.Now(), map[types.UID]time.Time{}
	for uid, w := range p.liveWorkloads(nodes) {
		deficit := decision.FloorDeficit(w.floor, w.live, w.onDemand)
		if deficit > 0 {
			since, before := p.unmetSince[uid]
			if !before {
				since = now
			}
			unmet[uid] = since
			seen.FloorsUnmet++
			seen.FloorDeficit += deficit
			seen.LongestDeficit = max(seen.LongestDeficit, now.Sub(since))
		}
		of := func(capacity decision.CapacityType, all, floor, fixed int) {
			floor = min(all, floor)
			seen.Bound[placement.Standing{Capacity: capacity, Floor: true}] += floor
			seen.Bound[placement.Standing{Capacity: capacity}] += min(all-floor, all-fixed)
		}
		of(decision.OnDemand, w.onDemand, w.floor, w.onlyOnDemand)
		of(decision.Spot, w.spot, deficit, 0)
	}
	p.unmetSince = unmet
	return seen
}

// readNodes reads all nodes of the informer cache; like the counter, it lets nodes settle only where others are or were labelled.
func (p *Plugin) readNodes() map[string]decision.Node {
	nodes, err := p.nodes.List(labels.Everything())
	if err != nil {
		return nil
	}
	now := p.clock.Now()
	labeled := p.labels.Seen()
	read := make(map[string]decision.Node, len(nodes))
	for _, node := range nodes {
		read[node.Name], _ = p.reader.Read(node, labeled, now)
	}
	return read
}

// workload is one workload's pods. Its floor is the largest that any of its revisions asks for. onlyOnDemand are those of onDemand that
// cannot be on spot by their own selector: they make up the floor first.
type workload struct{ floor, live, onDemand, onlyOnDemand, spot int }

// liveWorkloads counts the live pods of this profile, bound or not, by workload, over all revisions. Released pods are left out: their
// replacements count, and each by itself would look like a workload of one replica.
func (p *Plugin) liveWorkloads(nodes map[string]decision.Node) map[types.UID]*workload {
	pods, err := p.pods.List(labels.Everything())
	if err != nil {
		return nil
	}
	workloads := map[types.UID]*workload{}
	byRevision := map[types.UID]*workload{} // the owner is looked up once a revision
	for _, pod := range pods {
		if pod.Spec.SchedulerName != p.profile || !kube.Live(pod) || kube.Released(pod) || !kube.HasOpinion(pod) {
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
		if node, ok := nodes[pod.Spec.NodeName]; ok && node.Capacity.Type == decision.OnDemand {
			w.onDemand++
			if kube.OnlyOnDemand(pod, p.policy) {
				w.onlyOnDemand++
			}
		} else if ok {
			w.spot++
		}
	}
	return workloads
}
