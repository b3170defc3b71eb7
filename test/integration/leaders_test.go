package integration

import (
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/component-base/metrics/testutil"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// term describes the lease during the term of one leader.
type term struct {
	holder string
	// acquired is when the leader acquired the lease. renewed is its last renewal.
	acquired, renewed time.Time
}

// history records the lease and the bindings in the scenario's namespace, as watches report them.
type history struct {
	mu    sync.Mutex
	terms []term // without released leases
	nodes map[types.UID]string
	times []time.Time // when each pod was first seen with a node, in order
	moved []string    // pods that were on two nodes, with both nodes
}

// record starts the watches. They run until the test ends.
func (s *scenario) record() *history {
	s.Helper()
	h := &history{nodes: map[types.UID]string{}}
	system := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceSystem))
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.Namespace))
	s.Must(live.Observe(s.Ctx, system, system.Coordination().V1().Leases().Informer(), h.observeLease))
	s.Must(live.Observe(s.Ctx, own, own.Core().V1().Pods().Informer(), h.observePod))
	return h
}

func (h *history) observeLease(_ time.Time, lease *coordinationv1.Lease, _ bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lease.Name != "spot-aware-scheduler" || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return
	}
	if len(h.terms) == 0 || h.terms[len(h.terms)-1].holder != *lease.Spec.HolderIdentity {
		h.terms = append(h.terms, term{holder: *lease.Spec.HolderIdentity, acquired: lease.Spec.AcquireTime.Time})
	}
	h.terms[len(h.terms)-1].renewed = lease.Spec.RenewTime.Time
}

func (h *history) observePod(now time.Time, pod *v1.Pod, _ bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	node, was := pod.Spec.NodeName, h.nodes[pod.UID]
	if was != "" && node != was {
		h.moved = append(h.moved, fmt.Sprintf("%s: %s, then %q", pod.Name, was, node))
	}
	if node != "" && was == "" {
		h.nodes[pod.UID] = node
		h.times = append(h.times, now)
	}
}

// since returns all terms except the first n.
func (h *history) since(n int) []term {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.terms[min(n, len(h.terms)):])
}

// bound returns the number of pods that have been seen with a node.
func (h *history) bound() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.nodes)
}

// boundAfter returns when the first pod after the given time was seen to be bound. It returns the
// zero time if there is none.
func (h *history) boundAfter(moment time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.times {
		if at.After(moment) {
			return at
		}
	}
	return time.Time{}
}

// onTwoNodes returns the pods whose node changed.
func (h *history) onTwoNodes() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.moved)
}

// boundAtLeast returns a check that at least n pods have been seen with a node.
func (h *history) boundAtLeast(n int) func() error {
	return func() error {
		if bound := h.bound(); bound < n {
			return fmt.Errorf("%d pods are bound, want %d", bound, n)
		}
		return nil
	}
}

// hasLeader returns an error if no scheduler has held the lease yet.
func (h *history) hasLeader() error {
	if len(h.since(0)) == 0 {
		return fmt.Errorf("no scheduler leads")
	}
	return nil
}

// leader returns the index in all of the scheduler that leads.
func (s *scenario) leader(all []*lab.Process) int {
	s.Helper()
	leading := -1
	s.Eventually(soon, func() error {
		for i, p := range all {
			// A scheduler that is starting serves no metrics yet and does not lead.
			if leads, err := live.Metric(s.Ctx, p, "leader_election_master_status", map[string]string{"name": "kube-scheduler"}); err == nil && leads == 1 {
				leading = i
				return nil
			}
		}
		return fmt.Errorf("none of %d schedulers leads", len(all))
	})
	return leading
}

// bindingRequests returns the number of binding requests that the API server received since its
// start, by status code. 201 is a binding, and 409 means that the pod already has a node. The code
// differs from these if the client ended before the response.
func (s *scenario) bindingRequests() map[string]int {
	s.Helper()
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").Do(s.Ctx).Raw()
	s.Must(err)
	parsed := testutil.NewMetrics()
	s.Must(testutil.ParseMetrics(string(text), &parsed))
	codes := map[string]int{}
	for _, sample := range parsed["apiserver_request_total"] {
		if sample.Metric["resource"] == "pods" && sample.Metric["subresource"] == "binding" {
			codes[string(sample.Metric["code"])] += int(sample.Value)
		}
	}
	return codes
}

// requireBoundOnce fails the test in three cases. First, the API server accepted more bindings
// since before than the n bound pods. Second, a scheduler tried to bind a pod that had a node
// already. Third, a pod was seen on two nodes, or a node has more pods than slots.
func (s *scenario) requireBoundOnce(h *history, before map[string]int, n int) {
	s.Helper()
	codes := s.bindingRequests()
	for code := range codes {
		codes[code] -= before[code]
	}
	s.Logf("bindings by the API server's answer: %v", codes)
	if codes["201"] == 0 || codes["201"] > n {
		s.Errorf("%d bindings accepted for %d pods", codes["201"], n)
	}
	if codes["409"] > 0 {
		s.Errorf("%d attempts to bind a pod that already had a node", codes["409"])
	}
	if moved := h.onTwoNodes(); len(moved) > 0 {
		s.Errorf("pods on two nodes: %v", moved)
	}
	s.requireNoOverbooking()
}

// requireNoOverbooking fails the test for every node with more pods of the scenario than slots.
func (s *scenario) requireNoOverbooking() {
	s.Helper()
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	nodes, err := client.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	on := map[string]int64{}
	for _, pod := range pods {
		on[pod.Spec.NodeName]++
	}
	for _, node := range nodes.Items {
		if slots := node.Status.Allocatable.Cpu().Value(); on[node.Name] > slots {
			s.Errorf("%d pods on node %s, which has %d slots", on[node.Name], node.Name, slots)
		}
	}
}
