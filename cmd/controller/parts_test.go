package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
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
	if selects(namespaces, nil) != nil {
		t.Error("without a selector namespaces are filtered")
	}
	for selector, want := range map[string]map[string]bool{
		"team=a":  {"shop": true, "mail": false, "unknown": false},
		"team!=a": {"shop": false, "mail": true, "unknown": false},
	} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range want {
			if got := selects(namespaces, parsed)(name); got != want {
				t.Errorf("%s selects %s: %t, want %t", selector, name, got, want)
			}
		}
	}
}

// Renewals of Leases, 500 per second in a large cluster, trigger no round.
func TestLeasesTriggerNoRound(t *testing.T) {
	settings, err := controller.Read([]byte("apiVersion: spot-aware-scheduler.io/v1alpha1\nkind: SpotControllerConfiguration\n"))
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	factory := app.NewInformers(client)
	parts, err := join(&setup{Settings: settings, policy: &decision.Policy{}, signals: providers.Signals()}, factory, nil, client, noEvents{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	leases := factory.InformerFor(&coordinationv1.Lease{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		t.Error("Leases are not watched")
		return coordinationinformers.NewLeaseInformer(client, v1.NamespaceNodeLease, 0, cache.Indexers{})
	})
	if slices.Contains(parts.watched, leases) {
		t.Error("a round follows every renewal of a Lease")
	}
	if !slices.Contains(parts.watched, factory.Core().V1().Namespaces().Informer()) {
		t.Error("no round follows a change of a Namespace")
	}
}

// The reasons for which autoscalers add nodes follow from the settings of the autoscaler mode.
func TestBuyingSettings(t *testing.T) {
	heal := []migration.Reason{migration.Heal, migration.Assign, migration.Drain, migration.Requested}
	all := append(slices.Clone(heal), migration.ReturnToSpot)
	for name, test := range map[string]struct {
		config                            string
		buying                            []migration.Reason
		gating, buyForReturn, healRunning bool
	}{
		"off":                  {"gating: {enabled: false, buyForReturn: true, healRunning: true}", nil, false, false, false},
		"on":                   {"gating: {enabled: true}", all, true, true, true},
		"no label for spot":    {`gating: {enabled: true, spotLabel: ""}`, heal, true, false, true},
		"not for return":       {"gating: {enabled: true, buyForReturn: false}", heal, true, false, true},
		"not for running pods": {"gating: {enabled: true, healRunning: false}", all, true, true, false},
		"no heal":              {"gating: {enabled: true}\nrebalance: {heal: false}", all, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			settings, err := controller.Read([]byte("apiVersion: spot-aware-scheduler.io/v1alpha1\nkind: SpotControllerConfiguration\n" + test.config))
			if err != nil {
				t.Fatal(err)
			}
			s := &setup{Settings: settings}
			moves, planned := migrationSettings(s, true), rebalanceSettings(s)
			if diff := cmp.Diff(test.buying, moves.Buying); diff != "" {
				t.Errorf("reasons to buy for (-want +got):\n%s", diff)
			}
			if blind := migrationSettings(s, false); blind.Buying != nil {
				t.Errorf("without the admission policy autoscalers add nodes for %v", blind.Buying)
			}
			if moves.NodeStartup != 3*time.Minute {
				t.Errorf("a node starts within %s, want the default of 3m", moves.NodeStartup)
			}
			got, want := []bool{planned.Gating, planned.BuyForReturn, planned.HealRunning}, []bool{test.gating, test.buyForReturn, test.healRunning}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("mode, return and running replicas (-want +got):\n%s", diff)
			}
		})
	}
}
