package integration

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// spotBinding lists a revision's pods on spot nodes just after one more was bound there.
type spotBinding struct {
	app  string
	at   time.Time
	pods map[string]bool // names of the revision's live pods on spot nodes
}

// watchSpot records the bindings to spot nodes from now on. The returned function stops the
// recording and returns the moments.
func (s *scenario) watchSpot() (end func() []spotBinding) {
	s.Helper()
	list, err := client.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{LabelSelector: lab.CapacityLabel + "=" + lab.Spot})
	s.Must(err)
	isSpot := map[string]bool{}
	for _, node := range list.Items {
		isSpot[node.Name] = true
	}

	var mu sync.Mutex
	var moments []spotBinding
	revisions := map[types.UID]map[string]bool{}
	update := func(now time.Time, pod *v1.Pod, deleted bool) {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || !isSpot[pod.Spec.NodeName] {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		onSpot := revisions[owner.UID]
		if onSpot == nil {
			onSpot = map[string]bool{}
			revisions[owner.UID] = onSpot
		}
		if deleted || pod.DeletionTimestamp != nil {
			delete(onSpot, pod.Name)
		} else if !onSpot[pod.Name] {
			onSpot[pod.Name] = true
			moments = append(moments, spotBinding{pod.Labels["app"], now, maps.Clone(onSpot)})
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.Namespace))
	ctx, cancel := context.WithCancel(s.Ctx)
	s.Must(live.Observe(ctx, factory, factory.Core().V1().Pods().Informer(), update))
	s.Cleanup(cancel)
	return func() []spotBinding {
		cancel()
		factory.Shutdown()
		return moments
	}
}

// requireWithinBudgets fails if a revision ever had more pods on spot than the budget of its app.
// It does not count pods that rollout relief placed there.
func (s *scenario) requireWithinBudgets(moments []spotBinding, budgets map[string]int) {
	s.Helper()
	if len(moments) == 0 {
		s.Error("no pod was ever bound to Spot: nothing was checked")
	}
	relieved, err := s.eventsOf(s.Namespace, "RolloutRelief")
	s.Must(err)
	for _, m := range moments {
		maps.DeleteFunc(m.pods, func(pod string, _ bool) bool { _, ok := relieved[pod]; return ok })
		if len(m.pods) > budgets[m.app] {
			s.Errorf("%s: %d pods of one revision on spot at %s, want at most %d: %v", m.app, len(m.pods), m.at, budgets[m.app], m.pods)
		}
	}
}
