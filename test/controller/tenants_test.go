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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
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
				s.deploy(app, 3, annotated(fallbackAfter, "3s"))
			}
			for _, app := range []string{"heals", "leaves"} {
				s.eventually(soon, s.hasSplit(app, split{OnDemand: 1, Spot: 2}))
			}
			s.loseNodes("od-1")
			for _, app := range []string{"heals", "leaves"} {
				s.eventually(soon, s.hasSplit(app, split{Spot: 3}))
				s.protect(app, 3, maxUnavailable("0"))
			}
			var zoo *zoo
			if beside {
				zoo = s.openZoo("heals")
			}
			s.control(settings{"rebalance.pauseAfterInterruption": "0s", "rebalance.calmPeriod": "1s"})

			began := time.Now()
			s.addNodes(live.Nodes("od-new", lab.OnDemand, "m5.xlarge", 1, 4)...)
			for _, app := range []string{"heals", "leaves"} {
				s.eventually(2*soon, s.hasSplit(app, split{OnDemand: 1, Spot: 2}))
			}
			healed := time.Since(began)
			began = time.Now()
			s.notice("spot-1", 2*time.Minute)
			s.eventually(time.Minute, s.empty("spot-1"))
			left := time.Since(began)
			for _, app := range []string{"heals", "leaves"} {
				s.eventually(soon, s.hasSplit(app, split{OnDemand: 1, Spot: 2}))
				s.eventually(soon, s.complete(app, 3))
			}
			for _, app := range []string{"heals", "leaves"} {
				s.eventually(soon, s.told(app+"-", "ReleasedToMove", "heal"))
			}
			t.Logf("healed after %s, the node is empty after %s", healed.Round(100*time.Millisecond), left.Round(100*time.Millisecond))
			if deficits := s.auditor.Deficits(); len(deficits) > 0 {
				t.Errorf("below their floors: %v", deficits)
			}
			if beside {
				zoo.check()
			}
		})
	}
}

// zoo is a namespace with hostile pods on a node of their own.
type zoo struct {
	*scenario
	namespace string
	client    kubernetes.Interface // the controller's user, with all rights
}

const zooNode, hostileLabel = "zoo", "hostile"

// hostile reports whether a pod belongs to a zoo.
func hostile(p *v1.Pod) bool { return p.Labels[hostileLabel] != "" }

// openZoo creates hostile pods of every kind, which claim to belong to the ReplicaSet of an app
// of the scenario.
func (s *scenario) openZoo(app string) *zoo {
	s.Helper()
	config := rest.CopyConfig(controlPlane.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:spot-controller", Groups: []string{"system:masters"}}
	own, err := kubernetes.NewForConfig(config)
	s.must(err)
	z := &zoo{scenario: s, namespace: s.newNamespace(), client: own}
	s.others = append(s.others, z.namespace)
	s.Cleanup(z.close) // before the scenario clears the namespace
	s.addNodes(lab.NodeSpec{Name: zooNode, Capacity: lab.OnDemand, CPU: "20", Memory: "64Gi", Pods: 110, Taints: []v1.Taint{
		{Key: zooNode, Effect: v1.TaintEffectNoSchedule},
	}})
	victim, err := s.findReplicaSet(s.namespace, app)
	s.must(err)
	owner := func(apiVersion, kind string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: victim.Name, UID: victim.UID, Controller: ptr.To(true)}}
		}
	}
	z.pod("owner-of-another-kind", owner("example.com/v1", "Foo"))
	z.pod("owner-in-another-namespace", owner("apps/v1", "ReplicaSet"))
	z.pod("released-from-another-namespace", releasedFrom(victim))
	z.pod("released-from-nothing", releasedFrom(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "gone"}}))
	z.pod("no-json", func(p *v1.Pod) {
		p.Annotations, p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = map[string]string{releasedAnnotation: "{"}, "released"
	})

	// Five valid releases of a workload whose replacements never start, and one of a pod that
	// does not terminate.
	const replicas = 5
	template := live.PodTemplate("never")
	template.Spec.SchedulerName, template.Spec.NodeSelector = "nobody", map[string]string{"no": "where"} // its pods are never bound
	_, err = client.AppsV1().Deployments(z.namespace).Create(s.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "never"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "never"}}, Template: template,
	}}, metav1.CreateOptions{})
	s.must(err)
	var never *appsv1.ReplicaSet
	s.eventually(soon, func() error { never, err = s.findReplicaSet(z.namespace, "never"); return err })
	names := []string{"endless"}
	for i := range replicas {
		names = append(names, fmt.Sprintf("heal-%d", i))
	}
	for _, name := range names {
		z.pod(name, func(p *v1.Pod) {
			p.Labels["app"] = "never"
			if name == "endless" {
				p.Finalizers = []string{"example.com/endless"}
			}
		})
	}
	for _, name := range names { // the controller evicts an unready pod at once
		s.eventually(soon, func() error {
			p, err := own.CoreV1().Pods(z.namespace).Get(s.ctx, name, metav1.GetOptions{})
			if err == nil && !isReady(p) {
				err = fmt.Errorf("%s is not ready", name)
			}
			if err != nil {
				return err
			}
			releasedFrom(never)(p)
			_, err = own.CoreV1().Pods(z.namespace).Update(s.ctx, p, metav1.UpdateOptions{})
			return err
		})
	}
	s.must(own.CoreV1().Pods(z.namespace).Delete(s.ctx, "endless", metav1.DeleteOptions{}))
	return z
}

