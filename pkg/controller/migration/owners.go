package migration

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// recreated reports whether a controller creates the pod again after its eviction. A pod with a
// controller of an unknown kind may do work that is not repeated. It counts as recreated only if
// the kind is one of Settings.EvictableOwners, or if a PodDisruptionBudget selects the pod, which
// shows that its owner expects evictions.
func (p *planner) recreated(pod *snapshot.Pod) bool {
	switch {
	case irreplaceable(pod):
		return false
	case !workload.HasUnsupportedController(pod.Pod):
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	return slices.Contains(p.settings.EvictableOwners, kind) || p.budgeted(pod)
}

// budgeted reports whether a PodDisruptionBudget selects the pod.
func (p *planner) budgeted(pod *snapshot.Pod) bool { return len(p.budgets.selecting(pod)) > 0 }
