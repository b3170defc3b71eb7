package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// tallied is the result of one full recount.
type tallied struct {
	Nodes       map[string]decision.Node
	Placed      map[workload.OwnerKey]decision.PlacedPods
	Siblings    map[workload.OwnerKey]map[string]decision.Siblings
	NextSettled time.Time
	Special     int
}

// recount counts the snapshot without any optimization.
func recount(reader *node.Reader, infos []*nodeInfo, at time.Time) tallied {
	want := tallied{map[string]decision.Node{}, map[workload.OwnerKey]decision.PlacedPods{}, map[workload.OwnerKey]map[string]decision.Siblings{}, time.Time{}, 0}
	for _, info := range infos {
		facts, until := reader.Read(info.node, at)
		want.Nodes[info.node.Name] = facts
		if facts.Capacity.Type == decision.Spot || facts.Signal != decision.NoSignal {
			want.Special++
		}
		if facts.Capacity.Source == decision.Settling && (want.NextSettled.IsZero() || until.Before(want.NextSettled)) {
			want.NextSettled = until
		}
	}
	for _, revision := range revisions {
		placed, siblings := decision.PlacedPods{}, map[string]decision.Siblings{}
		for _, info := range infos {
			facts := want.Nodes[info.node.Name]
			for _, pod := range info.pods {
				pod := pod.GetPod()
				if pod.DeletionTimestamp != nil || len(pod.OwnerReferences) == 0 || workload.RevisionOf(pod) != revision {
					continue
				}
				if facts.Capacity.Type == decision.Spot {
					placed.Spot++
				} else {
					placed.OnDemand++
				}
				for _, other := range infos {
					s := siblings[other.node.Name]
					if other == info {
						s.OnNode++
					}
					sameZone := other.node.Labels[v1.LabelTopologyZone] == info.node.Labels[v1.LabelTopologyZone]
					if sameZone {
						s.InZone++
					}
					// Only spot nodes form a pool, because on-demand nodes are not reclaimed
					// together.
					spotThere := want.Nodes[other.node.Name].Capacity.Type == decision.Spot
					if sameZone && spotThere && facts.Capacity.Type == decision.Spot && want.Nodes[other.node.Name].Pool == facts.Pool {
						s.InPool++
					}
					siblings[other.node.Name] = s
				}
			}
		}
		if placed != (decision.PlacedPods{}) {
			want.Placed[revision], want.Siblings[revision] = placed, siblings
		}
	}
	return want
}

// incremental returns the counts of the Counter.
func incremental(c *Counter, infos []*nodeInfo) tallied {
	got := tallied{map[string]decision.Node{}, map[workload.OwnerKey]decision.PlacedPods{}, map[workload.OwnerKey]map[string]decision.Siblings{}, c.NextSettled(), c.spotOrSignaled}
	for name, n := range c.nodes {
		got.Nodes[name] = n.facts
	}
	for revision := range c.revisions { // all revisions, because forgotten ones must have been removed
		got.Placed[revision] = c.Placed(revision)
		siblings := map[string]decision.Siblings{}
		state := NewState(&workload.Subject{RevisionKey: revision}, decision.WorkloadSettings{}, decision.WaitTime{}, c)
		for _, info := range infos {
			if s := state.siblingsAround(c.nodes[info.node.Name]); s != (decision.Siblings{}) {
				siblings[info.node.Name] = s
			}
		}
		got.Siblings[revision] = siblings
	}
	return got
}

var revisions = []workload.OwnerKey{replicaSetKey("rs-0"), replicaSetKey("rs-1"), replicaSetKey("rs-2")}

// history is a cluster with random changes of its nodes, in the form of the scheduler's cache.
type history struct {
	infos      []*nodeInfo
	at         time.Time
	generation int64
	names      int
	backup     map[*nodeInfo]nodeInfo
}

// touch gives info a new generation.
func (h *history) touch(info *nodeInfo) {
	h.generation++
	info.generation = h.generation
}

func (h *history) any(t *rapid.T) *nodeInfo {
	if len(h.infos) == 0 {
		t.Skip("no node")
	}
	return rapid.SampledFrom(h.infos).Draw(t, "node")
}

// anyPod returns the node of a pod, and the index of the pod on this node.
func (h *history) anyPod(t *rapid.T) (*nodeInfo, int) {
	info := h.any(t)
	if len(info.pods) == 0 {
		t.Skip("no pod")
	}
	return info, rapid.IntRange(0, len(info.pods)-1).Draw(t, "pod")
}

