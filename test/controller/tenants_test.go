package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestHostileTenants: a workload must be healed and a node is reclaimed, beside pods with false
// claims. Both operations must work as without these pods. The test creates the pods as the
// controller's own user, because the admission policy does not apply to that user. So it tests
// the controller and not the policy.
func TestHostileTenants(t *testing.T) {
	for name, beside := range map[string]bool{"alone": false, "beside hostile pods": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t, append(live.Spot(2, 20), live.OnDemand(1, 2)...)...)
			for _, app := range []string{"heals", "leaves"} {
				s.Deploy(app, 3, live.Annotated(fallbackAfter, "3s"))
			}
			for _, app := range []string{"heals", "leaves"} {
				s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1, Spot: 2}))
			}
			s.LoseNodes("od-1")
			for _, app := range []string{"heals", "leaves"} {
				s.Eventually(soon, s.HasReadySplit(app, split{Spot: 3}))
				s.protect(app, 3, maxUnavailable("0"))
			}
			var pods *hostilePods
			if beside {
				pods = s.createHostilePods("heals")
			}
			s.StartController(live.Settings{"rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s"})

			began := time.Now()
			s.AddNodes(live.Nodes("od-new", lab.OnDemand, "m5.xlarge", 1, 4)...)
			for _, app := range []string{"heals", "leaves"} {
				s.Eventually(2*soon, s.HasReadySplit(app, split{OnDemand: 1, Spot: 2}))
			}
			healed := time.Since(began)
			began = time.Now()
			s.notice("spot-1", 2*time.Minute)
			s.Eventually(time.Minute, s.empty("spot-1"))
			left := time.Since(began)
			for _, app := range []string{"heals", "leaves"} {
				s.Eventually(soon, s.HasReadySplit(app, split{OnDemand: 1, Spot: 2}))
				s.Eventually(soon, s.complete(app, 3))
			}
			for _, app := range []string{"heals", "leaves"} {
				s.Eventually(soon, s.HasEvent(app+"-", "ReleasedToMove", "heal"))
			}
			t.Logf("healed after %s, the node is empty after %s", healed.Round(100*time.Millisecond), left.Round(100*time.Millisecond))
			if deficits := s.Auditor.Deficits(); len(deficits) > 0 {
				t.Errorf("below their floors: %v", deficits)
			}
			if beside {
				pods.requireUntouched()
			}
		})
	}
}

// hostilePods is a namespace with hostile pods on a node of their own.
type hostilePods struct {
	*scenario
	namespace string
	client    kubernetes.Interface // the controller's user, with all rights
}

const hostileNode, hostileLabel = "zoo", "hostile"

// hostile reports whether a pod has this label.
func hostile(p *v1.Pod) bool { return p.Labels[hostileLabel] != "" }

// createHostilePods creates hostile pods of every kind, which claim to belong to the ReplicaSet of
// an app of the scenario.
func (s *scenario) createHostilePods(app string) *hostilePods {
	s.Helper()
	config := rest.CopyConfig(controlPlane.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:spot-controller", Groups: []string{"system:masters"}}
	own, err := kubernetes.NewForConfig(config)
	s.Must(err)
	h := &hostilePods{scenario: s, namespace: s.NewNamespace(), client: own}
	s.Others = append(s.Others, h.namespace)
	s.Cleanup(h.close) // before the scenario clears the namespace
	s.AddNodes(lab.NodeSpec{Name: hostileNode, Capacity: lab.OnDemand, CPU: "20", Memory: "64Gi", Pods: 110, Taints: []v1.Taint{
		{Key: hostileNode, Effect: v1.TaintEffectNoSchedule},
	}})
	victim, err := s.findReplicaSet(s.Namespace, app)
	s.Must(err)
	owner := func(apiVersion, kind string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: victim.Name, UID: victim.UID, Controller: ptr.To(true)}}
		}
	}
	h.pod("owner-of-another-kind", owner("example.com/v1", "Foo"))
	h.pod("owner-in-another-namespace", owner("apps/v1", "ReplicaSet"))
	h.pod("released-from-another-namespace", releasedFrom(victim))
	h.pod("released-from-nothing", releasedFrom(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "gone"}}))
	h.pod("no-json", func(p *v1.Pod) {
		p.Annotations, p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = map[string]string{live.ReleasedAnnotation: "{"}, "released"
	})

	// Five valid releases of a workload whose replacements never start, and one of a pod that
	// does not terminate.
	const replicas = 5
	template := live.PodTemplate("never")
	template.Spec.SchedulerName, template.Spec.NodeSelector = "no-scheduler", map[string]string{"no": "where"} // its pods are never bound
	_, err = client.AppsV1().Deployments(h.namespace).Create(s.Ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "never"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "never"}}, Template: template,
	}}, metav1.CreateOptions{})
	s.Must(err)
	var never *appsv1.ReplicaSet
	s.Eventually(soon, func() error { never, err = s.findReplicaSet(h.namespace, "never"); return err })
	names := []string{"endless"}
	for i := range replicas {
		names = append(names, fmt.Sprintf("heal-%d", i))
	}
	for _, name := range names {
		h.pod(name, func(p *v1.Pod) {
			p.Labels["app"] = "never"
			if name == "endless" {
				p.Finalizers = []string{"example.com/endless"}
			}
		})
	}
	for _, name := range names { // the controller evicts an unready pod at once
		s.Eventually(soon, func() error {
			p, err := own.CoreV1().Pods(h.namespace).Get(s.Ctx, name, metav1.GetOptions{})
			if err == nil && !live.IsReady(p) {
				err = fmt.Errorf("%s is not ready", name)
			}
			if err != nil {
				return err
			}
			releasedFrom(never)(p)
			_, err = own.CoreV1().Pods(h.namespace).Update(s.Ctx, p, metav1.UpdateOptions{})
			return err
		})
	}
	s.Must(own.CoreV1().Pods(h.namespace).Delete(s.Ctx, "endless", metav1.DeleteOptions{}))
	return h
}

