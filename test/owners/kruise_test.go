//go:build long

package owners

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The kinds of Kruise, made by hand: the module proxy does not have the module
// github.com/openkruise/kruise. The tests create the pods that Kruise would create, with its owner
// references, and delete them in the order that its documentation describes.
const kruiseCRDs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clonesets.apps.kruise.io}
spec:
  group: apps.kruise.io
  scope: Namespaced
  names: {plural: clonesets, singular: cloneset, kind: CloneSet}
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: statefulsets.apps.kruise.io}
spec:
  group: apps.kruise.io
  scope: Namespaced
  names: {plural: statefulsets, singular: statefulset, kind: StatefulSet}
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// kruiseSet is a CloneSet or an Advanced StatefulSet, and the part of Kruise that creates and
// deletes its pods.
type kruiseSet struct {
	*scenario
	name        string
	object      *unstructured.Unstructured
	annotations map[string]string // of the pods
	created     int
}

// kruiseSet creates an owner without pods.
func (s *scenario) kruiseSet(version, kind, name string, ofOwner, ofPods map[string]string) *kruiseSet {
	s.Helper()
	object := decode(s.T, fmt.Sprintf("apiVersion: apps.kruise.io/%s\nkind: %s\nmetadata: {name: %s}", version, kind, name))[0]
	object.SetAnnotations(ofOwner)
	s.create(object)
	return &kruiseSet{scenario: s, name: name, object: object, annotations: ofPods}
}

// pods returns the live pods of the set.
func (k *kruiseSet) pods() []v1.Pod {
	k.Helper()
	pods, err := live.Pods(k.Ctx, kube, k.Namespace, metav1.ListOptions{LabelSelector: "app=" + k.name})
	k.Must(err)
	return pods
}

// createPod creates a pod of the set.
func (k *kruiseSet) createPod(name string) {
	k.Helper()
	template := live.PodTemplate(k.name)
	template.Labels["controller-revision-hash"] = k.name + "-1"
	k.created++
	_, err := kube.CoreV1().Pods(k.Namespace).Create(k.Ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: template.Labels, Annotations: k.annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(k.object, k.object.GroupVersionKind())},
		},
		Spec: template.Spec,
	}, metav1.CreateOptions{})
	k.Must(err)
}

