package workload_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The families of instances that a pool permits decide whether it may offer an extended resource.
func TestPoolOffers(t *testing.T) {
	is := func(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	const in, category, gpu = v1.NodeSelectorOpIn, "karpenter.k8s.aws/instance-category", "nvidia.com/gpu"
	for name, test := range map[string]struct {
		pool     []v1.NodeSelectorRequirement
		resource v1.ResourceName
		want     bool
	}{
		"nothing required":                   {nil, gpu, true},
		"general families":                   {[]v1.NodeSelectorRequirement{is(category, in, "c", "m", "r")}, gpu, false},
		"families with GPUs too":             {[]v1.NodeSelectorRequirement{is(category, in, "m", "g")}, gpu, true},
		"a family with GPUs":                 {[]v1.NodeSelectorRequirement{is("karpenter.k8s.aws/instance-family", in, "g5", "p4d")}, gpu, true},
		"another family":                     {[]v1.NodeSelectorRequirement{is("eks.amazonaws.com/instance-family", in, "m6i")}, gpu, false},
		"types without GPUs":                 {[]v1.NodeSelectorRequirement{is(v1.LabelInstanceTypeStable, in, "m6i.xlarge", "c5.large")}, gpu, false},
		"types of Azure":                     {[]v1.NodeSelectorRequirement{is(v1.LabelInstanceTypeStable, in, "Standard_NC4as_T4_v3")}, gpu, true},
		"other types of Azure":               {[]v1.NodeSelectorRequirement{is("karpenter.azure.com/sku-family", in, "D", "E")}, gpu, false},
		"not some families":                  {[]v1.NodeSelectorRequirement{is(category, v1.NodeSelectorOpNotIn, "t")}, gpu, true},
		"a number of GPUs":                   {[]v1.NodeSelectorRequirement{is("karpenter.k8s.aws/instance-gpu-count", v1.NodeSelectorOpGt, "0")}, gpu, true},
		"GPUs of another maker":              {[]v1.NodeSelectorRequirement{is(category, in, "inf", "trn")}, gpu, false},
		"Neuron":                             {[]v1.NodeSelectorRequirement{is(category, in, "inf", "trn")}, "aws.amazon.com/neuron", true},
		"an interface of any type":           {[]v1.NodeSelectorRequirement{is(category, in, "c")}, "vpc.amazonaws.com/pod-eni", true},
		"huge pages":                         {nil, "hugepages-2Mi", false},
		"a device that no instance type has": {nil, "devices.kubevirt.io/kvm", false},
		"impossible":                         {[]v1.NodeSelectorRequirement{is(category, in)}, gpu, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := clustertest.NewPod("p")
			pod.Spec.Containers[0].Resources.Requests[test.resource] = resource.MustParse("1")
			got := workload.PoolNode(&providers.NodePool{Requirements: test.pool}, builtinPolicy, pod, nil, decision.OnDemand)
			if (got != nil) != test.want {
				t.Errorf("node %v, want one: %t", got, test.want)
			}
		})
	}
}

