package gating

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
)

// TestTemplateNodes runs kube-scheduler's own NodeAffinity plugin, like the cluster autoscaler, on
// the template labels of node groups. A pod of the floor must fit on on-demand groups only. A pod
// that requires spot must fit on spot groups only.
func TestTemplateNodes(t *testing.T) {
	type labels = map[string]string
	for name, test := range map[string]struct {
		keys           []string
		spotKey        string
		spot, onDemand labels
	}{
		"EKS": {
			[]string{"eks.amazonaws.com/capacityType"}, "eks.amazonaws.com/capacityType",
			labels{"eks.amazonaws.com/capacityType": "SPOT"}, labels{"eks.amazonaws.com/capacityType": "ON_DEMAND"},
		},
		"GKE": {
			[]string{"cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible"}, "cloud.google.com/gke-spot",
			labels{"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}, labels{"cloud.google.com/gke-provisioning": "standard"},
		},
		"AKS": { // on-demand groups do not have the label
			[]string{"kubernetes.azure.com/scalesetpriority"}, "kubernetes.azure.com/scalesetpriority",
			labels{"kubernetes.azure.com/scalesetpriority": "spot"}, labels{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := NewLabels(builtin(), test.keys, test.spotKey)
			if err != nil {
				t.Fatal(err)
			}
			for _, pod := range []struct {
				what           string
				requires       []v1.NodeSelectorTerm
				spot, onDemand bool
			}{
				{"floor", allOf(l.notSpot), false, true},
				{"spot", anyOf(l.spot), true, false},
				{"free", nil, true, true},
			} {
				p := &v1.Pod{}
				if pod.requires != nil {
					p.Spec.Affinity = &v1.Affinity{NodeAffinity: withRequired(nil, pod.requires)}
				}
				if got := fits(t, p, test.spot); got != pod.spot {
					t.Errorf("%s pod fits on the spot group: %v, want %v", pod.what, got, pod.spot)
				}
				if got := fits(t, p, test.onDemand); got != pod.onDemand {
					t.Errorf("%s pod fits on the on-demand group: %v, want %v", pod.what, got, pod.onDemand)
				}
			}
		})
	}
}

// fits runs the NodeAffinity plugin.
func fits(t *testing.T, pod *v1.Pod, labels map[string]string) bool {
	t.Helper()
	plugin, err := nodeaffinity.New(t.Context(), &schedulerconfig.NodeAffinityArgs{}, nil, feature.Features{})
	if err != nil {
		t.Fatal(err)
	}
	node := framework.NewNodeInfo()
	node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "template", Labels: labels}})
	return plugin.(*nodeaffinity.NodeAffinity).Filter(t.Context(), framework.NewCycleState(), pod, node).IsSuccess()
}
