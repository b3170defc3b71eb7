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

// extending is an extender as it serves a scheduler.
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
		t.Fatal("the extender has not counted what its informers hold")
	}
	return &extending{t, extender.NewHandler(decides, leader{}, extender.NewForwarder(nil)), c.nodes()}
}

// leader decides itself.
type leader struct{}

func (leader) Leads() error   { return nil }
func (leader) Leader() string { return "" }

// ask asks about nodes as a scheduler does whose configuration says nodeCacheCapable.
func (e *extending) ask(pod *v1.Pod, nodes ...string) *extenderv1.ExtenderFilterResult {
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

// answers asks about each node on its own, because reasons are told only where no node is left.
func (e *extending) answers(pod *v1.Pod) answers {
	e.Helper()
	all := answers{}
	for _, name := range e.nodes {
		result := e.ask(pod, name)
		if result.Error != "" {
			e.Fatalf("asked about %s: %s", name, result.Error)
		}
		maps.Copy(all, result.FailedAndUnresolvableNodes)
		for _, kept := range *result.NodeNames {
			if _, refused := all[kept]; refused {
				e.Errorf("node %s is refused and kept", kept)
			}
			all[kept] = ""
		}
	}
	return all
}

// kept returns which of all nodes are left when the extender is asked about all at once.
func (e *extending) kept(pod *v1.Pod) []string {
	e.Helper()
	result := e.ask(pod, e.nodes...)
	if result.Error != "" {
		e.Fatalf("asked about all nodes: %s", result.Error)
	}
	kept := slices.Clone(*result.NodeNames)
	slices.Sort(kept)
	return kept
}
