package report

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// SpotPoolForm describes the input of NewSpotPool.
const SpotPoolForm = "instanceType=TYPE[,zone=ZONE][,cpu=QUANTITY,memory=QUANTITY][,taint=KEY[=VALUE]:EFFECT][,label=KEY=VALUE]"

// NewSpotPool returns a node of a spot pool that does not exist yet, from a text of the form
// SpotPoolForm. Taints and labels may be repeated. Without cpu and memory, the node is as large as
// an existing one of its instance type. The error has the field, the value and what is expected.
func (v *View) NewSpotPool(text string) (*snapshot.Node, error) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "the spot pool " + text, Labels: map[string]string{spot.CapacityLabel: "spot"}}}
	given := v1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		field, value, _ := strings.Cut(part, "=")
		if value == "" {
			return nil, fmt.Errorf("invalid value %q: %q has no value: expected %s", text, part, SpotPoolForm)
		}
		switch field {
		case "instanceType":
			n.Labels[v1.LabelInstanceTypeStable] = value
		case "zone":
			n.Labels[v1.LabelTopologyZone] = value
		case "label":
			key, label, _ := strings.Cut(value, "=")
			n.Labels[key] = label
		case "taint":
			name, effect, _ := strings.Cut(value, ":")
			taint := v1.Taint{Effect: v1.TaintEffect(effect)}
			taint.Key, taint.Value, _ = strings.Cut(name, "=")
			if !slices.Contains([]v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}, taint.Effect) {
				return nil, fmt.Errorf("invalid value %q: taint %q: expected KEY[=VALUE]:NoSchedule, PreferNoSchedule or NoExecute", text, value)
			}
			n.Spec.Taints = append(n.Spec.Taints, taint)
		case "cpu", "memory":
			amount, err := resource.ParseQuantity(value)
			if err != nil {
				return nil, fmt.Errorf("invalid value %q: %s %q: %w", text, field, value, err)
			}
			given[v1.ResourceName(field)] = amount
		default:
			return nil, fmt.Errorf("invalid value %q: unknown field %q: expected %s", text, field, SpotPoolForm)
		}
	}
	instanceType, zone := n.Labels[v1.LabelInstanceTypeStable], n.Labels[v1.LabelTopologyZone]
	if instanceType == "" {
		return nil, fmt.Errorf("invalid value %q: it has no instanceType: expected %s", text, SpotPoolForm)
	}
	switch like := slices.IndexFunc(v.Snapshot.Nodes, func(n *snapshot.Node) bool { return n.Facts.Pool.InstanceType == instanceType }); {
	case len(given) == 2:
		given[v1.ResourcePods] = *resource.NewQuantity(110, resource.DecimalSI) // the default of the kubelet
		n.Status.Allocatable = given
	case like < 0 || len(given) > 0:
		return nil, fmt.Errorf("invalid value %q: the size of %s is unknown: add cpu and memory", text, instanceType)
	default:
		n.Status.Allocatable = v.Snapshot.Nodes[like].Status.Allocatable
	}
	return &snapshot.Node{Node: n, Facts: decision.Node{
		Capacity: decision.Capacity{Type: decision.Spot}, Pool: decision.NewPool(instanceType, zone), Zone: zone,
	}}, nil
}
