package snapshot

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/transform"
)

// countAttachments makes the volumes that a CSI driver can attach to a node a resource of the nodes
// and of the requests of pods, by driver. A driver without a limit on a node attaches any number,
// as in the scheduler's plugin NodeVolumeLimits. Unlike there, a volume counts for each of its
// pods. An attached volume that no pod of its node uses takes one of the limit.
func (r *Reader) countAttachments(s *Snapshot, nodeOf map[string]*Node) {
	type attachment struct{ node, volume string }
	used, unused := map[attachment]bool{}, map[attachment]int64{} // unused by node and driver
	for _, p := range s.Pods {
		for _, pv := range p.Volumes {
			used[attachment{p.Spec.NodeName, pv.Name}] = true
		}
	}
	for _, a := range All(r.factory.Storage().V1().VolumeAttachments().Lister()) {
		if pv := a.Spec.Source.PersistentVolumeName; pv != nil && !used[attachment{a.Spec.NodeName, *pv}] {
			unused[attachment{a.Spec.NodeName, a.Spec.Attacher}]++
		}
	}
	unlimited := v1.ResourceList{}
	for _, csi := range All(r.factory.Storage().V1().CSINodes().Lister()) {
		for _, driver := range csi.Spec.Drivers {
			if node := nodeOf[csi.Name]; node != nil && driver.Allocatable != nil && driver.Allocatable.Count != nil {
				count := int64(*driver.Allocatable.Count) - unused[attachment{csi.Name, driver.Name}]
				limit := v1.ResourceList{attachmentsOf(driver.Name): *resource.NewQuantity(count, resource.DecimalSI)}
				node.AttachLimits = transform.WithDefaults(node.AttachLimits, limit)
				unlimited[attachmentsOf(driver.Name)] = *resource.NewQuantity(math.MaxInt32, resource.DecimalSI)
			}
		}
	}
	for _, n := range s.Nodes {
		n.AttachLimits = transform.WithDefaults(n.AttachLimits, unlimited)
	}
	for _, p := range s.Pods {
		volumes := v1.ResourceList{}
		for _, pv := range p.Volumes {
			if pv.Spec.CSI == nil {
				continue
			}
			name := attachmentsOf(pv.Spec.CSI.Driver)
			if _, limited := unlimited[name]; limited {
				n := volumes[name]
				n.Add(*resource.NewQuantity(1, resource.DecimalSI))
				volumes[name] = n
			}
		}
		p.Requests = transform.WithDefaults(p.Requests, volumes)
	}
}

// attachmentsOf returns the name of the resource for the volumes of a CSI driver.
func attachmentsOf(driver string) v1.ResourceName {
	return v1.ResourceAttachableVolumesPrefix + "csi-" + v1.ResourceName(driver)
}
