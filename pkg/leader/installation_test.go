package leader

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
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

// An API server that is newer than the tested versions is a warning, and no reason not to start.
func TestUntestedVersion(t *testing.T) {
	newest := fmt.Sprintf("1.%d", newestMinor)
	for file, want := range map[string]string{
		"docs/versions.md": "Kubernetes 1.34 to " + newest,
		"manifests/charts/spot-aware-scheduler/templates/_helpers.tpl": fmt.Sprintf("spot.newestMinor\" -}}\n%d\n", newestMinor),
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s (%v) does not contain %q", file, err, want)
		}
	}
	for server, want := range map[string]bool{"v" + newest + ".4-eks-1": false, fmt.Sprintf("v1.%d.0-gke.5", newestMinor+1): true, "odd": false} {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		client := fake.NewClientset()
		client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apiversion.Info{GitVersion: server}
		if err := checkInstallation(klog.NewContext(t.Context(), logger), client, "spot-controller"); err != nil {
			t.Errorf("%s: %v", server, err)
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if got := strings.Contains(log, "not tested"); got != want {
			t.Errorf("%s: warning = %t, want %t; log:\n%s", server, got, want, log)
		}
	}
}
