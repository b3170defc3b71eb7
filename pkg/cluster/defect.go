package cluster

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

// Defect is a pod that claims to belong to something, or to have been released from something, that is not so. The claim has no effect.
type Defect struct {
	Pod  *v1.Pod
	Kind DefectKind
	// Why says what is wrong.
	Why string
}

// DefectKind is what is wrong with a pod: the label of a metric.
type DefectKind string

// Every DefectKind there is.
const (
	// WrongOwner: the UID of its controller reference is that of an object of another namespace, kind or name.
	WrongOwner DefectKind = "owner"
	// WrongRelease: its label or annotation says that it was released, and that is not trusted.
	WrongRelease DefectKind = "release"
)

// DefectKinds are all of them.
var DefectKinds = []DefectKind{WrongOwner, WrongRelease}

// owner is an object that can own pods.
type owner struct {
	key  kube.OwnerKey
	name string
}

// contradiction says what the pod's controller reference contradicts in the caches; "" if nothing. The UID of an object that no cache has
// contradicts nothing: the object may be gone, or not seen yet.
func (c *census) contradiction(pod *v1.Pod) string {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return ""
	}
	if c.byUID == nil { // few pods ask
		c.byUID = map[types.UID]owner{}
		for _, informer := range c.owners.Informers() {
			for _, obj := range informer.GetStore().List() {
				if object, ok := obj.(metav1.Object); ok {
					key, _ := kube.ControllerKey(object)
					c.byUID[key.UID] = owner{key, object.GetName()}
				}
			}
		}
	}
	if is, known := c.byUID[ref.UID]; known && (is != owner{kube.KeyOf(pod.Namespace, ref), ref.Name}) {
		return fmt.Sprintf("%s %s has the UID of %s %s/%s", ref.Kind, ref.Name, is.key.Kind, is.key.Namespace, is.name)
	}
	return ""
}
