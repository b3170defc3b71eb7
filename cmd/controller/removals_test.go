package main

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// TestRemovalsNeedACause: the client that writes sends no removal without a cause, whatever the
// Gate. The standby gives its deletions a cause.
func TestRemovalsNeedACause(t *testing.T) {
	may := func() error { return nil }
	for name, test := range map[string]struct {
		change func(*rest.Config)
		want   []string
	}{
		"leader":  {func(*rest.Config) {}, []string{"PATCH"}},
		"standby": {func(c *rest.Config) { c.Wrap(withCause(safety.Obsolete)) }, []string{"PATCH", "DELETE"}},
	} {
		for _, gate := range []*safety.Gate{nil, safety.NewGate(safety.Options{Clock: clock.RealClock{}})} {
			config, methods := server(t)
			config = writing(config, 1000, permission{mayWrite: may, gate: gate})
			test.change(config)
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			pods := client.CoreV1().Pods("ns")
			_, _ = pods.Patch(t.Context(), "p", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			_ = pods.Delete(t.Context(), "p", metav1.DeleteOptions{})
			if err := client.PolicyV1().Evictions("ns").Evict(t.Context(), eviction); err == nil || !strings.Contains(err.Error(), "bug") {
				t.Errorf("%s: eviction without a cause: %v", name, err)
			}
			if got := methods(); !slices.Equal(got, test.want) {
				t.Errorf("%s: requests %v, want %v", name, got, test.want)
			}
		}
	}
}

// TestStaleLeaseCountsNothing: without the right to write, as in a dry run, the Gate is not asked.
func TestStaleLeaseCountsNothing(t *testing.T) {
	config, methods := server(t)
	refuses := func() error { return errStaleLease }
	gate := safety.NewGate(safety.Options{Clock: clock.RealClock{}}) // with limits of 0
	client, err := newWriter(config, 1000, permission{mayWrite: refuses, gate: gate})
	if err != nil {
		t.Fatal(err)
	}
	r := safety.Removal{Cause: safety.Heal, Pod: "uid", Namespace: "ns", Starts: true}
	err = client.CoreV1().Pods("ns").Delete(safety.WithRemoval(t.Context(), r), "p", metav1.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), errStaleLease.Error()) || len(methods()) > 0 {
		t.Errorf("%v with requests %v, want the error of the lease", err, methods())
	}
}