// releasedFrom returns an edit that makes a pod claim to be released for a heal.
func releasedFrom(rs *appsv1.ReplicaSet) func(*v1.Pod) {
	return func(p *v1.Pod) {
		hash := rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		if hash == "" {
			hash = "gone"
		}
		text, err := json.Marshal(map[string]any{
			"replicaSet": rs.Name, "replicaSetUID": rs.UID, "hash": hash, "reason": "heal", "at": time.Now().UTC(),
		})
		if err != nil {
			panic(err)
		}
		p.Annotations, p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = map[string]string{releasedAnnotation: string(text)}, "released"
	}
}

// pod creates a pod that runs on the zoo's node.
func (z *zoo) pod(name string, edit func(*v1.Pod)) {
	z.Helper()
	template := live.PodTemplate(name)
	p := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	p.Labels[hostileLabel] = "true"
	p.Name, p.Spec.NodeName, p.Spec.SchedulerName = name, zooNode, "nobody"
	edit(p)
	_, err := z.client.CoreV1().Pods(z.namespace).Create(z.ctx, p, metav1.CreateOptions{})
	z.must(err)
}

// findReplicaSet returns the only ReplicaSet of an app.
func (s *scenario) findReplicaSet(namespace, app string) (*appsv1.ReplicaSet, error) {
	list, err := client.AppsV1().ReplicaSets(namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err == nil && len(list.Items) != 1 {
		err = fmt.Errorf("%s has %d ReplicaSets, want 1", app, len(list.Items))
	}
	if err != nil {
		return nil, err
	}
	return &list.Items[0], nil
}

// check requires that the pods with false claims are untouched and counted, and that the pod that
// does not terminate is reported.
func (z *zoo) check() {
	z.Helper()
	for _, name := range []string{"owner-of-another-kind", "released-from-another-namespace", "no-json"} {
		p, err := z.client.CoreV1().Pods(z.namespace).Get(z.ctx, name, metav1.GetOptions{})
		z.must(err)
		if p.DeletionTimestamp != nil || p.Annotations[releasedAnnotation] == "" && name != "owner-of-another-kind" {
			z.Errorf("%s was touched: terminating %t, annotations %v", name, p.DeletionTimestamp != nil, p.Annotations)
		}
	}
	z.eventually(soon, z.counts(2, "spot_aware_scheduler_invalid_pods", map[string]string{"claim": "release"}))
	// Kubernetes' garbage collector deletes the pod whose owner is in another namespace.
	z.eventually(soon, func() error {
		if n, err := z.counted("spot_aware_scheduler_invalid_pods", map[string]string{"claim": "owner"}); err != nil || n < 1 {
			return fmt.Errorf("%d pods with a wrong owner (%v), want 1", n, err)
		}
		return nil
	})
	z.must(z.counts(0, "spot_aware_scheduler_panics_total", nil)())
	z.eventually(90*time.Second, z.counts(1, "spot_aware_scheduler_moved_pods_overdue_total", nil))
	z.eventually(soon, func() error {
		list, err := client.EventsV1().Events(z.namespace).List(z.ctx, metav1.ListOptions{FieldSelector: "reason=TerminationOverdue"})
		if err == nil && (len(list.Items) != 1 || list.Items[0].Regarding.Name != "endless") {
			err = fmt.Errorf("%d events TerminationOverdue, want one for the pod endless", len(list.Items))
		}
		return err
	})
}

// close lets the pod endless terminate.
func (z *zoo) close() {
	ctx := context.Background() // the test's context has ended
	_, err := client.CoreV1().Pods(z.namespace).Patch(ctx, "endless", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		z.Error(err)
	}
}
