package snapshot

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Defect is a pod that makes a false claim about its owner or its release. The claim has no effect.
type Defect struct {
	Pod  *v1.Pod
	Kind DefectKind
	// Why describes what is wrong.
	Why string
}

// DefectKind classifies defects. It is the label of a metric.
type DefectKind string

// All values of DefectKind.
const (
	// WrongOwner: the UID of the controller reference belongs to an object of another namespace,
	// kind or name.
	WrongOwner DefectKind = "owner"
	// WrongRelease: the pod's label or annotation claims a release that is not trusted.
	WrongRelease DefectKind = "release"
)

// DefectKinds contains all kinds.
var DefectKinds = []DefectKind{WrongOwner, WrongRelease}

type owner struct {
	key  workload.OwnerKey
	name string
}

// contradiction describes how the pod's controller reference contradicts the caches; it is "" if it
// does not. A UID that no cache has contradicts nothing: the object may be deleted, or not observed
// yet.
func (c *census) contradiction(pod *v1.Pod) string {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return ""
	}
	if c.byUID == nil { // few pods need it
		c.byUID = map[types.UID]owner{}
		for _, informer := range c.owners.Informers() {
			for _, obj := range informer.GetStore().List() {
				if object, ok := obj.(metav1.Object); ok {
					key, _ := workload.ControllerKey(object)
					c.byUID[key.UID] = owner{key, object.GetName()}
				}
			}
		}
	}
	if actual, found := c.byUID[ref.UID]; found && (actual != owner{workload.KeyOf(pod.Namespace, ref), ref.Name}) {
		return fmt.Sprintf("%s %s has the UID of %s %s/%s", ref.Kind, ref.Name, actual.key.Kind, actual.key.Namespace, actual.name)
	}
	return ""
}
