package nodepools

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// TestRead: the fields of Karpenter's NodePools decide whether a spot node may be added. If
// the API server does not serve them, or if one is malformed, there is no evidence. After another
// error, what was read before still counts.
func TestReader(t *testing.T) {
	const taints = `"taints": [{"key": "t", "effect": "NoSchedule"}]`
	const spotOnly = `"requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"], "minValues": 1}]`
	template := func(spec string) string { return `{"spec": {"template": {"spec": {` + spec + `}}}}` }
	for name, test := range map[string]struct {
		pool  string
		error error
		want  bool
	}{
		"a spot pool":         {pool: template(spotOnly), want: true},
		"tainted":             {pool: template(spotOnly + ", " + taints), want: false},
		"tainted, by a label": {pool: `{"spec": {"template": {"metadata": {"labels": {"karpenter.sh/capacity-type": "spot"}}, "spec": {` + taints + `}}}}`, want: false},
		"limited to nothing":  {pool: `{"spec": {"limits": {"cpu": "0"}, "template": {"spec": {` + spotOnly + `}}}}`, want: false},
		"at its limit":        {pool: `{"spec": {"limits": {"cpu": 8}, "template": {"spec": {` + spotOnly + `}}}, "status": {"resources": {"cpu": "8"}}}`, want: false},
		"below its limit":     {pool: `{"spec": {"limits": {"cpu": 8}, "template": {"spec": {` + spotOnly + `}}}, "status": {"resources": {"cpu": "7"}}}`, want: true},
		"malformed":           {pool: template(`"taints": "all"`), want: true},
		"not served":          {pool: template(spotOnly), error: apierrors.NewNotFound(providers.NodePools.GroupResource(), ""), want: true},
		"forbidden":           {pool: template(spotOnly), error: apierrors.NewForbidden(providers.NodePools.GroupResource(), "", nil), want: false},
		"unavailable":         {pool: template(spotOnly), error: apierrors.NewServiceUnavailable("test"), want: false},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(test.pool), &object.Object); err != nil {
				t.Fatal(err)
			}
			object.SetAPIVersion("karpenter.sh/v1")
			object.SetKind("NodePool")
			object.SetName("pool")
			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{providers.NodePools: "NodePoolList"}, object)
			client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return test.error != nil, nil, test.error })
			w := clustertest.NewWorld(t)
			w.Build("node o on-demand m/a\ndeployment x 1 o")
			k := &simulation.Provisioning{Policy: &w.Policy}
			k.SetPools([]providers.NodePool{{Left: v1.ResourceList{v1.ResourceCPU: {}}}}) // as read before
			read(t.Context(), client, &k.Pools)
			s := w.Snapshot()
			got := k.Feasibility(s).FitsNewNode(clustertest.Find(t, s, "x-0"), decision.AssignedSpot)
			clustertest.Equal(t, "an autoscaler may add a spot node", test.want, got)
		})
	}
}
