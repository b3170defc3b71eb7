// Package providers contains what clouds and provisioners write on nodes: the labels with the
// capacity type, and the signals of interruptions. To support another provider, add rows here.
package providers

import (
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// CapacityLabels returns the labels that provisioners are known to set, each row with its
// source. The project's own label is not in the list, because it overrides the whole list.
func CapacityLabels() []decision.CapacityLabel {
	return []decision.CapacityLabel{
		// Karpenter and EKS Auto Mode: karpenter pkg/apis/v1/labels.go.
		{Key: "karpenter.sh/capacity-type", Spot: []string{"spot"}, OnDemand: []string{"on-demand", "reserved"}},
		// EKS managed node groups: EKS user guide, "Managed node groups".
		{Key: "eks.amazonaws.com/capacityType", Spot: []string{"SPOT"}, OnDemand: []string{"ON_DEMAND", "CAPACITY_BLOCK"}},
		// GKE: cluster-autoscaler's gce price model; GKE docs on Spot VMs.
		{Key: "cloud.google.com/gke-spot", Spot: []string{"true"}},
		{Key: "cloud.google.com/gke-preemptible", Spot: []string{"true"}},
		{Key: "cloud.google.com/gke-provisioning", Spot: []string{"spot", "preemptible"}, OnDemand: []string{"standard"}},
		// AKS: "Add an Azure Spot node pool".
		{Key: "kubernetes.azure.com/scalesetpriority", Spot: []string{"spot"}, OnDemand: []string{"regular"}},
		// ACK: cloud controller manager's node labels.
		{Key: "node.alibabacloud.com/spot-strategy", Spot: []string{"SpotWithPriceLimit", "SpotAsPriceGo"}, OnDemand: []string{"NoSpot"}},
		// OKE: "Using preemptible capacity".
		{Key: "oci.oraclecloud.com/oke-is-preemptible", Spot: []string{"true"}},
		// Cluster API: the machine controller sets it, with any value, on interruptible machines.
		{Key: "cluster.x-k8s.io/interruptible", SpotUnless: []string{}},
		// OpenShift: the machine API sets it, with any value, on spot machines.
		{Key: "machine.openshift.io/interruptible-instance", SpotUnless: []string{}},
		// Spot Ocean: on-demand nodes have the value od; other values are not reliable.
		{Key: "spotinst.io/node-lifecycle", OnDemand: []string{"od"}},
		// CAST AI: any value except false means spot; spot-fallback marks an on-demand node that
		// replaces a spot node.
		{Key: "scheduling.cast.ai/spot", SpotUnless: []string{"false"}},
		{Key: "scheduling.cast.ai/spot-fallback", OnDemand: []string{"true"}},
	}
}
