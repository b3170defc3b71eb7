package leader

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A program must not start beside another installation, and the error must name it.
func TestCheckInstallation(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "", nil)
	for name, test := range map[string]struct {
		own       string // POD_NAMESPACE
		namespace string // of the Lease
		lease     string
		holder    string
		renewed   time.Duration // ago
		refusals  int
		refusal   error
		want      string // part of the error; "" for none
	}{
		"own Lease":                          {own: "spot", namespace: "spot", holder: "a"},
		"own Lease in kube-system":           {namespace: "kube-system", holder: "a"},
		"another namespace":                  {own: "spot", namespace: "kube-system", holder: "a", want: "runs in namespace kube-system: a holds the Lease kube-system/spot-controller"},
		"another namespace than the default": {namespace: "spot", holder: "a", want: "this one in namespace kube-system does not start"},
		"clocks differ":                      {namespace: "spot", holder: "a", renewed: time.Minute, want: "runs in namespace spot"},
		"expired":                            {namespace: "spot", holder: "a", renewed: 2 * time.Minute},
		"released":                           {namespace: "spot"},
		"another name":                       {namespace: "spot", lease: "other", holder: "a"},
		"no right":                           {namespace: "spot", refusals: 100, refusal: forbidden, want: "kubectl get clusterrolebinding spot-controller -o wide"},
		"roles not loaded yet":               {namespace: "spot", holder: "a", refusals: 2, refusal: forbidden, want: "runs in namespace spot"},
		"unavailable":                        {namespace: "spot", holder: "a", refusals: 100, refusal: apierrors.NewServiceUnavailable("")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", test.own)
			synctest.Test(t, func(t *testing.T) {
				at, leaseName := metav1.NewMicroTime(time.Now().Add(-test.renewed)), "spot-controller"
				if test.lease != "" {
					leaseName = test.lease
				}
				client := fake.NewClientset(&coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: leaseName},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: &test.holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &at},
				})
				client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					test.refusals--
					return test.refusals >= 0, nil, test.refusal
				})
				err := checkInstallation(t.Context(), client, Namespace(), "spot-controller")
				if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want an error with %q", err, test.want)
				}
			})
		})
	}
}
