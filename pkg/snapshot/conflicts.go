package snapshot

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// AntiAffinity is a required anti-affinity term, and the pods that have it, in one namespace.
type AntiAffinity struct {
	fwk.AffinityTerm
	Namespace string
	Pods      map[*Pod]bool
}

// AntiAffinities returns the required anti-affinity terms that match p: the scheduler places p in
// no topology domain of the other pods that have them.
func (x *Index) AntiAffinities(p *Pod) (all []*AntiAffinity) {
	if x.antiAffinities == nil {
		x.readAntiAffinities()
	}
	for _, one := range slices.Concat(x.antiAffinities[p.Namespace], x.antiAffinities[""]) {
		if MayMatch(&one.AffinityTerm, p.Pod) {
			all = append(all, one)
		}
	}
	return all
}

// MayMatch reports whether an anti-affinity term matches the pod. Of the labels of namespaces only
// their name is known, so a term that selects by another one is expected to select the namespace.
func MayMatch(term *fwk.AffinityTerm, pod *v1.Pod) bool {
	selectors, _ := term.NamespaceSelector.Requirements()
	name, unknown, excluded := labels.Set{v1.LabelMetadataName: pod.Namespace}, false, false
	for _, r := range selectors {
		known := r.Key() == v1.LabelMetadataName
		unknown, excluded = unknown || !known, excluded || known && !r.Matches(name)
	}
	return term.Matches(pod, name) || unknown && !excluded && term.Selector.Matches(labels.Set(pod.Labels))
}

// readAntiAffinities reads the terms of all pods. It skips pods with too many terms, and the terms
// of a namespace beyond the first MaxTerms different ones: they cost time for each pod of the
// cluster.
func (x *Index) readAntiAffinities() {
	x.antiAffinities = map[string][]*AntiAffinity{}
	read := map[*v1.PodAntiAffinity][]*AntiAffinity{} // the bound pods of a controller share it (transform.PodTrimmer)
	equal, count := map[string]*AntiAffinity{}, map[string]int{}
	for _, p := range x.snapshot.Pods {
		terms := fwk.GetPodAntiAffinityTerms(p.Spec.Affinity)
		if len(terms) == 0 || len(terms) > workload.MaxTerms {
			continue
		}
		own, known := read[p.Spec.Affinity.PodAntiAffinity]
		if !known {
			parsed, _ := fwk.GetAffinityTerms(p.Pod, terms)
			for i, term := range parsed {
				text, _ := json.Marshal([]any{p.Namespace, terms[i]}) // it has no error
				if one := equal[string(text)]; one != nil {
					own = append(own, one)
					continue
				}
				if count[p.Namespace]++; count[p.Namespace] > workload.MaxTerms {
					break
				}
				one := &AntiAffinity{term, p.Namespace, map[*Pod]bool{}}
				equal[string(text)], own = one, append(own, one)
				namespaces := term.Namespaces.UnsortedList()
				if _, selects := term.NamespaceSelector.Requirements(); selects {
					namespaces = []string{""} // of all namespaces
				}
				for _, namespace := range namespaces {
					x.antiAffinities[namespace] = append(x.antiAffinities[namespace], one)
				}
			}
			read[p.Spec.Affinity.PodAntiAffinity] = own
		}
		for _, one := range own {
			one.Pods[p] = true
		}
	}
}

// VolumeNodes returns the numbers of the nodes that must be the node of p, because other pods there
// use volumes of p that only one node can attach; -1 if only one pod can use the volume. A volume
// that pods on several nodes use needs no attachment.
func (x *Index) VolumeNodes(p *Pod) (numbers []int) {
	if x.users == nil {
		x.users = map[*v1.PersistentVolume][]*Pod{}
		for _, user := range x.snapshot.Pods {
			for _, pv := range user.Volumes {
				if user.Node != nil && user.Live() {
					x.users[pv] = append(x.users[pv], user)
				}
			}
		}
	}
	for _, pv := range p.Volumes {
		modes, used, shared := pv.Spec.AccessModes, map[int]bool{}, false
		for _, user := range x.users[pv] {
			used[x.Numbers[user.Node]] = true
			shared = shared || user.UID != p.UID
		}
		switch {
		case !shared:
		case slices.Contains(modes, v1.ReadWriteOncePod):
			numbers = append(numbers, -1)
		case len(used) == 1 && slices.Equal(modes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}):
			numbers = append(numbers, slices.Collect(maps.Keys(used))...)
		}
	}
	return numbers
}
