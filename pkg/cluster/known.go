package cluster

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
)

// known are the pods of the last Snapshot. An informer never changes an object that it has handed out, it makes another one: so the same
// pointer is the same pod in the same version, and what was read from it still holds.
type known struct {
	turn   int
	byPod  map[*v1.Pod]*knownPod
	sorted []*knownPod // by namespace and name
}

// knownPod is what a pod alone says.
type knownPod struct {
	pod  *v1.Pod
	turn int // of the last Snapshot that had it

	hasOpinion bool
	requests   v1.ResourceList
	claims     []string
	// release is what the pod claims, and before is the pod as it was before; nil without a claim. wrong says why the pod itself contradicts
	// its claim.
	release *Release
	before  *v1.Pod
	wrong   string
	// owned is the pod, or before if its release is trusted in the Snapshot that is being taken.
	owned *v1.Pod
	// judged: contradicts says what its controller reference contradicts; "" for nothing.
	judged      bool
	contradicts string

	// subject is what owned belongs to; it holds as long as that of base, another pod of the same revision, does.
	subject, base *kube.Subject
}

// update returns what is known of those of pods that have not come to their end, by namespace and name. The next call overwrites it.
func (k *known) update(pods []*v1.Pod) []*knownPod {
	if k.byPod == nil {
		k.byPod = make(map[*v1.Pod]*knownPod, len(pods))
	}
	k.turn++
	var added []*knownPod
	for _, pod := range pods {
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		p := k.byPod[pod]
		if p == nil {
			p = newKnownPod(pod)
			k.byPod[pod] = p
			added = append(added, p)
		}
		p.turn = k.turn
	}
	k.sorted = slices.DeleteFunc(k.sorted, func(p *knownPod) bool {
		if p.turn == k.turn {
			return false
		}
		delete(k.byPod, p.pod)
		return true
	})
	// Few are new: sorting all again would take most of the time.
	slices.SortFunc(added, func(a, b *knownPod) int { return byName(a.pod, b.pod) })
	k.sorted = merged(k.sorted, added)
	return k.sorted
}

// newKnownPod reads a pod. The policy has no opinion on one that cannot be read.
func newKnownPod(pod *v1.Pod) (p *knownPod) {
	p = &knownPod{pod: pod, owned: pod}
	defer recovery.Recover(recovery.Pod, klog.KObj(pod))
	p.requests = requestsOf(pod)
	release, wrong := releaseOf(pod)
	if release != nil {
		p.before = beforeRelease(pod, release)
	}
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			p.claims = append(p.claims, claim.ClaimName)
		}
	}
	p.hasOpinion, p.release, p.wrong = kube.HasOpinion(pod), release, wrong
	return p
}

// requestsOf returns what pod takes up of a node, as the scheduler of Kubernetes 1.36 counts it (PodInfo.CalculateResource).
func requestsOf(pod *v1.Pod) v1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	requests[v1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// merged returns the pods of two lists in order, each of which is in order.
func merged(a, b []*knownPod) []*knownPod {
	if len(b) == 0 {
		return a
	}
	all := make([]*knownPod, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if byName(a[0].pod, b[0].pod) <= 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}
