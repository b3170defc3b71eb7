package round

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The annotations of a NodeClaim are known for the Node that it owns, also if its CRD is created
// after the controller started. While the CRD is missing, one request a minute is sent.
func TestNodeOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := fake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		client := fake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim"},
			ObjectMeta: metav1.ObjectMeta{Name: "claim", UID: "claim-uid", Annotations: map[string]string{"ends": "soon"}},
		})
		missing, requests := true, 0
		client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			requests++
			if missing {
				return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "")
			}
			return false, nil, nil
		})
		o := NewNodeOwners(client)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.Start(ctx) }()
		node := func() *v1.Node {
			return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", OwnerReferences: []metav1.OwnerReference{
				{Kind: "Other", Name: "other", UID: "other-uid"}, {Kind: "NodeClaim", Name: "claim", UID: "claim-uid"}}}}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := o.owner(node()); got != nil || requests != 11 {
			t.Errorf("without the CRD: annotations %v after %d requests, want none after 11", got, requests)
		}
		missing = false
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		n := node()
		if got := o.owner(n); got == nil || got.GetAnnotations()["ends"] != "soon" {
			t.Errorf("annotations %v, want the annotations of the NodeClaim", got)
		}
		n.OwnerReferences[1].UID = "another"
		if got := o.owner(n); got != nil {
			t.Errorf("annotations %v of a NodeClaim with another UID, want none", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
