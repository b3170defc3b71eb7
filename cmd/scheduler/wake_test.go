package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// busyJob is a world with a Job that has a pod on each of two full spot nodes, and pending pods without
// room. The on-demand node has room for small pods.
type busyJob struct {
	*world
	job     *batchv1.Job
	pending []string
	placed  int
}

func newBusyJob(t *testing.T, pending int) *busyJob {
	job := jobOf("job", 5000, 100000)
	owner := ownedBy("batch/v1", "Job", "job")
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

// progress reports one more succeeded pod, and waits until the scheduler's cache has it.
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

// placeSmall places a pod that has room, and returns how long that took.
func (b *busyJob) placeSmall() time.Duration {
	b.t.Helper()
	b.placed++
	return b.place(podWith(fmt.Sprintf("small-%d", b.placed), "10m"))
}

// The progress of a Job without a floor changes no plan: none of its pods is tried again for it. What does change the plan has each of
// them tried once more.
func TestJobProgressTriesNoPodAgain(t *testing.T) {
	b := newBusyJob(t, 40)
	for range 5 {
		b.progress()
		// This pod is tried after all that the progress has woken: they came to the queue before.
		b.placeSmall()
	}
	b.job = b.job.DeepCopy()
	b.job.Annotations = map[string]string{decision.MinOnDemandAnnotation: "1"}
	b.update()
	b.eventually("all pods have been tried for the annotation", func() bool {
		tried := b.tried()
		return !slices.ContainsFunc(b.pending, func(pod string) bool { return tried[pod] < 2 })
	})
	tried := b.tried()
	for _, pod := range b.pending {
		if tried[pod] != 2 {
			t.Errorf("%s was tried %d times, want 2: at first, and for the annotation", pod, tried[pod])
		}
	}
}

// A pod that has room waits no longer than twice as long when a Job with many pending pods makes progress all the time. Quiet and noisy
// placements alternate, and their medians are compared; a busy machine gets a few more rounds.
func TestJobProgressDelaysNobody(t *testing.T) {
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

// Without Coscheduling the label of a PodGroup means nothing: a pod does not fall back by the clock of another pod that has it.
func TestPodGroupLabelWithoutCoscheduling(t *testing.T) {
	const label, fallbackAfter = "scheduling.x-k8s.io/pod-group", time.Second
	owner := ownedBy("apps/v1", "ReplicaSet", "web-1")
	w := newWorld(t, []string{"fallbackAfter: 5m", "fallbackAfter: " + fallbackAfter.String()},
		append(deploymentOf("web", 2, map[string]string{decision.MinOnDemandAnnotation: "100%"}), nodeWith("spot", "spot", "2"))...)
	hopeless, pod := podWith("hopeless", "1000", owner), podWith("pod", "10m", owner)
	hopeless.Labels, pod.Labels = map[string]string{label: "x"}, map[string]string{label: "x"}
	w.create(hopeless)
	w.eventually("the hopeless pod has been tried", func() bool { return w.tried()["hopeless"] > 0 })
	w.place(podWith("other", "10m")) // which takes at least fallbackAfter
	if took := w.place(pod); took < fallbackAfter {
		t.Errorf("placed on %s after %s, before fallbackAfter, %s", w.nodeOf("pod"), took, fallbackAfter)
	}
}
