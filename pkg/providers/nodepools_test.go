package providers_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// What Kubernetes does not know is translated. An object that cannot be read proves nothing.
func TestReadNodePool(t *testing.T) {
	const cpu = "karpenter.k8s.aws/instance-cpu"
	type list = []v1.NodeSelectorRequirement
	named := v1.NodeSelectorRequirement{Key: providers.NodePoolLabel, Operator: v1.NodeSelectorOpIn, Values: []string{"p"}}
	for name, test := range map[string]struct {
		spec string
		want providers.NodePool
	}{
		"bounds": {
			`{"requirements": [{"key": "` + cpu + `", "operator": "Gte", "values": ["4"]}, {"key": "` + cpu + `", "operator": "Lte", "values": ["8"]}]}`,
			providers.NodePool{Name: "p", Requirements: list{{Key: cpu, Operator: v1.NodeSelectorOpGt, Values: []string{"3"}},
				{Key: cpu, Operator: v1.NodeSelectorOpLt, Values: []string{"9"}}, named}},
		},
		"no number": {
			`{"requirements": [{"key": "` + cpu + `", "operator": "Gte", "values": ["many"]}, {"key": "` + cpu + `", "operator": "Lte"}]}`,
			providers.NodePool{Name: "p", Requirements: list{{Key: cpu, Operator: "Gte", Values: []string{"many"}}, {Key: cpu, Operator: "Lte"}, named}},
		},
		"EKS Auto Mode": {
			`{"nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}}`,
			providers.NodePool{Name: "p", Requirements: list{{Key: "eks.amazonaws.com/compute-type", Operator: v1.NodeSelectorOpIn, Values: []string{"auto"}}, named}},
		},
		"unreadable": {`{"requirements": "all"}`, providers.NodePool{Name: "p", NotReady: true}},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(`{"metadata": {"name": "p"}, "spec": {"template": {"spec": `+test.spec+`}}}`), &object.Object); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, providers.ReadNodePool(object)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