// The requirements of a pool and of a pod decide whether the pool may add a node for the pod.
func TestPoolNode(t *testing.T) {
	is := func(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	in := func(key string, values ...string) v1.NodeSelectorRequirement {
		return is(key, v1.NodeSelectorOpIn, values...)
	}
	selector := func(terms ...[]v1.NodeSelectorRequirement) *v1.NodeSelector {
		selector := &v1.NodeSelector{}
		for _, term := range terms {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: term})
		}
		return selector
	}
	type list = []v1.NodeSelectorRequirement
	const capacity, csiZone = "karpenter.sh/capacity-type", "topology.ebs.csi.aws.com/zone"
	zones, none := in(v1.LabelTopologyZone, "a", "b"), (*v1.NodeSelector)(nil)
	for name, test := range map[string]struct {
		pool     list
		pod      *v1.NodeSelector // its node affinity
		volume   *v1.NodeSelector
		capacity decision.CapacityType
		want     bool
	}{
		"nothing required":                  {list{}, none, none, decision.OnDemand, true},
		"both types, on-demand":             {list{in(capacity, "spot", "on-demand")}, none, none, decision.OnDemand, true},
		"both types, spot":                  {list{in(capacity, "spot", "on-demand")}, none, none, decision.Spot, true},
		"spot only":                         {list{in(capacity, "spot")}, none, none, decision.OnDemand, false},
		"not spot":                          {list{is(capacity, v1.NodeSelectorOpNotIn, "spot")}, none, none, decision.OnDemand, true},
		"labelled as spot":                  {list{in(capacity, "spot", "on-demand"), in("node.kubernetes.io/capacity", "spot")}, none, none, decision.OnDemand, false},
		"a label of the pool":               {list{in("team", "apps")}, selector(list{in("team", "apps")}), none, decision.OnDemand, true},
		"another value":                     {list{in("team", "apps")}, selector(list{in("team", "ads")}), none, decision.OnDemand, false},
		"a label that no pool sets":         {list{}, selector(list{in("team", "apps")}), none, decision.OnDemand, false},
		"not in, a label that no pool sets": {list{}, selector(list{is("team", v1.NodeSelectorOpNotIn, "ads")}), none, decision.OnDemand, true},
		"any value of the pool":             {list{is("team", v1.NodeSelectorOpExists)}, selector(list{in("team", "x")}), none, decision.OnDemand, true},
		"the label must not exist":          {list{in("team", "apps")}, selector(list{is("team", v1.NodeSelectorOpDoesNotExist)}), none, decision.OnDemand, false},
		"an instance type":                  {list{zones}, selector(list{in(v1.LabelInstanceTypeStable, "m5.large")}), none, decision.OnDemand, true},
		"a number of CPUs":                  {list{is("karpenter.k8s.aws/instance-cpu", v1.NodeSelectorOpGt, "3")}, selector(list{is("karpenter.k8s.aws/instance-cpu", v1.NodeSelectorOpLt, "9")}), none, decision.OnDemand, true},
		"too many CPUs":                     {list{is("karpenter.k8s.aws/instance-cpu", v1.NodeSelectorOpGt, "3")}, selector(list{in("karpenter.k8s.aws/instance-cpu", "2")}), none, decision.OnDemand, false},
		"a host":                            {list{}, selector(list{in(v1.LabelHostname, "n")}), none, decision.OnDemand, false},
		"its zone":                          {list{zones}, selector(list{in(v1.LabelTopologyZone, "b", "c")}), none, decision.OnDemand, true},
		"another zone":                      {list{zones}, selector(list{in(v1.LabelTopologyZone, "c")}), none, decision.OnDemand, false},
		"an alternative":                    {list{zones}, selector(list{in(v1.LabelTopologyZone, "c")}, list{in(v1.LabelTopologyZone, "a")}), none, decision.OnDemand, true},
		"a volume in its zone":              {list{zones}, none, selector(list{in(csiZone, "b")}), decision.OnDemand, true},
		"a volume in another zone":          {list{zones}, none, selector(list{in(csiZone, "c")}), decision.OnDemand, false},
		"a pod in another zone than its volume": {list{zones}, selector(list{in(v1.LabelTopologyZone, "a")}), selector(list{in(csiZone, "b")}), decision.OnDemand,
			false},
		"not spot, for spot":      {list{is(capacity, v1.NodeSelectorOpNotIn, "spot")}, none, none, decision.Spot, false},
		"not on-demand, for spot": {list{is(capacity, v1.NodeSelectorOpNotIn, "on-demand")}, none, none, decision.Spot, true},
		"another name of a label": {list{in(v1.LabelOSStable, "linux")}, selector(list{in("beta.kubernetes.io/os", "linux")}), none, decision.OnDemand, true},
		"another node class":      {list{}, selector(list{in("karpenter.k8s.aws/ec2nodeclass", "gpu")}), none, decision.OnDemand, false},
		"a volume of one node":    {list{zones}, none, selector(list{in("topology.topolvm.io/node", "n")}), decision.OnDemand, false},
		"EKS Auto Mode":           {list{}, selector(list{in("eks.amazonaws.com/instance-category", "c")}), none, decision.OnDemand, true},
		"a managed node group":    {list{}, selector(list{in("eks.amazonaws.com/nodegroup", "c")}), none, decision.OnDemand, false},
		"no named zone":           {list{is(v1.LabelTopologyZone, v1.NodeSelectorOpExists)}, none, none, decision.OnDemand, true},
		"too many values":         {list{zones}, selector(list{in(v1.LabelTopologyZone, append(make([]string, workload.MaxTerms), "a")...)}), none, decision.OnDemand, false},
		"impossible":              {list{in("a", "x"), in("a", "y")}, none, none, decision.OnDemand, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := clustertest.NewPod("p")
			if test.pod != nil {
				pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: test.pod}}
			}
			var volumes []*v1.PersistentVolume
			if test.volume != nil {
				volumes = append(volumes, &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{Required: test.volume}}})
			}
			got := workload.PoolNode(&providers.NodePool{Requirements: test.pool}, builtinPolicy, pod, volumes, test.capacity)
			if (got != nil) != test.want {
				t.Errorf("node %v, want one: %t", got, test.want)
			}
		})
	}
}
