package providers

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodePools are the objects that describe the nodes that Karpenter may add.
var NodePools = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}

// NodePoolLabel is the label of a node with the name of its NodePool.
var NodePoolLabel = NodePools.Group + "/nodepool"

// eksAuto is the group of the node classes of EKS Auto Mode. Its nodes have the label compute-type
// of this domain, and labels with the properties of their instances.
const eksAuto = "eks.amazonaws.com"

// InstanceLabels are prefixes of labels that the provisioner sets by the instance that it chooses.
var InstanceLabels = []string{"karpenter.", eksAuto + "/instance-"}

// NodeGroups are the labels that name a node, or a group of nodes that are created alike.
var NodeGroups = []string{v1.LabelHostname, NodePoolLabel, "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name",
	"cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool", "agentpool",
	"alibabacloud.com/nodepool-id", "doks.digitalocean.com/node-pool"}

// NodePool contains what an object of NodePools requires of its nodes.
type NodePool struct {
	Name string `json:"-"`
	// Taints are the permanent taints of the nodes.
	Taints []v1.Taint `json:"taints"`
	// Requirements are the labels that the nodes have.
	Requirements []v1.NodeSelectorRequirement `json:"requirements"`
	// Left is what the limits of the pool leave of each limited resource.
	Left v1.ResourceList `json:"-"`
	// NotReady reports whether Karpenter adds no nodes for pods: the pool is not ready, static or
	// deleted. Or the object could not be read, and proves nothing.
	NotReady bool `json:"-"`
}

// Adds reports whether Karpenter may add a node of the pool now for a pod with these requests. An
// exhausted resource that the pod does not request matters only if every node has it.
func (p *NodePool) Adds(requests v1.ResourceList) bool {
	for name, left := range p.Left {
		onEach := slices.Contains([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "nodes"}, name)
		if request := requests[name]; left.Cmp(request) < 0 || onEach && left.IsZero() {
			return false
		}
	}
	return !p.NotReady
}

// ReadNodePool reads an object of NodePools. Fields that it does not have are empty. An unreadable
// object is NotReady, and harms no other pool.
func ReadNodePool(object *unstructured.Unstructured) NodePool {
	var pool struct {
		Spec struct {
			Limits   v1.ResourceList `json:"limits"`
			Replicas *int64          `json:"replicas"` // of a static pool, which adds no node for a pod
			Template struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
				Spec struct {
					NodePool     `json:",inline"`
					NodeClassRef struct {
						Group string `json:"group"`
					} `json:"nodeClassRef"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
		Status struct {
			Resources  v1.ResourceList    `json:"resources"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pool); err != nil {
		return NodePool{Name: object.GetName(), NotReady: true}
	}
	result := pool.Spec.Template.Spec.NodePool
	result.Name = object.GetName()
	for i := range result.Requirements {
		exclusive(&result.Requirements[i])
	}
	ready := meta.FindStatusCondition(pool.Status.Conditions, "Ready") // old versions of Karpenter do not set it
	result.NotReady = object.GetDeletionTimestamp() != nil || pool.Spec.Replicas != nil || ready != nil && ready.Status != metav1.ConditionTrue
	labels := map[string]string{NodePoolLabel: object.GetName()}
	maps.Copy(labels, pool.Spec.Template.Metadata.Labels)
	if pool.Spec.Template.Spec.NodeClassRef.Group == eksAuto {
		labels[eksAuto+"/compute-type"] = "auto"
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		result.Requirements = append(result.Requirements,
			v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{labels[key]}})
	}
	result.Left = pool.Spec.Limits
	for name, left := range result.Left {
		left.Sub(pool.Status.Resources[name])
		result.Left[name] = left
	}
	return result
}

// exclusive replaces the operators Gte and Lte, which only Karpenter has, by Gt and Lt.
func exclusive(r *v1.NodeSelectorRequirement) {
	shift := map[v1.NodeSelectorOperator]int{"Gte": -1, "Lte": 1}[r.Operator]
	if bound, err := strconv.Atoi(strings.Join(r.Values, ",")); err == nil && shift != 0 {
		r.Operator, r.Values = r.Operator[:len("Gt")], []string{strconv.Itoa(bound + shift)}
	}
}

// devices matches the families of instances (of AWS, Azure and Google Cloud) that have the
// resources of a domain. Karpenter adds no node for a resource of another domain.
var devices = map[string]*regexp.Regexp{
	"nvidia.com":        regexp.MustCompile("(?i)^(standard_)?[gpan]"),
	"amd.com":           regexp.MustCompile("(?i)^(standard_)?[gn]"),
	"aws.amazon.com":    regexp.MustCompile("^(inf|trn)"),
	"habana.ai":         regexp.MustCompile("^dl"),
	"vpc.amazonaws.com": regexp.MustCompile(""),
}

// familyLabels are the names of labels whose values begin with the family of the instance.
var familyLabels = []string{"instance-category", "instance-family", "instance-type", "sku-family", "sku-name"}

// MayOffer reports whether nodes of the pool may have an extended resource. It returns false only
// for a resource that no type of instances has, or if the pool permits only families without it.
func (p *NodePool) MayOffer(name v1.ResourceName) bool {
	domain, _, _ := strings.Cut(string(name), "/")
	families, known := devices[domain]
	return known && !slices.ContainsFunc(p.Requirements, func(r v1.NodeSelectorRequirement) bool {
		_, label, _ := strings.Cut(r.Key, "/")
		return r.Operator == v1.NodeSelectorOpIn && slices.Contains(familyLabels, label) && !slices.ContainsFunc(r.Values, families.MatchString)
	})
}
