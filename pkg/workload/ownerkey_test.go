package workload_test

import (
	"strings"
	"testing"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Tenants choose the length of a reference. A key is short, and as distinct as the reference.
func TestKeyOf(t *testing.T) {
	long := strings.Repeat("x", 1_000_000)
	refs := []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "1"},
		{APIVersion: long + "/v1", Kind: "A", UID: "1"},
		{APIVersion: long + "x/v1", Kind: "A", UID: "1"},
		{APIVersion: "a/v1", Kind: long, UID: "1"},
		{APIVersion: "a/v1", Kind: long + "x", UID: "1"},
		{APIVersion: "a/v1", Kind: "A", UID: types.UID(long)},
		{APIVersion: "a/v1", Kind: "A", UID: types.UID(long + "x")},
	}
	keys := map[workload.OwnerKey]bool{}
	for i := range refs {
		key := workload.KeyOf("shop", &refs[i])
		keys[key] = true
		if n := len(key.Index()); n > 500 {
			t.Errorf("reference %d: the key has %d characters", i, n)
		}
	}
	long = "apps/" + long
	key := workload.KeyOf("shop", &metav1.OwnerReference{APIVersion: long, Kind: "ReplicaSet", UID: "1"})
	if unsafe.StringData(key.Group) == unsafe.StringData(long) {
		t.Error("the key retains the whole version")
	}
	clustertest.Equal(t, "key with another version", workload.KeyOf("shop", &refs[0]), key)
	if len(keys) != len(refs) {
		t.Errorf("%d keys of %d references", len(keys), len(refs))
	}
	clustertest.Equal(t, "key", workload.OwnerKey{Namespace: "shop", Group: "apps", Kind: "ReplicaSet", UID: "1"}, workload.KeyOf("shop", &refs[0]))
}
