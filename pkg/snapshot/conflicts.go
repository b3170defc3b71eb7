package snapshot

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// AntiAffinity is a required anti-affinity term, and the pods that have it, in one namespace. A
// term that selects namespaces by their labels applies only to the namespaces that it names.
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
		if one.Matches(p.Pod, nil) {
			all = append(all, one)
		}
	}
	return all
}

// readAntiAffinities reads the terms of all pods. It skips pods with too many terms.
func (x *Index) readAntiAffinities() {
	x.antiAffinities = map[string][]*AntiAffinity{}
	read := map[*v1.PodAntiAffinity][]*AntiAffinity{} // the bound pods of a controller share it (transform.PodTrimmer)
	for _, p := range x.snapshot.Pods {
		terms := fwk.GetPodAntiAffinityTerms(p.Spec.Affinity)
		if len(terms) == 0 || len(terms) > workload.MaxTerms {
			continue
		}
		own, known := read[p.Spec.Affinity.PodAntiAffinity]
		if !known {
			parsed, _ := fwk.GetAffinityTerms(p.Pod, terms)
			for _, term := range parsed {
				one := &AntiAffinity{term, p.Namespace, map[*Pod]bool{}}
				own = append(own, one)
				namespaces := term.Namespaces.UnsortedList()
				if term.NamespaceSelector.Empty() {
					namespaces = []string{""}
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
// use volumes of p that only one node can attach; -1 if only one pod can use the volume.
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
		modes := pv.Spec.AccessModes
		for _, user := range x.users[pv] {
			number := x.Numbers[user.Node]
			if slices.Contains(modes, v1.ReadWriteOncePod) {
				number = -1
			} else if !slices.Equal(modes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}) {
				break
			}
			if user != p && !slices.Contains(numbers, number) {
				numbers = append(numbers, number)
			}
		}
	}
	return numbers
}
