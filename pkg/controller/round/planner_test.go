package round

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

func TestSelects(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, team := range map[string]string{"shop": "a", "mail": "b"} {
		if err := indexer.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}); err != nil {
			t.Fatal(err)
		}
	}
	namespaces := corelisters.NewNamespaceLister(indexer)
	for _, everything := range []*metav1.LabelSelector{nil, {}} {
		if selects(namespaces, everything) != nil {
			t.Errorf("%v filters namespaces", everything)
		}
	}
	for selector, want := range map[string]map[string]bool{
		"team=a":         {"shop": true, "mail": false, "unknown": false},
		"team notin (a)": {"shop": false, "mail": true, "unknown": false},
	} {
		parsed, err := metav1.ParseToLabelSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		selected := selects(namespaces, parsed)
		for name, want := range want {
			if got := selected(name); got != want {
				t.Errorf("%s selects %s: %t, want %t", selector, name, got, want)
			}
		}
	}
}

// Renewals of Leases, 500 per second in a large cluster, trigger no round.
func TestLeasesTriggerNoRound(t *testing.T) {
	settings, err := controller.Read([]byte("apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"))
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	factory := app.NewInformers(client)
	planner, err := NewPlanner(Config{SpotControllerConfiguration: settings, Policy: &decision.Policy{}, Signals: providers.Signals()}, factory,
		Clients{Writer: client, Live: client, Recorder: &events.FakeRecorder{}})
	if err != nil {
		t.Fatal(err)
	}
	leases := factory.InformerFor(&coordinationv1.Lease{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		t.Error("Leases are not watched")
		return coordinationinformers.NewLeaseInformer(client, v1.NamespaceNodeLease, 0, cache.Indexers{})
	})
	if slices.Contains(planner.Informers(), leases) {
		t.Error("a round follows every renewal of a Lease")
	}
	if !slices.Contains(planner.Informers(), factory.Core().V1().Namespaces().Informer()) {
		t.Error("no round follows a change of a Namespace")
	}
}

// A write that a webhook refuses is reported on the object concerned, with the answer of the API
// server.
func TestRefusedWrites(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	clients := Clients{Recorder: recorder}
	clients.reportRefused(&v1.Node{}, spot.ReasonRefused)(apierrors.NewBadRequest(`admission webhook "guard" denied the request: ` + strings.Repeat("a", 5000)))
	if got := <-recorder.Events; !strings.HasPrefix(got, "Warning ChangeRefused ") || !strings.Contains(got, `webhook "guard" denied`) || len(got) > 1024 {
		t.Errorf("event %q, want a short Warning with the name of the webhook", got)
	}
}
