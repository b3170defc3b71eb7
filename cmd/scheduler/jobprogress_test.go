package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// busyJob is a world with a Job that has a pod on each of two full spot nodes, and pending pods
// that do not fit. The on-demand node has room for small pods.
type busyJob struct {
	*world
	job     *batchv1.Job
	pending []string
	placed  int
}

func newBusyJob(t *testing.T, pending int) *busyJob {
	job := clustertest.NewJob("job", 5000)
	job.Generation, job.Spec.Completions = 1, new(int32(100000))
	owner := clustertest.OwnedBy("Job", "job")
	b := &busyJob{job: job, world: newWorld(t, nil,
		nodeWith("spot-1", "spot", "2"), runsOn("spot-1", podWith("runs-1", "1900m", owner)),
		nodeWith("spot-2", "spot", "2"), runsOn("spot-2", podWith("runs-2", "1900m", owner)),
		nodeWith("on-demand", "on-demand", "4"), runsOn("on-demand", podWith("fill", "3")), job)}
	for i := range pending {
		pod := podWith(fmt.Sprintf("job-%d", i), "1500m", owner)
		b.create(pod)
		b.pending = append(b.pending, pod.Name)
	}
	b.eventually("all pods have been tried", func() bool { return len(b.tried()) == pending })
	return b
}

// progress reports one more succeeded pod and waits until the scheduler's cache contains it.
func (b *busyJob) progress() {
	b.t.Helper()
	b.job = b.job.DeepCopy()
	b.job.Status.Succeeded++
	b.update()
}

func (b *busyJob) update() {
	b.t.Helper()
	b.must(b.client.Tracker().Update(batchv1.SchemeGroupVersion.WithResource("jobs"), b.job, b.job.Namespace))
	jobs := b.factory.Batch().V1().Jobs().Lister().Jobs(b.job.Namespace)
	b.eventually("the scheduler has seen the Job", func() bool {
		seen, err := jobs.Get(b.job.Name)
		return err == nil && seen.Status.Succeeded == b.job.Status.Succeeded && len(seen.Annotations) == len(b.job.Annotations)
	})
}

// placeSmall creates a pod that fits, and returns how long it took until the pod was bound.
func (b *busyJob) placeSmall() time.Duration {
	b.t.Helper()
	b.placed++
	return b.place(podWith(fmt.Sprintf("small-%d", b.placed), "10m"))
}

// The progress of a Job without a floor changes no plan, so it retries none of the Job's pods. A
// change that affects the plan retries each pod once.
func TestJobProgressRetriesNoPod(t *testing.T) {
	b := newBusyJob(t, 40)
	for range 5 {
		b.progress()
		// This pod is tried after all pods that the progress has woken, because they were queued
		// earlier.
		b.placeSmall()
	}
	b.job = b.job.DeepCopy()
	b.job.Annotations = map[string]string{spot.MinOnDemandAnnotation: "1"}
	b.update()
	b.eventually("all pods have been tried for the annotation", func() bool {
		tried := b.tried()
		return !slices.ContainsFunc(b.pending, func(pod string) bool { return tried[pod] < 2 })
	})
	tried := b.tried()
	for _, pod := range b.pending {
		if tried[pod] != 2 {
			t.Errorf("%s was tried %d times, want 2: initially, and for the annotation", pod, tried[pod])
		}
	}
}

// The continuous progress of a Job with many pending pods must not double the time to place a pod
// that fits. The test alternates placements with and without progress and compares their medians. A
// busy machine gets a few more rounds.
func TestJobProgressDelaysNoOtherPod(t *testing.T) {
	const rounds, placements = 5, 9
	b := newBusyJob(t, 400)
	b.placeSmall()
	var median [2]time.Duration // without progress, with
	for range rounds {
		var took [2][]time.Duration
		for range placements {
			took[0] = append(took[0], b.placeSmall())
			b.progress()
			took[1] = append(took[1], b.placeSmall())
		}
		for i := range took {
			slices.Sort(took[i])
			median[i] = took[i][placements/2]
		}
		t.Logf("placed after %s without progress, after %s with", median[0], median[1])
		if median[1] <= 2*median[0] {
			return
		}
	}
	t.Errorf("in none of %d rounds was a pod placed within twice the time", rounds)
}

// Without Coscheduling the label of a PodGroup has no effect: a pod does not fall back after the
// waiting time of another pod with the label.
func TestPodGroupLabelWithoutCoscheduling(t *testing.T) {
	const label, fallbackAfter = "scheduling.x-k8s.io/pod-group", time.Second
	owner := clustertest.OwnedBy("ReplicaSet", "web-r")
	w := newWorld(t, []string{"fallbackAfter: 5m", "fallbackAfter: " + fallbackAfter.String()},
		append(clustertest.Objects("deployment web 2 min=100%"), nodeWith("spot", "spot", "2"))...)
	hopeless, pod := podWith("unschedulable", "1000", owner), podWith("pod", "10m", owner)
	hopeless.Labels, pod.Labels = map[string]string{label: "x"}, map[string]string{label: "x"}
	w.create(hopeless)
	w.eventually("the unschedulable pod has been tried", func() bool { return w.tried()["unschedulable"] > 0 })
	w.place(podWith("other", "10m")) // which takes at least fallbackAfter
	if took := w.place(pod); took < fallbackAfter {
		t.Errorf("placed on %s after %s, before fallbackAfter, %s", w.nodeOf("pod"), took, fallbackAfter)
	}
}
