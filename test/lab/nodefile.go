package lab

import (
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// NodeGroup is an entry of a nodes file: Count nodes that differ only in their names, which are
// NamePrefix followed by 1, 2, 3 and so on. The other fields are the same as in NodeSpec.
type NodeGroup struct {
	NamePrefix   string            `json:"namePrefix"`
	Count        int               `json:"count"`
	Capacity     string            `json:"capacity,omitempty"`
	InstanceType string            `json:"instanceType,omitempty"`
	Zone         string            `json:"zone,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Taints       []corev1.Taint    `json:"taints,omitempty"`
	CPU          string            `json:"cpu,omitempty"`
	Memory       string            `json:"memory,omitempty"`
	Pods         int               `json:"pods,omitempty"`
}

// maxCount is larger than the number of nodes that one machine can simulate.
const maxCount = 10000

// ReadNodes returns the nodes of a nodes file, which is a YAML list of NodeGroups. An unknown
// field is an error. Invalid values are reported together, each with the path of the field and
// the expected value.
func ReadNodes(path string) ([]NodeSpec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the nodes file: %w", err)
	}
	var groups []NodeGroup
	if err := yaml.UnmarshalStrict(data, &groups); err != nil {
		return nil, fmt.Errorf("reading %s: expected a list of node groups: %w", path, err)
	}
	if errs := validateGroups(groups); len(errs) > 0 {
		return nil, fmt.Errorf("reading %s: %w", path, errs.ToAggregate())
	}
	return Expand(groups), nil
}

// Expand returns the nodes of the groups, in the order of the groups.
func Expand(groups []NodeGroup) []NodeSpec {
	var nodes []NodeSpec
	for _, g := range groups {
		for i := range g.Count {
			nodes = append(nodes, NodeSpec{
				Name: g.nodeName(i), Capacity: g.Capacity, InstanceType: g.InstanceType, Zone: g.Zone,
				Labels: g.Labels, Taints: g.Taints, CPU: g.CPU, Memory: g.Memory, Pods: g.Pods,
			})
		}
	}
	return nodes
}

func (g NodeGroup) nodeName(i int) string { return fmt.Sprintf("%s%d", g.NamePrefix, i+1) }

func validateGroups(groups []NodeGroup) field.ErrorList {
	root := field.NewPath("nodes")
	if len(groups) == 0 {
		return field.ErrorList{field.Required(root, "at least one node group")}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i, g := range groups {
		path := root.Index(i)
		errs = append(errs, g.validate(path)...)
		for n := range min(g.Count, maxCount) {
			name := g.nodeName(n)
			if names[name] {
				errs = append(errs, field.Duplicate(path.Child("namePrefix"), name))
				break
			}
			names[name] = true
		}
	}
	return errs
}

func (g NodeGroup) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	invalid := func(name string, value any, messages ...string) {
		for _, message := range messages {
			errs = append(errs, field.Invalid(path.Child(name), value, message))
		}
	}
	if g.NamePrefix == "" {
		errs = append(errs, field.Required(path.Child("namePrefix"), "the nodes' names begin with it"))
	} else {
		invalid("namePrefix", g.NamePrefix, validation.IsDNS1123Subdomain(g.nodeName(0))...)
	}
	if g.Count < 1 || g.Count > maxCount {
		invalid("count", g.Count, fmt.Sprintf("must be between 1 and %d", maxCount))
	}
	if g.Capacity != "" && g.Capacity != Spot && g.Capacity != OnDemand {
		errs = append(errs, field.NotSupported(path.Child("capacity"), g.Capacity, []string{OnDemand, Spot}))
	}
	invalid("instanceType", g.InstanceType, validation.IsValidLabelValue(g.InstanceType)...)
	invalid("zone", g.Zone, validation.IsValidLabelValue(g.Zone)...)
	errs = append(errs, metav1validation.ValidateLabels(g.Labels, path.Child("labels"))...)
	for i, taint := range g.Taints {
		path := path.Child("taints").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(taint.Key, path.Child("key"))...)
		for _, message := range validation.IsValidLabelValue(taint.Value) {
			errs = append(errs, field.Invalid(path.Child("value"), taint.Value, message))
		}
		if !slices.Contains(taintEffects, taint.Effect) {
			errs = append(errs, field.NotSupported(path.Child("effect"), taint.Effect, taintEffects))
		}
	}
	for name, value := range map[string]string{"cpu": g.CPU, "memory": g.Memory} {
		if value == "" {
			continue
		}
		if quantity, err := resource.ParseQuantity(value); err != nil || quantity.Sign() <= 0 {
			invalid(name, value, "must be a positive quantity such as 3920m or 14Gi")
		}
	}
	if g.Pods < 0 {
		invalid("pods", g.Pods, "must not be negative")
	}
	return errs
}

var taintEffects = []corev1.TaintEffect{
	corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
}
