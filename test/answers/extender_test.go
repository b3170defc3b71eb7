package answers_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender"
)

// extending is an extender as a scheduler uses it.
type extending struct {
	*testing.T
	handler http.Handler
	nodes   []string
}

func newExtending(t *testing.T, c *scenario) *extending {
	t.Helper()
	policy, signals := c.readPolicy(t)
	factory := informers.NewSharedInformerFactory(c.client(), 0)
	decides, err := extender.New(profile, policy, signals, factory, events.NewFakeRecorder(100), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	synced, err := decides.Watch(factory)
	if err != nil {
		t.Fatal(err)
	}
	start(t, factory)
	if !synced() {
		t.Fatal("the extender has not counted the objects in its informers")
	}
	return &extending{t, extender.NewHandler(decides, leader{}), c.nodes()}
}

// leader makes the extender decide itself.
type leader struct{}

func (leader) Leads() error   { return nil }
func (leader) Leader() string { return "" }

// filter calls the filter verb like a scheduler with nodeCacheCapable in its configuration.
func (e *extending) filter(pod *v1.Pod, nodes ...string) *extenderv1.ExtenderFilterResult {
	e.Helper()
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes})
	if err != nil {
		e.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	e.handler.ServeHTTP(recorder, httptest.NewRequestWithContext(e.Context(), http.MethodPost, "/filter", bytes.NewReader(body)))
	result := &extenderv1.ExtenderFilterResult{}
	if err := json.Unmarshal(recorder.Body.Bytes(), result); err != nil || recorder.Code != http.StatusOK {
		e.Fatalf("status %d, %v: %s", recorder.Code, err, recorder.Body)
	}
	return result
}

// answers filters each node in a separate request, because the extender gives reasons only if no
// node remains.
func (e *extending) answers(pod *v1.Pod) answers {
	e.Helper()
	all := answers{}
	for _, name := range e.nodes {
		result := e.filter(pod, name)
		if result.Error != "" {
			e.Fatalf("filter of %s: %s", name, result.Error)
		}
		maps.Copy(all, result.FailedAndUnresolvableNodes)
		for _, admitted := range *result.NodeNames {
			if _, refused := all[admitted]; refused {
				e.Errorf("node %s is both refused and admitted", admitted)
			}
			all[admitted] = ""
		}
	}
	return all
}

// feasible returns the nodes that remain if all nodes are in one request.
func (e *extending) feasible(pod *v1.Pod) []string {
	e.Helper()
	result := e.filter(pod, e.nodes...)
	if result.Error != "" {
		e.Fatalf("filter of all nodes: %s", result.Error)
	}
	feasible := slices.Clone(*result.NodeNames)
	slices.Sort(feasible)
	return feasible
}
