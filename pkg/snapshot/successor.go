package snapshot

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Successor returns what the pod that replaces p requests: for each resource, the larger of p's own
// request and that of its owner's template, after LimitRanges. p may have been resized in place, or
// changed when it was created. larger reports whether the template requests more than p. A pod that
// is not bound is its own successor. The caller must not change needs.
func (p *Pod) Successor() (needs v1.ResourceList, larger bool) {
	needs = p.Requests
	template := p.template()
	if template == nil {
		return needs, false
	}
	for name, request := range workload.RequestsOf(&v1.Pod{Spec: *template}) {
		if own := needs[name]; request.Cmp(own) > 0 {
			if !larger {
				needs, larger = maps.Clone(needs), true
			}
			needs[name] = request
		}
	}
	return needs, larger
}

// SuccessorNode returns the name of the node that the owner's template names. It is "" if the
// scheduler chooses the node of the successor.
func (p *Pod) SuccessorNode() string {
	if template := p.template(); template != nil {
		return template.NodeName
	}
	return ""
}

// SuccessorRefused explains why the API server would reject the pod that replaces p; "" if it would
// not, or if that is unknown.
func (p *Pod) SuccessorRefused() string {
	if p.template() == nil {
		return ""
	}
	return p.OwnRevision().refused
}

// Unpredictable explains why the pod that replaces p may not run although a simulation finds room
// for it; "" if nothing is known. The devices of resource claims are not simulated.
func (p *Pod) Unpredictable() string {
	if _, larger := p.Successor(); larger {
		return "its owner's template requests more than the pod uses"
	}
	if len(p.Spec.ResourceClaims) > 0 {
		return "it uses resource claims"
	}
	return ""
}

// template returns the template that p's successor is created from; nil if it is unknown, or if p
// is not bound.
func (p *Pod) template() *v1.PodSpec {
	if revision := p.OwnRevision(); revision != nil && p.Spec.NodeName != "" {
		return revision.template
	}
	return nil
}
