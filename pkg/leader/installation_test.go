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

// A program must not start beside the installation of another namespace. A Lease that a user of
// that namespace wrote does not keep it from starting.
func TestCheckInstallation(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "", nil)
	for name, test := range map[string]struct {
		refusals int
		refusal  error
		want     string // part of the error; "" for none
	}{
		"the right":            {},
		"no right":             {refusals: 100, refusal: forbidden, want: "kubectl get clusterrolebinding spot-controller -o wide"},
		"roles not loaded yet": {refusals: 2, refusal: forbidden},
		"unavailable":          {refusals: 100, refusal: apierrors.NewServiceUnavailable("")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, holder := metav1.NewMicroTime(time.Now()), "a"
				client := fake.NewClientset(&coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "spot-controller"},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &now},
				})
				client.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					test.refusals--
					return test.refusals >= 0, nil, test.refusal
				})
				err := checkInstallation(t.Context(), client, "spot-controller")
				if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want an error with %q", err, test.want)
				}
			})
		})
	}
}
