package snapshot

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/recovery"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// podCache contains the facts about the pods of the last Snapshot. An informer never changes an
// object that it has published. The same pointer therefore is the same version of the pod, and the
// facts remain valid.
type podCache struct {
	byPod  map[*v1.Pod]*podFacts
	sorted []*podFacts // by namespace and name
}

// podFacts contains the facts that depend on a pod alone.
type podFacts struct {
	pod *v1.Pod

	hasOpinion bool
	requests   v1.ResourceList
	// release is the release that the pod claims, and original is the pod before that release; both
	// are nil without a claim. claimDefect describes why the pod itself contradicts its claim.
	release     *Release
	original    *v1.Pod
	claimDefect string
	// effective is the pod, or original if the release is trusted in the current Snapshot.
	effective *v1.Pod
	// ownerChecked reports whether ownerDefect is known. ownerDefect describes what the controller
	// reference contradicts, or is "".
	ownerChecked bool
	ownerDefect  string

	// subject describes the owner of effective. It is valid as long as that of base, another pod of
	// the same revision, is.
	subject, base *workload.Subject
}

// update returns the facts about the pods that are not Succeeded or Failed, by namespace and name.
// The next call overwrites the result.
func (k *podCache) update(pods []*v1.Pod) []*podFacts {
	last := k.byPod
	k.byPod = make(map[*v1.Pod]*podFacts, len(pods))
	for _, pod := range pods {
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		p := last[pod]
		if p == nil {
			p = newPodFacts(pod)
			k.sorted = append(k.sorted, p)
		}
		k.byPod[pod] = p
	}
	k.sorted = slices.DeleteFunc(k.sorted, func(p *podFacts) bool { return k.byPod[p.pod] == nil })
	slices.SortStableFunc(k.sorted, func(a, b *podFacts) int { return ByName(a.pod, b.pod) })
	return k.sorted
}

// newPodFacts reads a pod. The policy does not apply to a pod that cannot be read.
func newPodFacts(pod *v1.Pod) (p *podFacts) {
	p = &podFacts{pod: pod, effective: pod}
	defer recovery.Recover(recovery.Pod, klog.KObj(pod))
	p.requests = workload.RequestsOf(pod)
	release, defect := releaseOf(pod)
	if release != nil {
		p.original = beforeRelease(pod, release)
	}
	p.hasOpinion, p.release, p.claimDefect = workload.PolicyApplies(pod), release, defect
	return p
}