// changePod replaces a pod by what change returns for it.
func (h *history) changePod(t *rapid.T, change func(*v1.Pod) *v1.Pod) {
	info, i := h.anyPod(t)
	info.pods = slices.Clone(info.pods)
	info.pods[i] = podInfo{pod: change(info.pods[i].GetPod())}
	h.touch(info)
}

// anyOwner returns the name of a ReplicaSet, or "" for a pod without a controller.
func anyOwner(t *rapid.T) string {
	return rapid.SampledFrom([]string{"rs-0", "rs-1", "rs-2", ""}).Draw(t, "owner")
}

func (h *history) labels(t *rapid.T) map[string]string {
	labels := map[string]string{}
	for _, label := range []struct {
		key    string
		values []string
	}{
		{spot.CapacityLabel, []string{"", "spot", "on-demand"}},
		{"karpenter.sh/capacity-type", []string{"", "", "spot", "on-demand"}},
		{v1.LabelInstanceTypeStable, []string{"", "m", "l"}},
		{v1.LabelTopologyZone, []string{"", "a", "b"}},
	} {
		if value := rapid.SampledFrom(label.values).Draw(t, label.key); value != "" {
			labels[label.key] = value
		}
	}
	return labels
}

// change replaces the Node object, like an update from the API server.
func (h *history) change(info *nodeInfo, how func(*v1.Node)) {
	info.node = info.node.DeepCopy()
	how(info.node)
	h.touch(info)
}

func (h *history) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"node is added": func(t *rapid.T) {
			info := &nodeInfo{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{
				Name:              fmt.Sprintf("node-%d", rapid.IntRange(0, 5).Draw(t, "name")),
				Labels:            h.labels(t),
				CreationTimestamp: metav1.NewTime(h.at.Add(-rapid.SampledFrom([]time.Duration{0, 10 * time.Second, time.Hour}).Draw(t, "age"))),
			}}}
			if slices.ContainsFunc(h.infos, func(other *nodeInfo) bool { return other.node.Name == info.node.Name }) {
				t.Skip("name taken")
			}
			h.touch(info)
			h.infos = slices.Insert(h.infos, rapid.IntRange(0, len(h.infos)).Draw(t, "place"), info)
		},
		"node is deleted": func(t *rapid.T) {
			gone := h.any(t)
			h.infos = slices.DeleteFunc(h.infos, func(info *nodeInfo) bool { return info == gone })
		},
		"node is recreated": func(t *rapid.T) {
			info := h.any(t)
			again := &nodeInfo{node: info.node.DeepCopy()}
			again.node.Labels = h.labels(t)
			h.touch(again) // generations are unique
			h.infos[slices.Index(h.infos, info)] = again
		},
		"relabelled": func(t *rapid.T) {
			h.change(h.any(t), func(n *v1.Node) { n.Labels = h.labels(t) })
		},
		"signal is set or cleared": func(t *rapid.T) {
			h.change(h.any(t), func(n *v1.Node) {
				if n.Spec.Taints == nil {
					n.Spec.Taints = []v1.Taint{{Key: spot.InterruptionTaint}}
				} else {
					n.Spec.Taints = nil
				}
			})
		},
		"stops reporting": func(t *rapid.T) {
			h.change(h.any(t), func(n *v1.Node) {
				n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(h.at)}}
			})
		},
		"pod is added": func(t *rapid.T) {
			info, owner := h.any(t), anyOwner(t)
			h.names++
			info.pods = append(slices.Clone(info.pods), podInfo{pod: podOf(fmt.Sprintf("pod-%d", h.names), owner)})
			h.touch(info)
		},
		"pod is deleted": func(t *rapid.T) {
			info, i := h.anyPod(t)
			info.pods = slices.Delete(slices.Clone(info.pods), i, i+1)
			h.touch(info)
		},
		"pod terminates": func(t *rapid.T) { h.changePod(t, terminating) },
		"pods are reordered": func(t *rapid.T) {
			info := h.any(t)
			info.pods = rapid.Permutation(info.pods).Draw(t, "order")
			h.touch(info)
		},
		"pod changes its controller": func(t *rapid.T) {
			h.changePod(t, func(pod *v1.Pod) *v1.Pod {
				changed := pod.DeepCopy()
				changed.OwnerReferences = podOf("", anyOwner(t)).OwnerReferences
				return changed
			})
		},
		"list is reordered": func(t *rapid.T) { h.infos = rapid.Permutation(h.infos).Draw(t, "order") },
		"time passes": func(t *rapid.T) {
			h.at = h.at.Add(time.Duration(rapid.IntRange(1, 45).Draw(t, "seconds")) * time.Second)
		},
		"snapshot is backed up": func(t *rapid.T) {
			h.backup = map[*nodeInfo]nodeInfo{}
			for _, info := range h.infos {
				h.backup[info] = *info
			}
		},
		"snapshot is restored": func(t *rapid.T) {
			for _, info := range h.infos {
				if old, ok := h.backup[info]; ok {
					*info = old // the generation is restored too
				}
			}
		},
	}
}