// releasedFrom returns an edit that makes a pod claim to be released for a heal. The claim of a pod
// that does not exist yet is that of a copy, because its UID is unknown.
func releasedFrom(rs *appsv1.ReplicaSet) func(*v1.Pod) {
	return func(p *v1.Pod) {
		hash := rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		if hash == "" {
			hash = "gone"
		}
		text, err := json.Marshal(map[string]any{
			"pod": p.UID, "replicaSet": rs.Name, "replicaSetUID": rs.UID, "hash": hash, "reason": "heal", "at": time.Now().UTC(),
		})
		if err != nil {
			panic(err)
		}
		p.Annotations, p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = map[string]string{live.ReleasedAnnotation: string(text)}, "released"
	}
}

// pod creates a pod that runs on hostileNode.
func (h *hostilePods) pod(name string, edit func(*v1.Pod)) {
	h.Helper()
	template := live.PodTemplate(name)
	p := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	p.Labels[hostileLabel] = "true"
	p.Name, p.Spec.NodeName, p.Spec.SchedulerName = name, hostileNode, "no-scheduler"
	edit(p)
	_, err := h.client.CoreV1().Pods(h.namespace).Create(h.Ctx, p, metav1.CreateOptions{})
	h.Must(err)
}

// findReplicaSet returns the only ReplicaSet of an app.
func (s *scenario) findReplicaSet(namespace, app string) (*appsv1.ReplicaSet, error) {
	list, err := client.AppsV1().ReplicaSets(namespace).List(s.Ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err == nil && len(list.Items) != 1 {
		err = fmt.Errorf("%s has %d ReplicaSets, want 1", app, len(list.Items))
	}
	if err != nil {
		return nil, err
	}
	return &list.Items[0], nil
}

// requireUntouched requires that the pods with false claims are untouched and counted, and that the
// pod that does not terminate is reported.
func (h *hostilePods) requireUntouched() {
	h.Helper()
	for _, name := range []string{"owner-of-another-kind", "released-from-another-namespace", "no-json"} {
		p, err := h.client.CoreV1().Pods(h.namespace).Get(h.Ctx, name, metav1.GetOptions{})
		h.Must(err)
		if p.DeletionTimestamp != nil || p.Annotations[live.ReleasedAnnotation] == "" && name != "owner-of-another-kind" {
			h.Errorf("%s was touched: terminating %t, annotations %v", name, p.DeletionTimestamp != nil, p.Annotations)
		}
	}
	h.Eventually(soon, h.HasMetric(h.Controller, 3, "spot_aware_scheduler_invalid_pods", map[string]string{"claim": "release"}))
	// Kubernetes' garbage collector deletes the pod whose owner is in another namespace.
	h.Eventually(soon, func() error {
		if n, err := h.MetricValue(h.Controller, "spot_aware_scheduler_invalid_pods", map[string]string{"claim": "owner"}); err != nil || n < 1 {
			return fmt.Errorf("%d pods with a wrong owner (%v), want 1", n, err)
		}
		return nil
	})
	h.Must(h.HasMetric(h.Controller, 0, "spot_aware_scheduler_panics_total", nil)())
	h.Eventually(90*time.Second, h.HasMetric(h.Controller, 1, "spot_aware_scheduler_moved_pods_overdue_total", nil))
	h.Eventually(soon, func() error {
		list, err := client.EventsV1().Events(h.namespace).List(h.Ctx, metav1.ListOptions{FieldSelector: "reason=TerminationOverdue"})
		if err == nil && (len(list.Items) != 1 || list.Items[0].Regarding.Name != "endless") {
			err = fmt.Errorf("%d events TerminationOverdue, want one for the pod endless", len(list.Items))
		}
		return err
	})
}

// close lets the pod endless terminate.
func (h *hostilePods) close() {
	ctx := context.Background() // the test's context has ended
	_, err := client.CoreV1().Pods(h.namespace).Patch(ctx, "endless", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		h.Error(err)
	}
}
