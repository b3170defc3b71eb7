package workload_test

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// TestHasReleased: only a live pod in the namespace of the ReplicaSet, released from it for a heal
// within the last hour, counts.
func TestHasReleased(t *testing.T) {
	now := time.Now()
	revision := workload.KeyOf("shop", new(by("ReplicaSet", "web-1")))
	for name, test := range map[string]struct {
		change func(*workload.Release, *v1.Pod)
		want   bool
	}{
		"healed":               {func(*workload.Release, *v1.Pod) {}, true},
		"of another pod":       {func(r *workload.Release, _ *v1.Pod) { r.Pod = "other" }, false},
		"another reason":       {func(r *workload.Release, _ *v1.Pod) { r.Reason = "drain" }, false},
		"another ReplicaSet":   {func(r *workload.Release, _ *v1.Pod) { r.ReplicaSetUID = "other" }, false},
		"released long ago":    {func(r *workload.Release, _ *v1.Pod) { r.At = now.Add(-time.Hour) }, false},
		"released in a future": {func(r *workload.Release, _ *v1.Pod) { r.At = now.Add(time.Hour) }, false},
		"another namespace":    {func(_ *workload.Release, pod *v1.Pod) { pod.Namespace = "other" }, false},
		"terminating":          {func(_ *workload.Release, pod *v1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(now)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf("released")
			release := workload.Release{ReplicaSet: "web-1", ReplicaSetUID: revision.UID, Pod: pod.UID, Hash: "1", Reason: workload.HealReason, At: now.Add(-time.Minute)}
			test.change(&release, pod)
			text, err := json.Marshal(release)
			if err != nil {
				t.Fatal(err)
			}
			pod.Annotations = map[string]string{spot.ReleasedAnnotation: string(text)}
			broken := podOf("broken")
			broken.Annotations = map[string]string{spot.ReleasedAnnotation: "{"}
			if got := ownersOf(t, pod, broken).HasReleased(revision, workload.HealReason, now); got != test.want {
				t.Errorf("HasReleased = %v, want %v", got, test.want)
			}
		})
	}
}
