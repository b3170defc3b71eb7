package providers

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
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

// NodeGroups are the labels that name a node, or a group of nodes that are created alike.
var NodeGroups = []string{v1.LabelHostname, NodePools.Group + "/nodepool", "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name",
	"cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool", "agentpool",
	"alibabacloud.com/nodepool-id", "doks.digitalocean.com/node-pool"}

// NodePool contains what an object of NodePools requires of its nodes.
type NodePool struct {
	// Taints are the permanent taints of the nodes.
	Taints []v1.Taint `json:"taints"`
	// Requirements are the labels that the nodes have.
	Requirements []v1.NodeSelectorRequirement `json:"requirements"`
	// LimitReached reports whether its nodes use all of a resource that the pool limits. NotReady
	// reports whether Karpenter adds no nodes for pods: the pool is not ready, static or deleted.
	LimitReached, NotReady bool `json:"-"`
}

// ReadNodePool reads an object of NodePools. Fields that it does not have are empty.
func ReadNodePool(object *unstructured.Unstructured) (NodePool, error) {
	var pool struct {
		Spec struct {
			Limits   v1.ResourceList `json:"limits"`
			Replicas *int64          `json:"replicas"` // of a static pool, which adds no node for a pod
			Template struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
				Spec NodePool `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
		Status struct {
			Resources  v1.ResourceList    `json:"resources"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pool); err != nil {
		return NodePool{}, fmt.Errorf("reading NodePool %s: %w", object.GetName(), err)
	}
	result := pool.Spec.Template.Spec
	ready := meta.FindStatusCondition(pool.Status.Conditions, "Ready") // old versions of Karpenter do not set it
	result.NotReady = object.GetDeletionTimestamp() != nil || pool.Spec.Replicas != nil || ready != nil && ready.Status != metav1.ConditionTrue
	labels := map[string]string{NodePools.Group + "/nodepool": object.GetName()}
	maps.Copy(labels, pool.Spec.Template.Metadata.Labels)
	for key, value := range labels {
		result.Requirements = append(result.Requirements,
			v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}})
	}
	for name, limit := range pool.Spec.Limits {
		used := pool.Status.Resources[name]
		result.LimitReached = result.LimitReached || used.Cmp(limit) >= 0
	}
	return result, nil
}

// devices matches the families of instances (of AWS, Azure and Google Cloud) that have the resources
// of a domain. Karpenter adds no node for a resource of another domain.
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
