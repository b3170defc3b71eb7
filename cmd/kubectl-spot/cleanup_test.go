package main

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Without --yes, cleanup only reads, which the server of the test requires. It refuses if a list is
// denied, because a ReplicaSet that is not listed would seem to be gone, and its pod be deleted.
func TestCleanup(t *testing.T) {
	gated := clustertest.NewPod("gated")
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: spot.CapacityGate}}
	forged := clustertest.NewPod("forged")
	forged.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = spot.ReleasedHash
	forged.Annotations = map[string]string{spot.ReleasedAnnotation: "\x1b[2J"}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "web-protected", Labels: map[string]string{spot.ProtectLabel: "true"}}}
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller", Labels: map[string]string{
		"app.kubernetes.io/name": "spot-controller", "app.kubernetes.io/component": "controller"}}}
	left := []runtime.Object{gated, forged, budget}
	const table = "KIND                  NAMESPACE   NAME            CHANGE\n" +
		"PodDisruptionBudget   bank        web-protected   delete it\n" +
		"Pod                   shop        gated           remove gate spot-aware-scheduler.io/capacity\n" +
		"Nothing was changed. To make these changes, run the same command with --yes.\n"
	const forgedMark = "warning: pod/forged of namespace shop keeps a mark: it is released: annotation spot-aware-scheduler.io/released does not parse: invalid character '\\x1b' looking for beginning of value\n"
	const waiting = "warning: 2 pods wait for scheduler spot-aware-scheduler and cannot start without it: shop/forged, shop/gated (" + docsURL + "uninstall.md)\n"
	for name, test := range map[string]struct {
		line, denied, out, err string
		status                 int
	}{
		"table":    {line: "cleanup", out: table, err: forgedMark + waiting},
		"names":    {line: "cleanup -o name", out: "poddisruptionbudget.policy/web-protected\npod/gated\n", err: forgedMark + waiting},
		"for jq":   {line: "cleanup -o jsonpath={.kind},{.items[*].change},{.left[0].name},{.waiting}", out: `SpotCleanup,delete it remove gate spot-aware-scheduler.io/capacity,forged,["shop/forged","shop/gated"]`, err: forgedMark + waiting},
		"nothing":  {line: "cleanup -n elsewhere", out: "Nothing is left.\n"},
		"again":    {line: "cleanup -n elsewhere --yes", out: "Nothing is left.\n"},
		"no list":  {line: "cleanup --yes", denied: "replicasets", err: "error: replicasets.apps is forbidden: user cannot list resource \"replicasets\" in API group \"apps\"\n", status: 1},
		"argument": {line: "cleanup pods", err: "error: unknown command \"pods\" for \"kubectl spot cleanup\"; try kubectl spot cleanup --help\n", status: 2},
	} {
		t.Run(name, func(t *testing.T) {
			out, err, status := execute(t, append(strings.Fields(test.line), "--kubeconfig="+cluster(t, test.denied, left...))...)
			if out != test.out || err != test.err || status != test.status {
				t.Errorf("exit status %d, want %d:\n%s\nwant:\n%s\nerrors:\n%s\nwant:\n%s", status, test.status, out, test.out, err, test.err)
			}
		})
	}
	out, err, status := execute(t, "cleanup", "--yes", "--kubeconfig="+cluster(t, "", gated, controller))
	if want := "Deployment kube-system/spot-controller exists"; status != 1 || out != "" || !strings.Contains(err, want) {
		t.Errorf("with a controller: exit status %d, want 1 and %q\n%s%s", status, want, out, err)
	}
}

// A change affects exactly the version of the object that was read. An object that was changed
// meanwhile is read again, and a failure does not prevent other changes.
func TestCleanupRequests(t *testing.T) {
	const namespace = clustertest.Namespace
	pod := func(name string) *v1.Pod {
		p := clustertest.NewPod(name)
		p.ResourceVersion = "7"
		return p
	}
	node := &snapshot.Node{Node: clustertest.NewNode("n", "spot", "m/a")}
	items := []report.CleanupItem{
		{Ref: report.Ref{Kind: "Node", Name: "n"}, Mark: &interruption.Mark{Node: node}},
		{Ref: report.Ref{Kind: "Pod", Namespace: namespace, Name: "changed"}, Pod: pod("changed"), Patch: &workload.PodPatch{}},
		{Ref: report.Ref{Kind: "Pod", Namespace: namespace, Name: "orphan"}, Pod: pod("orphan")},
		{Ref: report.Ref{Kind: "Pod", Namespace: namespace, Name: "gone"}, Pod: pod("gone")},
		{Ref: report.Ref{Kind: "PodDisruptionBudget", Namespace: namespace, Name: "b"}, UID: clustertest.UID("b")},
	}
	client := fake.NewClientset(node.Node, pod("changed"), pod("orphan"), &policyv1.PodDisruptionBudget{ObjectMeta: clustertest.Meta("b")})
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Resource == "nodes" {
			return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "n", nil)
		}
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "changed", nil)
	})
	o, failed := &options{client: client}, map[report.Ref]error{}
	done := o.change(t.Context(), items, failed)
	if len(done) != 2 || done[0].Name != "orphan" || done[1].Name != "b" {
		t.Errorf("changed %v, want orphan and b", done)
	}
	if len(failed) != 1 || !apierrors.IsForbidden(failed[items[0].Ref]) {
		t.Errorf("failed %v, want the node", failed)
	}
	deleted := map[string]metav1.Preconditions{}
	for _, action := range client.Actions() {
		if d, ok := action.(clienttesting.DeleteActionImpl); ok && d.DeleteOptions.Preconditions != nil {
			deleted[d.Name] = *d.DeleteOptions.Preconditions
		}
	}
	clustertest.Equal(t, "preconditions", map[string]metav1.Preconditions{
		"orphan": {UID: new(clustertest.UID("orphan")), ResourceVersion: new("7")},
		"gone":   {UID: new(clustertest.UID("gone")), ResourceVersion: new("7")},
		"b":      {UID: new(clustertest.UID("b"))},
	}, deleted)
	if again := o.change(t.Context(), items[:1], failed); len(again) > 0 || len(client.Actions()) != len(items) {
		t.Errorf("%d requests, want no second one for the node", len(client.Actions()))
	}
}
