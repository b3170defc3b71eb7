package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestHealAgainstUnknownFilter: an HTTP extender, which the controller cannot ask, refuses
// on-demand. The heal of a StatefulSet evicts first and fails. It is not repeated, although nodes
// change.
func TestHealAgainstUnknownFilter(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderArgs
		err := json.NewDecoder(r.Body).Decode(&args)
		if err != nil || args.NodeNames == nil {
			http.Error(w, fmt.Sprintf("no names of nodes: %v", err), http.StatusBadRequest)
			return
		}
		spot := slices.DeleteFunc(*args.NodeNames, func(name string) bool { return strings.HasPrefix(name, "od-") })
		_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: &spot}) // the scheduler reports a failed answer
	}))
	t.Cleanup(refusing.Close)
	s := &scenario{live.NewScenario(t, controlPlane, client, append(live.Spot(2, 10), live.OnDemand(1, 10)...)...)}
	s.Audit(nil, audit.Options{Author: requestLog.author, Forged: hostile})
	s.Watch()
	s.StartScheduler(lab.SchedulerOptions{Edit: func(config map[string]any) {
		config["extenders"] = []any{map[string]any{"urlPrefix": refusing.URL, "filterVerb": "filter", "nodeCacheCapable": true}}
	}})
	template := live.PodTemplate("db")
	_, err := client.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{fallbackAfter: "1s", minOnDemand: "0"}},
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually(soon, s.HasReadySplit("db", split{Spot: 2}))
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1"}}}`, minOnDemand)
	_, err = client.AppsV1().StatefulSets(s.Namespace).Patch(s.Ctx, "db", types.MergePatchType, patch, metav1.PatchOptions{})
	s.Must(err)
	s.StartController(onlyReason("heal"))
	s.Eventually(soon, func() error {
		if got := s.Seen.Removed("db"); len(got) != 1 || !got[0].Evicted {
			return fmt.Errorf("%d pods were removed, want one eviction", len(got))
		}
		return nil
	})
	s.Eventually(soon, s.HasReadySplit("db", split{Spot: 2}))
	for cpu := int64(11); cpu < 14; cpu++ {
		s.EditNode("od-1", func(node *v1.Node) {
			node.Labels["changing"] = fmt.Sprint(cpu)
			node.Status.Allocatable[v1.ResourceCPU] = *resource.NewQuantity(cpu, resource.DecimalSI)
		})
		s.RequireThroughout(time.Second, func() error {
			if got := s.Seen.Removed("db"); len(got) != 1 {
				return fmt.Errorf("%d pods were removed, want one", len(got))
			}
			return nil
		})
	}
}
