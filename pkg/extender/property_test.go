package extender

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// truth is the actual state of the cluster, which the extender observes late. The scheduler asks
// about pods and binds them, or fails to bind them, to any node of the answer. Pods are deleted.
// Every event waits in a queue.
type truth struct {
	*world
	pods          []*v1.Pod
	binding       map[*v1.Pod]string // pods that the scheduler is binding, by node
	boundTo       map[*v1.Pod]string // the node of each bound pod
	deletedPods   map[*v1.Pod]bool
	pendingEvents []func()
	floor         int
	desired       int
	pool          int // the pool cap; 0 for none
}

// TestNeverOverBudget checks that no binding to spot exceeds the budget or a pool's cap, in any
// order of events.
func TestNeverOverBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &truth{
			world: newWorld(t), binding: map[*v1.Pod]string{}, boundTo: map[*v1.Pod]string{}, deletedPods: map[*v1.Pod]bool{},
			desired: rapid.IntRange(1, 6).Draw(rt, "desired"),
		}
		c.floor = rapid.IntRange(0, c.desired).Draw(rt, "floor")
		c.pool = rapid.IntRange(0, 2).Draw(rt, "cap")
		for i := range 2 {
			c.build(fmt.Sprintf("node on-demand-%d on-demand", i))
		}
		for i := range 4 {
			c.build(fmt.Sprintf("node spot-%d spot pool-%d/a", i, i/2))
		}
		line := fmt.Sprintf("deployment web %d min=%d", c.desired, c.floor)
		if c.pool > 0 {
			line += fmt.Sprintf(" cap=%d", c.pool)
		}
		c.build(line)
		rt.Repeat(map[string]func(*rapid.T){
			"create": c.create, "filter": c.filterPod, "bind": c.bind, "fail": c.fail, "delete": c.delete, "observe": c.observe,
			"": func(rt *rapid.T) { c.check(rt) },
		})
	})
}

func (c *truth) create(*rapid.T) {
	if len(c.pods) > 12 {
		return
	}
	pod := podOf("web", len(c.pods))
	c.pods = append(c.pods, pod)
	c.pendingEvents = append(c.pendingEvents, func() { c.created(pod) })
}

// pick returns a pod for which is returns true, or nil if there is none.
func (c *truth) pick(rt *rapid.T, is func(*v1.Pod) bool) *v1.Pod {
	some := slices.DeleteFunc(slices.Clone(c.pods), func(pod *v1.Pod) bool { return c.deletedPods[pod] || !is(pod) })
	if len(some) == 0 {
		return nil
	}
	return rapid.SampledFrom(some).Draw(rt, "pod")
}

func (c *truth) filterPod(rt *rapid.T) {
	pod := c.pick(rt, func(pod *v1.Pod) bool { return c.boundTo[pod] == "" && c.binding[pod] == "" })
	if pod == nil {
		return
	}
	// Other filters may have removed nodes.
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(c.names), 1, len(c.names), rapid.ID).Draw(rt, "nodes")
	if kept := c.filter(pod, names...); len(kept) > 0 {
		c.binding[pod] = rapid.SampledFrom(kept).Draw(rt, "chosen")
	}
}

func (c *truth) bind(rt *rapid.T) {
	pod := c.pick(rt, func(pod *v1.Pod) bool { return c.binding[pod] != "" })
	if pod == nil {
		return
	}
	c.boundTo[pod] = c.binding[pod]
	delete(c.binding, pod)
	node := c.boundTo[pod]
	c.pendingEvents = append(c.pendingEvents, func() { c.bound(pod, node) })
}

func (c *truth) fail(rt *rapid.T) {
	pod := c.pick(rt, func(pod *v1.Pod) bool { return c.binding[pod] != "" })
	if pod == nil {
		return
	}
	delete(c.binding, pod)
}

func (c *truth) delete(rt *rapid.T) {
	pod := c.pick(rt, func(*v1.Pod) bool { return true })
	if pod == nil {
		return
	}
	node := c.boundTo[pod]
	c.deletedPods[pod] = true
	delete(c.boundTo, pod)
	delete(c.binding, pod) // the API server rejects the binding
	last := pod.DeepCopy()
	last.Spec.NodeName = node
	c.pendingEvents = append(c.pendingEvents, func() { c.deleted(last) })
}

func (c *truth) observe(*rapid.T) {
	if len(c.pendingEvents) == 0 {
		return
	}
	c.pendingEvents[0]()
	c.pendingEvents = c.pendingEvents[1:]
}

func (c *truth) check(rt *rapid.T) {
	onSpot, inPool := 0, map[string]int{}
	for _, node := range c.boundTo {
		if strings.HasPrefix(node, "spot") {
			onSpot++
			inPool[node[len("spot-"):]]++
		}
	}
	if budget := c.desired - c.floor; onSpot > budget {
		rt.Fatalf("%d pods on spot, budget %d: %v", onSpot, budget, c.boundTo)
	}
	for first, second := range map[string]string{"0": "1", "2": "3"} {
		if n := inPool[first] + inPool[second]; c.pool > 0 && n > c.pool {
			rt.Fatalf("%d pods in one pool, cap %d: %v", n, c.pool, c.boundTo)
		}
	}
}