// informed sends the differences between two states of a cluster to a Cluster, like informers.
type informed struct {
	*Cluster
	nodes map[string]*v1.Node
	pods  map[types.UID]*v1.Pod
}

func (i *informed) update(infos []*nodeInfo, podsFirst bool) {
	nodes, pods := map[string]*v1.Node{}, map[types.UID]*v1.Pod{}
	for _, info := range infos {
		nodes[info.node.Name] = info.node
		for _, pod := range info.pods {
			bound := pod.GetPod().DeepCopy()
			bound.Spec.NodeName = info.node.Name
			pods[bound.UID] = bound
		}
	}
	updatePods := func() {
		for uid, pod := range pods {
			i.SetPod(i.pods[uid], pod)
		}
		for uid, pod := range i.pods {
			if pods[uid] == nil {
				i.SetPod(pod, nil)
			}
		}
	}
	if podsFirst {
		updatePods()
	}
	for name, node := range nodes {
		if i.nodes[name] != node {
			i.SetNode(node)
		}
	}
	for name := range i.nodes {
		if nodes[name] == nil {
			i.DeleteNode(name)
		}
	}
	if !podsFirst {
		updatePods()
	}
	i.nodes, i.pods = nodes, pods
}

// After any sequence of changes, incremental counts equal a full recount, from snapshots and from
// the events of informers.
func TestCounterAgainstRecount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{at: now}
		reader := testReader()
		c, events := NewCounter(reader), informed{Cluster: NewCluster(reader)}
		actions := h.actions()
		actions[""] = func(t *rapid.T) {
			if rapid.Bool().Draw(t, "nodes only") {
				c.UpdateNodes(snapshot(h.infos...), h.at) // the next Update counts
			} else {
				c.Update(snapshot(h.infos...), h.at)
				h.require(t, "counter", reader, c)
			}
			events.update(h.infos, rapid.Bool().Draw(t, "pods first"))
			if rapid.Bool().Draw(t, "without Refresh") {
				return
			}
			events.Refresh(h.at)
			h.require(t, "cluster", reader, events.Counter)
			if want, got := len(events.pods), len(events.bound); want != got || len(events.byName) != len(events.nodes) {
				t.Fatalf("%d bound pods on %d nodes, want %d on %d", got, len(events.byName), want, len(events.nodes))
			}
		}
		t.Repeat(actions)
	})
}

// require fails if the counts of c differ from a full recount. The next time at which a node is
// settled may be earlier than necessary.
func (h *history) require(t *rapid.T, name string, reader *node.Reader, c *Counter) {
	want, got := recount(reader, h.infos, h.at), incremental(c, h.infos)
	if !got.NextSettled.IsZero() && !got.NextSettled.After(h.at) || !want.NextSettled.IsZero() && (got.NextSettled.IsZero() || got.NextSettled.After(want.NextSettled)) {
		t.Fatalf("%s: NextSettled is %v, want a time after %v, at most %v", name, got.NextSettled, h.at, want.NextSettled)
	}
	got.NextSettled = want.NextSettled
	if diff := cmp.Diff(want, got, cmp.Transformer("nonzero", nonzero)); diff != "" {
		t.Fatalf("recount (-want) and %s (+got) differ:\n%s", name, diff)
	}
}

// nonzero omits the nodes without siblings around them.
func nonzero(siblings map[string]decision.Siblings) []string {
	var lines []string
	for name, s := range siblings {
		if s != (decision.Siblings{}) {
			lines = append(lines, fmt.Sprintf("%s %+v", name, s))
		}
	}
	slices.Sort(lines)
	return lines
}
