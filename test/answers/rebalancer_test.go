package answers_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// elsewhere is the node that runs the pod to replace. It is cordoned and has no capacity label, so
// the cluster does not count as one with labelled nodes.
const elsewhere = "elsewhere"

// noRoom is the reason of Room for any rejected node.
const noRoom = "no node has room for it"

// rebalancing is the planning state of spot-controller.
type rebalancing struct {
	*testing.T
	client kubernetes.Interface
	reader *snapshot.Reader
	pod    string
	nodes  []string
}

func newRebalancing(t *testing.T, c *scenario) *rebalancing {
	t.Helper()
	running := *c
	running.pod = c.pod.DeepCopy()
	running.pod.Spec.NodeName = elsewhere
	running.objects = append(slices.Clone(c.objects), newNode(elsewhere, func(n *v1.Node) { n.Spec.Unschedulable = true }, noPool))
	policy, signals := c.readPolicy(t)
	r := &rebalancing{T: t, client: running.client(), pod: c.pod.Name, nodes: c.nodes()}
	factory := informers.NewSharedInformerFactory(r.client, 0)
	var err error
	if r.reader, err = snapshot.NewReader(factory, policy, signals, workload.Scope{Profile: profile}, 0); err != nil {
		t.Fatal(err)
	}
	start(t, factory)
	return r
}

// open cordons all nodes except the given ones.
func (r *rebalancing) open(some ...string) {
	r.Helper()
	for _, name := range r.nodes {
		node, err := r.client.CoreV1().Nodes().Get(r.Context(), name, metav1.GetOptions{})
		if err != nil {
			r.Fatal(err)
		}
		node.Spec.Unschedulable = !slices.Contains(some, name)
		if _, err := r.client.CoreV1().Nodes().Update(r.Context(), node, metav1.UpdateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
	synctest.Wait() // until the informer has observed the nodes
}

// replace returns where a replacement of the pod would be placed.
func (r *rebalancing) replace() (to, why string) {
	r.Helper()
	p, snapshot := r.find()
	node, why := simulation.NewRoom(snapshot).Replace(p, decision.Unassigned)
	if node == nil {
		return "", why
	}
	return node.Name, ""
}

// find returns the pod in a new Snapshot.
func (r *rebalancing) find() (*snapshot.Pod, *snapshot.Snapshot) {
	r.Helper()
	s, err := r.reader.Snapshot(time.Now())
	if err != nil {
		r.Fatal(err)
	}
	i := slices.IndexFunc(s.Pods, func(p *snapshot.Pod) bool { return p.Name == r.pod })
	if i < 0 {
		r.Fatalf("the pod %s is not in the snapshot", r.pod)
	}
	return s.Pods[i], s
}

// answers evaluates each node with all others cordoned.
func (r *rebalancing) answers() answers {
	r.Helper()
	all := answers{}
	for _, name := range r.nodes {
		r.open(name)
		to, why := r.replace()
		if to != "" && to != name {
			r.Fatalf("the pod would run on %s, which is cordoned", to)
		}
		if to == "" && why == "" {
			r.Fatalf("the pod fits on no node, but the reason is empty")
		}
		all[name] = strings.TrimPrefix(why, "no node that the policy permits has room for it: ")
	}
	return all
}

// best returns the node of the pod if all nodes are open; "" for none.
func (r *rebalancing) best() string {
	r.Helper()
	r.open(r.nodes...)
	to, _ := r.replace()
	return to
}
