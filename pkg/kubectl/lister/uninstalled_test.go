package lister_test

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
)

// TestCheckUninstalled: only objects in the namespace of the installation, and of the whole
// cluster, show that a part of the installation remains. Others may be a tenant's.
func TestCheckUninstalled(t *testing.T) {
	const gates = "spot-aware-scheduler-capacity"
	deployment := func(namespace string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "renamed-controller", Labels: map[string]string{
			"app.kubernetes.io/name": "spot-controller", "app.kubernetes.io/component": "controller"}}}
	}
	lease := func(namespace, holder string, age time.Duration) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(clustertest.Now.Add(-age))
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "spot-controller"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &renewed}}
	}
	installedIn := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "spot-controller"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "spot", Name: "spot-controller"}}}
	all := metav1.ObjectMeta{Name: gates}
	for name, test := range map[string]struct {
		objects []runtime.Object
		deny    string
		want    string // the start of the error; "" for none
	}{
		"nothing":            {},
		"Deployment":         {objects: []runtime.Object{deployment("kube-system")}, want: "the controller is still installed: Deployment kube-system/renamed-controller exists; first run helm uninstall"},
		"in its namespace":   {objects: []runtime.Object{deployment("spot"), installedIn}, want: "the controller is still installed: Deployment spot/renamed-controller exists"},
		"of a tenant":        {objects: []runtime.Object{deployment("tenant"), lease("tenant", "a", 0)}},
		"Lease":              {objects: []runtime.Object{lease("kube-system", "a", time.Minute)}, want: `a controller still runs: "a" renewed Lease kube-system/spot-controller at `},
		"Lease expired":      {objects: []runtime.Object{lease("kube-system", "a", 76*time.Second)}},
		"Lease released":     {objects: []runtime.Object{lease("kube-system", "", 0)}},
		"Lease of a clock":   {objects: []runtime.Object{lease("kube-system", "\x1b[2J", -time.Hour)}, want: `a controller still runs: "\x1b[2J" renewed`},
		"another Lease":      {objects: []runtime.Object{&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller"}}}},
		"policy":             {objects: []runtime.Object{&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: all}}, want: "new pods still get gates: first run kubectl delete mutatingadmissionpolicybinding " + gates},
		"beta policy":        {objects: []runtime.Object{&admissionv1beta1.MutatingAdmissionPolicyBinding{ObjectMeta: all}}, want: "new pods still get gates: first run kubectl delete mutatingadmissionpolicybinding " + gates},
		"webhook":            {objects: []runtime.Object{&admissionv1.MutatingWebhookConfiguration{ObjectMeta: all}}, want: "new pods still get gates: first run kubectl delete mutatingwebhookconfiguration " + gates},
		"other policies":     {objects: []runtime.Object{&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}},
		"Lease unreadable":   {deny: "leases", want: "leases"},
		"policy unreadable":  {deny: "mutatingadmissionpolicybindings", want: "mutatingadmissionpolicybindings"},
		"webhook unreadable": {deny: "mutatingwebhookconfigurations", want: "mutatingwebhookconfigurations"},
		"Deployments unread": {deny: "deployments", want: "deployments"},
	} {
		t.Run(name, func(t *testing.T) {
			server := listertest.New(t, test.objects...)
			server.Deny = []string{test.deny}
			err := lister.CheckUninstalled(t.Context(), server.Client(), clustertest.Now)
			if (err != nil) != (test.want != "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
