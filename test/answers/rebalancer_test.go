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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/cluster"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// elsewhere is the node that the pod stands on which the rebalancer is to replace. It takes no pods, and says nothing of its capacity type,
// so that it does not make a cluster one whose nodes have labels.
const elsewhere = "elsewhere"

// noRoom is what Room says of a node that is closed, for whatever reason.
const noRoom = "no node has room for it"

// rebalancing is what spot-controller plans with.
type rebalancing struct {
	*testing.T
	client kubernetes.Interface
	reader *cluster.Reader
	pod    string
	nodes  []string
}

func newRebalancing(t *testing.T, c *scenario) *rebalancing {
	t.Helper()
	standing := *c
	standing.pod = c.pod.DeepCopy()
	standing.pod.Spec.NodeName = elsewhere
	standing.objects = append(slices.Clone(c.objects), node(elsewhere, func(n *v1.Node) { n.Spec.Unschedulable = true }, noPool))
	policy, signals := c.readPolicy(t)
	r := &rebalancing{T: t, client: standing.client(), pod: c.pod.Name, nodes: c.nodes()}
	factory := informers.NewSharedInformerFactory(r.client, 0)
	var err error
	if r.reader, err = cluster.NewReader(factory, policy, signals, profile, 0); err != nil {
		t.Fatal(err)
	}
	start(t, factory)
	return r
}

// open cordons all nodes but some.
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
	synctest.Wait() // until the informer has the nodes
}

// replace asks where a replacement of the pod would be placed.
func (r *rebalancing) replace() (to, why string) {
	r.Helper()
	p, snapshot := r.find()
	node, why := cluster.NewRoom(snapshot).Replace(p, decision.Unassigned)
	if node == nil {
		return "", why
	}
	return node.Name, ""
}

// find returns the pod in a new Snapshot.
func (r *rebalancing) find() (*cluster.Pod, *cluster.Snapshot) {
	r.Helper()
	snapshot, err := r.reader.Snapshot(time.Now())
	if err != nil {
		r.Fatal(err)
	}
	i := slices.IndexFunc(snapshot.Pods, func(p *cluster.Pod) bool { return p.Name == r.pod })
	if i < 0 {
		r.Fatalf("the pod %s is not in the snapshot", r.pod)
	}
	return snapshot.Pods[i], snapshot
}

// answers asks for each node with all others closed.
func (r *rebalancing) answers() answers {
	r.Helper()
	all := answers{}
	for _, name := range r.nodes {
		r.open(name)
		to, why := r.replace()
		if to != "" && to != name {
			r.Fatalf("the pod goes to %s, which is cordoned", to)
		}
		if to == "" && why == "" {
			r.Fatalf("the pod goes nowhere, and nothing says why")
		}
		all[name] = strings.TrimPrefix(why, "no node that the policy permits has room for it: ")
	}
	return all
}

// best returns where the pod goes if all nodes are open; "" for nowhere.
func (r *rebalancing) best() string {
	r.Helper()
	r.open(r.nodes...)
	to, _ := r.replace()
	return to
}