// scale creates pods with new names, or deletes pods in the order of a CloneSet: pods that are not
// ready, then pods with a lower deletion cost, then newer pods.
func (k *kruiseSet) scale(replicas int) {
	k.Helper()
	pods := k.pods()
	for range replicas - len(pods) {
		k.createPod(fmt.Sprintf("%s-%05d", k.name, k.created))
	}
	cost := func(pod v1.Pod) int { n, _ := strconv.Atoi(pod.Annotations[v1.PodDeletionCost]); return n }
	ready := func(pod v1.Pod) int {
		return len(slices.DeleteFunc(slices.Clone(pod.Status.Conditions), func(c v1.PodCondition) bool {
			return c.Type != v1.PodReady || c.Status != v1.ConditionTrue
		}))
	}
	slices.SortFunc(pods, func(a, b v1.Pod) int {
		return cmp.Or(cmp.Compare(ready(a), ready(b)), cmp.Compare(cost(a), cost(b)), strings.Compare(b.Name, a.Name))
	})
	for _, pod := range pods[:max(0, len(pods)-replicas)] {
		k.Must(kube.CoreV1().Pods(k.Namespace).Delete(k.Ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	}
}

// updateInPlace changes image and revision of the oldest n pods, like an in-place update.
func (k *kruiseSet) updateInPlace(n int) {
	k.Helper()
	pods := k.pods()
	slices.SortFunc(pods, func(a, b v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	patch := fmt.Sprintf(`{"metadata":{"labels":{"controller-revision-hash":"%s-2"}},"spec":{"containers":[{"name":"c","image":"registry.invalid/app:2"}]}}`, k.name)
	for _, pod := range pods[:n] {
		_, err := kube.CoreV1().Pods(k.Namespace).Patch(k.Ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		k.Must(err)
	}
}

// TestLongKruiseCloneSetByHand scales a CloneSet of 10 replicas with a floor of 2, replaces a pod
// of the floor, and updates half of the pods in place.
func TestLongKruiseCloneSetByHand(t *testing.T) {
	install(t, decode(t, kruiseCRDs))
	s := start(t, "", append(live.OnDemand(1, 4), live.Spot(2, 8)...)...)
	set := s.kruiseSet("v1alpha1", "CloneSet", "clones", nil, map[string]string{minOnDemand: "2"})
	set.scale(10)
	s.Eventually(soon, s.HasReadySplit("clones", split{OnDemand: 2, Spot: 8}))
	ok := status{Kind: "CloneSet", Name: "clones", State: "OK", Desired: 10, Floor: 2}
	s.Eventually(soon, s.hasStatus(ok))

	before := since(s.Seen, time.Time{})
	set.updateInPlace(5)
	s.Eventually(soon, s.hasStatus(ok))
	set.scale(12)
	s.Eventually(soon, s.HasReadySplit("clones", split{OnDemand: 2, Spot: 10}))
	ok.Desired = 12
	s.Eventually(soon, s.hasStatus(ok))
	if created := len(since(s.Seen, time.Time{})) - len(before); created != 2 {
		t.Errorf("%d pods were created after the in-place update, want 2", created)
	}

	// The newest pod is now one of the floor.
	for _, pod := range set.pods() {
		if strings.HasPrefix(pod.Spec.NodeName, "od-") {
			s.Must(kube.CoreV1().Pods(s.Namespace).Delete(s.Ctx, pod.Name, metav1.DeleteOptions{}))
			break
		}
	}
	set.scale(12)
	s.Eventually(soon, s.HasReadySplit("clones", split{OnDemand: 2, Spot: 10}))
	s.Eventually(soon, func() error {
		for _, pod := range set.pods() {
			if strings.HasPrefix(pod.Spec.NodeName, "od-") && pod.Annotations[v1.PodDeletionCost] == "" {
				return fmt.Errorf("pod %s of the floor has no deletion cost", pod.Name)
			}
		}
		return nil
	})
	s.Seen.ResetFewest()
	for _, replicas := range []int{5, 2} {
		set.scale(replicas)
		s.Eventually(soon, s.HasReadySplit("clones", split{OnDemand: 2, Spot: replicas - 2}))
		s.keepsFloor(2, fmt.Sprintf("scale-down to %d", replicas))
	}
	if notes, err := s.Events("clones", "AnnotationNotRead"); err != nil || len(notes) > 0 {
		t.Errorf("the annotation is in the pod template, and the CloneSet has the events %q, %v", notes, err)
	}
}

// TestLongKruiseStatefulSetByHand starts an Advanced StatefulSet in the order of the ordinals and
// scales it down from the highest ordinal.
func TestLongKruiseStatefulSetByHand(t *testing.T) {
	install(t, decode(t, kruiseCRDs))
	s := start(t, "", append(live.OnDemand(1, 4), live.Spot(2, 8)...)...)
	set := s.kruiseSet("v1beta1", "StatefulSet", "db", nil, map[string]string{minOnDemand: "2"})
	for ordinal := range 5 {
		set.createPod(fmt.Sprintf("db-%d", ordinal))
		s.Eventually(soon, func() error {
			if s.Seen.Serving("db", nil) != ordinal+1 {
				return fmt.Errorf("db-%d is not ready", ordinal)
			}
			return nil
		})
	}
	s.Must(s.HasReadySplit("db", split{OnDemand: 2, Spot: 3})())
	s.Eventually(soon, s.hasStatus(status{Kind: "StatefulSet", Name: "db", State: "OK", Desired: 5, Floor: 2}))
	s.Seen.ResetFewest()
	for ordinal := 4; ordinal >= 2; ordinal-- {
		s.Must(kube.CoreV1().Pods(s.Namespace).Delete(s.Ctx, fmt.Sprintf("db-%d", ordinal), metav1.DeleteOptions{}))
		s.Eventually(soon, s.HasReadySplit("db", split{OnDemand: 2, Spot: ordinal - 2}))
	}
	s.keepsFloor(2, "scale-down to 2")
}

// TestLongKruiseAnnotationOnOwnerByHand sets the annotation on a CloneSet and an Advanced
// StatefulSet only. It has no effect there, and an event on the object reports it.
func TestLongKruiseAnnotationOnOwnerByHand(t *testing.T) {
	install(t, decode(t, kruiseCRDs))
	s := start(t, "", append(live.OnDemand(1, 4), live.Spot(2, 8)...)...)
	for name, set := range map[string]*kruiseSet{
		"clones": s.kruiseSet("v1alpha1", "CloneSet", "clones", map[string]string{minOnDemand: "2"}, nil),
		"db":     s.kruiseSet("v1beta1", "StatefulSet", "db", map[string]string{minOnDemand: "2"}, nil),
	} {
		set.scale(4)
		s.Eventually(soon, s.HasReadySplit(name, split{OnDemand: 1, Spot: 3}))
		s.Eventually(2*soon, func() error {
			notes, err := s.Events(name, "AnnotationNotRead")
			if err != nil || len(notes) != 1 || !strings.Contains(notes[0], minOnDemand) || !strings.Contains(notes[0], "pod template") {
				return fmt.Errorf("events AnnotationNotRead of %s: %q, %v", name, notes, err)
			}
			return nil
		})
	}
}
