package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestReadNodes(t *testing.T) {
	tests := map[string]struct {
		text string
		want []NodeSpec
	}{
		"everything": {
			text: `
- namePrefix: spot-a-
  count: 2
  capacity: spot
  instanceType: m5.large
  zone: us-east-1a
  labels: {team: shop}
  taints: [{key: kubernetes.azure.com/scalesetpriority, value: spot, effect: NoSchedule}]
  cpu: 1500m
  memory: 6Gi
  pods: 20
`,
			want: []NodeSpec{everything("spot-a-1"), everything("spot-a-2")},
		},
		"only required fields, two groups": {
			text: "- {namePrefix: a, count: 1}\n- {namePrefix: b, count: 1}",
			want: []NodeSpec{{Name: "a1"}, {Name: "b1"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ReadNodes(nodesFile(t, test.text))
			must(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func everything(name string) NodeSpec {
	return NodeSpec{
		Name: name, Capacity: Spot, InstanceType: "m5.large", Zone: "us-east-1a", Labels: map[string]string{"team": "shop"},
		Taints: []corev1.Taint{{Key: "kubernetes.azure.com/scalesetpriority", Value: "spot", Effect: "NoSchedule"}},
		CPU:    "1500m", Memory: "6Gi", Pods: 20,
	}
}

func TestValidateGroups(t *testing.T) {
	type problem struct {
		Type  field.ErrorType
		Field string
	}
	good := NodeGroup{NamePrefix: "a-", Count: 1}
	tests := map[string]struct {
		change func(*NodeGroup)
		want   []problem
	}{
		"valid":              {func(*NodeGroup) {}, nil},
		"no prefix":          {func(g *NodeGroup) { g.NamePrefix = "" }, []problem{{field.ErrorTypeRequired, "nodes[1].namePrefix"}}},
		"capital letters":    {func(g *NodeGroup) { g.NamePrefix = "Node-" }, []problem{{field.ErrorTypeInvalid, "nodes[1].namePrefix"}}},
		"duplicate name":     {func(g *NodeGroup) { g.NamePrefix = "other-" }, []problem{{field.ErrorTypeDuplicate, "nodes[1].namePrefix"}}},
		"no count":           {func(g *NodeGroup) { g.Count = 0 }, []problem{{field.ErrorTypeInvalid, "nodes[1].count"}}},
		"negative count":     {func(g *NodeGroup) { g.Count = -1 }, []problem{{field.ErrorTypeInvalid, "nodes[1].count"}}},
		"count out of bound": {func(g *NodeGroup) { g.Count = 10001 }, []problem{{field.ErrorTypeInvalid, "nodes[1].count"}}},
		"unknown capacity":   {func(g *NodeGroup) { g.Capacity = "Spot" }, []problem{{field.ErrorTypeNotSupported, "nodes[1].capacity"}}},
		"bad instance type":  {func(g *NodeGroup) { g.InstanceType = "m5 large" }, []problem{{field.ErrorTypeInvalid, "nodes[1].instanceType"}}},
		"bad zone":           {func(g *NodeGroup) { g.Zone = "a/b" }, []problem{{field.ErrorTypeInvalid, "nodes[1].zone"}}},
		"bad label":          {func(g *NodeGroup) { g.Labels = map[string]string{"a b": ""} }, []problem{{field.ErrorTypeInvalid, "nodes[1].labels"}}},
		"bad taint": {
			func(g *NodeGroup) { g.Taints = []corev1.Taint{{Key: "a b", Value: "c d", Effect: "Never"}} },
			[]problem{
				{field.ErrorTypeInvalid, "nodes[1].taints[0].key"},
				{field.ErrorTypeInvalid, "nodes[1].taints[0].value"},
				{field.ErrorTypeNotSupported, "nodes[1].taints[0].effect"},
			},
		},
		"bad cpu":       {func(g *NodeGroup) { g.CPU = "four" }, []problem{{field.ErrorTypeInvalid, "nodes[1].cpu"}}},
		"zero memory":   {func(g *NodeGroup) { g.Memory = "0" }, []problem{{field.ErrorTypeInvalid, "nodes[1].memory"}}},
		"negative pods": {func(g *NodeGroup) { g.Pods = -1 }, []problem{{field.ErrorTypeInvalid, "nodes[1].pods"}}},
		"two at once": {
			func(g *NodeGroup) { g.Count, g.Pods = 0, -1 },
			[]problem{{field.ErrorTypeInvalid, "nodes[1].count"}, {field.ErrorTypeInvalid, "nodes[1].pods"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			group := good
			test.change(&group)
			var got []problem
			for _, err := range validateGroups([]NodeGroup{{NamePrefix: "other-", Count: 1}, group}) {
				got = append(got, problem{err.Type, err.Field})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadInvalidNodes(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"an unknown field": {"- {namePrefix: a, count: 1, zones: b}", `unknown field "zones"`},
		"a wrong type":     {"- {namePrefix: a, count: one}", "count"},
		"no list":          {"namePrefix: a", "list of node groups"},
		"an empty list":    {"[]", "at least one node group"},
		"a wrong value":    {"- {namePrefix: a, count: -1}", "nodes[0].count: Invalid value: -1: must be between"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadNodes(nodesFile(t, test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %s", err, test.want)
			}
		})
	}
	if _, err := ReadNodes(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func nodesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nodes.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
