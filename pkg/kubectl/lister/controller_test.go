package lister_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// controllerObjects returns the Deployment and the ConfigMap of a controller.
func controllerObjects(config string) []runtime.Object {
	labels := map[string]string{"app.kubernetes.io/name": "spot-controller", "app.kubernetes.io/component": "controller"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller", Labels: labels}}
	d.Spec.Template.Spec = v1.PodSpec{
		Containers: []v1.Container{{Args: []string{"--config=/etc/c/controller.yaml"}, VolumeMounts: []v1.VolumeMount{{Name: "config", MountPath: "/etc/c"}}}},
		Volumes: []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "config"}}}}},
	}
	return []runtime.Object{d, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "config"}, Data: map[string]string{
		"controller.yaml": "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n" + config}}}
}

// lease returns the Lease of a controller that renewed it some time ago.
func lease(holder string, renewed time.Duration) *coordinationv1.Lease {
	at := metav1.NewMicroTime(clustertest.Now.Add(-renewed))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &at, AcquireTime: &at}}
}

// bindingIn returns the ClusterRoleBinding of an installation in a namespace.
func bindingIn(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "spot-controller"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "spot-controller", Namespace: namespace}},
	}
}

// in moves the namespaced objects to another namespace.
func in(namespace string, objects ...runtime.Object) []runtime.Object {
	for _, object := range objects {
		object.(metav1.Object).SetNamespace(namespace)
	}
	return objects
}

func TestReadController(t *testing.T) {
	labeled := func(name, team string) *v1.Namespace {
		return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
	}
	const selector = "rebalance: {namespaceSelector: {matchLabels: {team: a}}}"
	for name, test := range map[string]struct {
		objects      []runtime.Object
		denied       string
		wantInactive string
		wantMaxMoves int32 // 0: the default of 5
		wantGaps     string
		wantSelects  string
	}{
		"a running controller": {objects: append(controllerObjects("rebalance: {maxMoves: 7}"), lease("c", time.Second)), wantMaxMoves: 7},
		"clocks differ":        {objects: append(controllerObjects(""), lease("c", time.Minute))},
		"expired": {objects: append(controllerObjects(""), lease("c", 2*time.Minute)),
			wantInactive: "no controller is running (Lease kube-system/spot-controller was last renewed at 2026-03-01T11:58:00Z)"},
		"released": {objects: append(controllerObjects(""), lease("", time.Second)),
			wantInactive: "no controller is running (Lease kube-system/spot-controller was last renewed at 2026-03-01T11:59:59Z)"},
		"no Lease": {wantInactive: "no controller is running (Lease kube-system/spot-controller does not exist)"},
		"another namespace": {wantMaxMoves: 7,
			objects: append(in("spot", append(controllerObjects("rebalance: {maxMoves: 7}"), lease("c", time.Second))...), bindingIn("spot"))},
		"another namespace, expired": {objects: append(in("spot", append(controllerObjects(""), lease("c", 2*time.Minute))...), bindingIn("spot")),
			wantInactive: "no controller is running (Lease spot/spot-controller was last renewed at 2026-03-01T11:58:00Z)"},
		"another namespace, no Lease": {objects: []runtime.Object{bindingIn("spot"), lease("c", time.Second)},
			wantInactive: "no controller is running (Lease spot/spot-controller does not exist)"},
		"no right to read the namespace": {denied: "clusterrolebindings", wantMaxMoves: 7,
			objects: append(controllerObjects("rebalance: {maxMoves: 7}"), lease("c", time.Second), bindingIn("spot"))},
		"dry run": {objects: append(controllerObjects("dryRun: true"), lease("c", time.Second)),
			wantInactive: "the controller moves no pod (dryRun)"},
		"no Deployment": {objects: []runtime.Object{lease("c", time.Second)},
			wantGaps: "no configuration found: namespace kube-system has no Deployment with the labels app.kubernetes.io/name=spot-controller,app.kubernetes.io/component=controller: the shipped configuration of the controller is assumed"},
		"another version": {objects: append(controllerObjects("none: 1"), lease("c", time.Second)),
			wantGaps: "no configuration found: ConfigMap kube-system/config, key controller.yaml: none: Forbidden: unknown field"},
		"no right to read the Lease": {objects: controllerObjects("rebalance: {maxMoves: 7}"), denied: "leases", wantMaxMoves: 7,
			wantGaps: `cannot list resource "leases" in API group "coordination.k8s.io": whether a controller is running, and its pauses and failed moves, are unknown`},
		"no right to read ConfigMaps": {objects: append(controllerObjects(""), lease("c", time.Second)), denied: "configmaps",
			wantGaps: "the shipped configuration of the controller is assumed"},
		"some namespaces": {objects: append(controllerObjects(selector), lease("c", time.Second), labeled("shop", "a"), labeled("bank", "b")),
			wantSelects: "shop"},
		"no right to list namespaces": {objects: append(controllerObjects(selector), lease("c", time.Second)), denied: "namespaces",
			wantGaps: "which namespaces the controller's rebalance.namespaceSelector selects is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			server := listertest.Start(t, test.objects...)
			if test.denied != "" {
				server.Deny = []string{test.denied}
			}
			got, err := lister.ReadController(t.Context(), server.Client(), clustertest.Now)
			if err != nil {
				t.Fatal(err)
			}
			if want := cmp.Or(test.wantMaxMoves, 5); got.Inactive != test.wantInactive || got.Settings.Rebalance.MaxMoves != want {
				t.Errorf("inactive: %q, maxMoves %d; want %q, %d", got.Inactive, got.Settings.Rebalance.MaxMoves, test.wantInactive, want)
			}
			if gaps := fmt.Sprint(got.Gaps); !strings.Contains(gaps, test.wantGaps) || test.wantGaps == "" && len(got.Gaps) > 0 {
				t.Errorf("gaps %s, want %q", gaps, test.wantGaps)
			}
			selected := ""
			for _, namespace := range []string{"shop", "bank"} {
				if got.Settings.Selects != nil && got.Settings.Selects(namespace) {
					selected += namespace
				}
			}
			if selected != test.wantSelects || (got.Settings.Selects != nil) != (test.wantSelects != "") {
				t.Errorf("selects %q, want %q", selected, test.wantSelects)
			}
		})
	}
}
