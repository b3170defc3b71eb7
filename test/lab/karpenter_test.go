package lab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKarpenter starts Karpenter and pods that fit on no node: Karpenter launches a node.
func TestKarpenter(t *testing.T) {
	cp, client := startLab(t, Options{PodStartup: 100 * time.Millisecond})
	if _, err := cp.StartStockScheduler(t.Context()); err != nil {
		t.Fatal(err)
	}
	karpenter, err := cp.StartKarpenter(t.Context(), KarpenterOptions{NodePools: []NodePool{
		{Name: "spot", CapacityTypes: []string{Spot}, Weight: 10, CPULimit: "0"},
		{Name: "on-demand", CapacityTypes: []string{OnDemand}, Labels: map[string]string{"team": "a"}},
	}})
	must(t, err)
	waitUntilReady(t, client, createDeployment(t, client, "web", corev1.DefaultSchedulerName, 5))
	// The pool with the greater weight has no capacity.
	type node struct{ Pool, Capacity, Team, Type string }
	provisioned := func() (got []node) {
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, n := range nodes.Items {
			got = append(got, node{n.Labels[KarpenterPoolLabel], n.Labels[KarpenterCapacityLabel], n.Labels["team"], n.Labels[corev1.LabelInstanceTypeStable]})
		}
		return got
	}
	want := []node{{"on-demand", OnDemand, "a", DefaultKarpenterTypes[0]}}
	if diff := cmp.Diff(want, provisioned()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	types, err := cp.KarpenterTypes(DefaultKarpenterTypes[0])
	must(t, err)
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	allocatable := nodes.Items[0].Status.Allocatable
	if got, want := allocatable.Cpu().MilliValue(), types[0].CPUMilli; got != want {
		t.Errorf("the node has %dm CPU, KarpenterTypes reports %dm", got, want)
	}
	if got, want := allocatable.Memory().Value(), types[0].MemoryMiB<<20; got != want {
		t.Errorf("the node has %d bytes of memory, KarpenterTypes reports %d", got, want)
	}
	if got, want := allocatable.Pods().Value(), types[0].Pods; got != want {
		t.Errorf("the node has room for %d pods, KarpenterTypes reports %d", got, want)
	}
	metrics, err := karpenter.Metrics(t.Context())
	must(t, err)
	if !strings.Contains(metrics, "karpenter_nodeclaims_created_total") {
		t.Error("Karpenter's metrics do not count NodeClaims")
	}

	// ApplyNodePool replaces the specification of a NodePool while Karpenter runs.
	must(t, cp.ApplyNodePool(t.Context(), NodePool{Name: "spot", CapacityTypes: []string{Spot}, Weight: 10}))
	waitUntilReady(t, client, createDeployment(t, client, "more", corev1.DefaultSchedulerName, 10))
	eventually(t, "Karpenter to launch a spot node", func(context.Context) error {
		got := provisioned()
		for _, n := range got {
			if n.Pool == "spot" && n.Capacity == Spot {
				return nil
			}
		}
		return fmt.Errorf("the nodes are %v", got)
	})
}

func TestKarpenterTypes(t *testing.T) {
	root, err := FindRoot()
	must(t, err)
	cp := &ControlPlane{Root: root}
	got, err := cp.KarpenterTypes("c-2x-amd64-linux")
	must(t, err)
	want := []KarpenterType{{
		Name: "c-2x-amd64-linux", CPUMilli: 1900, MemoryMiB: 4086, Pods: 32,
		Price: map[string]float64{Spot: 0.038006477107199996, OnDemand: 0.054294967296},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := cp.KarpenterTypes("m5.large"); err == nil || !strings.Contains(err.Error(), `"m5.large"`) {
		t.Errorf("an unknown type: %v, want an error that names it", err)
	}
}
