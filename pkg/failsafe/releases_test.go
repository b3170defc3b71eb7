package failsafe

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

const hashKey = appsv1.DefaultDeploymentUniqueLabelKey

// released returns a pod of Deployment web that was released from ReplicaSet web-r.
func released(edits ...func(*v1.Pod)) *v1.Pod {
	pod := clustertest.NewPod("web-0", clustertest.OwnedBy("ReplicaSet", "web-r"))
	pod.Labels = map[string]string{"app": "web", hashKey: "r"}
	owner := pod.OwnerReferences[0]
	clustertest.ReleaseFor("heal", now, pod)
	owner.Controller = nil
	pod.OwnerReferences = []metav1.OwnerReference{owner, clustertest.OwnedBy("Deployment", "web")}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// TestRestorationOfReleasedPods: a pod that a controller released is given back to its ReplicaSet
// if no controller has run for staleAfter, whichever of its marks someone has removed.
func TestRestorationOfReleasedPods(t *testing.T) {
	unlabelled := func(p *v1.Pod) { delete(p.Labels, hashKey) }
	unannotated := func(p *v1.Pod) { p.Annotations = nil }
	former := func(p *v1.Pod) { p.UID = "copy" }
	standalone := func(p *v1.Pod) { p.OwnerReferences = nil }
	web := func(available int32) *appsv1.Deployment {
		d := clustertest.NewDeployment("web", 2)[0].(*appsv1.Deployment)
		d.Status.AvailableReplicas = available
		return d
	}
	rs := clustertest.NewReplicaSet("web", "r", 2)
	again := rs.DeepCopy()
	again.UID = "again"
	terminating := rs.DeepCopy()
	terminating.DeletionTimestamp, terminating.Finalizers = &metav1.Time{Time: now}, []string{metav1.FinalizerDeleteDependents}
	for name, test := range map[string]struct {
		pod     *v1.Pod
		others  []runtime.Object
		running bool
		// want is "restored", "labelled" (the ReplicaSet must adopt it), "unmarked", "deleted" or
		// "".
		want string
	}{
		"the controller runs":               {pod: released(), others: []runtime.Object{web(2), rs}, running: true},
		"released":                          {pod: released(), others: []runtime.Object{web(0), rs}, want: "restored"},
		"without the label":                 {pod: released(unlabelled), others: []runtime.Object{web(0), rs}, want: "restored"},
		"without the annotation":            {pod: released(unannotated), others: []runtime.Object{web(0), rs}, want: "restored"},
		"without any mark":                  {pod: released(unlabelled, unannotated), others: []runtime.Object{web(0), rs}, want: "restored"},
		"of a ReplicaSet alone":             {pod: released(standalone), others: []runtime.Object{rs}, want: "labelled"},
		"of a ReplicaSet alone, restored":   {pod: released(standalone, func(p *v1.Pod) { p.Labels[hashKey] = "r" }), others: []runtime.Object{rs}},
		"of a ReplicaSet alone, no label":   {pod: released(standalone, unlabelled), others: []runtime.Object{rs}, want: "labelled"},
		"another ReplicaSet":                {pod: released(func(p *v1.Pod) { p.Labels["app"] = "other" }), others: []runtime.Object{web(2), rs}},
		"ReplicaSet terminating":            {pod: released(), others: []runtime.Object{web(2), terminating}},
		"ReplicaSet created again":          {pod: released(func(p *v1.Pod) { p.OwnerReferences = p.OwnerReferences[1:] }), others: []runtime.Object{web(2), again}, want: "labelled, without the annotation"},
		"ReplicaSet gone, replicas missing": {pod: released(), others: []runtime.Object{web(1)}},
		"ReplicaSet gone, all available":    {pod: released(), others: []runtime.Object{web(2)}, want: "deleted"},
		"ReplicaSet gone, a budget refuses": {pod: released(), others: []runtime.Object{web(2), clustertest.NewBudget("web", 3)}},
		"ReplicaSet gone, Deployment gone":  {pod: released()},
		"ReplicaSet gone, standalone":       {pod: released(standalone)},
		"adopted again": {pod: released(func(p *v1.Pod) {
			p.Labels[hashKey], p.OwnerReferences = "r", []metav1.OwnerReference{clustertest.OwnedBy("ReplicaSet", "web-r")}
		}), others: []runtime.Object{rs}, want: "restored"},
		"a copy": {pod: released(standalone, former), others: []runtime.Object{rs}, running: true, want: "labelled, without the annotation"},
		"a copy, its ReplicaSet is restored later": {pod: released(standalone, former), running: true, want: "labelled, without the annotation"},
		"a copy, its Deployment has all":           {pod: released(former), others: []runtime.Object{web(2)}, running: true, want: "restored"},
		"a copy, another revision":                 {pod: released(standalone, former, func(p *v1.Pod) { p.Labels[hashKey] = "other" }), others: []runtime.Object{rs}, running: true, want: "unmarked"},
		"a copy, no label can have its hash": {pod: released(standalone, former, func(p *v1.Pod) {
			p.Annotations[spot.ReleasedAnnotation] = strings.ReplaceAll(p.Annotations[spot.ReleasedAnnotation], `"hash":"r"`, `"hash":"r "`)
		}), others: []runtime.Object{rs}, running: true},
		"not released": {pod: clustertest.NewPod("web-0", clustertest.OwnedBy("ReplicaSet", "web-r")), others: []runtime.Object{web(2), rs}},
	} {
		t.Run(name, func(t *testing.T) {
			test.pod.ResourceVersion = "1"
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "spot-controller"}}
			lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NewMicroTime(now.Add(-staleAfter))), new(int32(0))
			if test.running {
				lease.Spec.RenewTime = new(metav1.NewMicroTime(now))
			}
			client := fake.NewClientset(append(test.others, test.pod, lease)...)
			factory := informers.NewSharedInformerFactory(client, 0)
			recorder := events.NewFakeRecorder(10)
			w := NewWithdrawer(factory, client, recorder, clocktesting.NewFakeClock(now), map[string]time.Duration{"": time.Hour}, func() bool { return true })
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			if err := w.check(klog.NewContext(t.Context(), logger)); err != nil {
				t.Fatal(err)
			}
			got, err := client.CoreV1().Pods(test.pod.Namespace).Get(t.Context(), "web-0", metav1.GetOptions{})
			state, annotated := "", err == nil && got.Annotations[spot.ReleasedAnnotation] != ""
			switch {
			case apierrors.IsNotFound(err):
				state = "deleted"
			case err != nil:
				t.Fatal(err)
			case maps.Equal(got.Labels, test.pod.Labels) && len(got.Annotations) == len(test.pod.Annotations) && len(got.OwnerReferences) == len(test.pod.OwnerReferences):
			case got.Labels[hashKey] == "other" && !annotated:
				state = "unmarked"
			case got.Labels[hashKey] != "r":
				t.Errorf("the label is %q", got.Labels[hashKey])
			case metav1.GetControllerOf(got) == nil && annotated:
				state = "labelled"
			case metav1.GetControllerOf(got) == nil:
				state = "labelled, without the annotation"
			case metav1.GetControllerOf(got).UID == clustertest.UID("web-r") && len(got.OwnerReferences) == 1 && !annotated:
				state = "restored"
			default:
				t.Errorf("annotations %v, owners %v", got.Annotations, got.OwnerReferences)
			}
			if state != test.want || len(recorder.Events) != min(len(test.want), 1) && test.pod.UID != "copy" {
				t.Errorf("the pod is %q with %d events, want %q", state, len(recorder.Events), test.want)
			}
			if test.want != "" && test.pod.UID != "copy" {
				if event := <-recorder.Events; !strings.Contains(event, "has not renewed its Lease") {
					t.Errorf("event %q", event)
				}
				log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
				if want := fmt.Sprintf("cause=%q podUID=%q", "obsolete", test.pod.UID); strings.Contains(log, want) != (test.want == "deleted") {
					t.Errorf("log %q, want %q only for a deletion", log, want)
				}
			}
		})
	}
}

// TestRestorationOfManyPods: the Lease is read again before thousands of pods are restored, and a
// pod that cannot be restored blocks no other.
func TestRestorationOfManyPods(t *testing.T) {
	client := fake.NewClientset(clustertest.NewReplicaSet("web", "r", 2))
	for i := range 3 * changesPerCheck {
		pod := released(func(p *v1.Pod) {
			p.Name, p.OwnerReferences = fmt.Sprint("web-", i), nil
		})
		if i%3 == 0 {
			pod.Annotations[spot.ReleasedAnnotation] = "{}"
		}
		if err := client.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	clock := clocktesting.NewFakeClock(now.Add(staleAfter)) // without a Lease the time of the release counts
	w := NewWithdrawer(factory, client, events.NewFakeRecorder(3*changesPerCheck), clock, map[string]time.Duration{"": time.Hour}, func() bool { return true })
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if err := w.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{LabelSelector: hashKey + "=r"})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != changesPerCheck {
		t.Errorf("%d pods were restored, want %d", len(pods.Items), changesPerCheck)
	}
}
