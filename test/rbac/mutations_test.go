package rbac

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// mutations are what other policies change in pods at CREATE and UPDATE. The names of the policies
// sort before and after ours.
var mutations = map[string]string{
	"aaa-idempotent": `Object{metadata: Object.metadata{labels: {"example.com/team": "a"}, annotations: {"example.com/checked": "true"}}}`,
	"zzz-counts": `Object{metadata: Object.metadata{
      labels: {"example.com/n": string(int(object.metadata.?labels["example.com/n"].orValue("0")) + 1)},
      annotations: {"example.com/n": string(int(object.metadata.?annotations["example.com/n"].orValue("0")) + 1)}}}`,
}

// mutatePods installs a MutatingAdmissionPolicy for the pods of the namespace that match condition.
func (a *admission) mutatePods(name, condition, patch string) {
	a.Helper()
	c, err := ctrlclient.New(controlPlane.Config(), ctrlclient.Options{})
	live.Must(a.T, err)
	for _, text := range strings.Split(live.MutatingPolicies().Convert(fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}
  matchConditions: [{name: c, expression: %[2]s}]
  mutations:
  - %[3]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[4]s}}}}
`, name, strconv.Quote(condition), patch, a.namespace)), "---\n") {
		object := &unstructured.Unstructured{}
		live.Must(a.T, yaml.Unmarshal([]byte(text), &object.Object))
		live.Must(a.T, c.Create(a.Context(), object))
		a.Cleanup(func() { live.Must(a.T, c.Delete(context.Background(), object)) })
	}
}

// mutate installs all mutations and a webhook that changes pods and Jobs, and returns when they
// take effect. The webhook adds another toleration to a pod each time.
func (a *admission) mutate() {
	a.Helper()
	for name, expression := range mutations {
		a.mutatePods(name, "true", "{patchType: ApplyConfiguration, applyConfiguration: {expression: "+strconv.Quote(expression)+"}}")
	}
	var calls atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionreview.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		patch := []map[string]any{{"op": "add", "path": "/metadata/annotations/example.com~1call", "value": fmt.Sprint(calls.Add(1))}}
		var object metav1.PartialObjectMetadata
		if json.Unmarshal(review.Request.Object.Raw, &object) == nil && object.Annotations == nil {
			patch = slices.Insert(patch, 0, map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{}})
		}
		if review.Request.Kind.Kind == "Pod" {
			patch = append(patch, map[string]any{"op": "add", "path": "/spec/tolerations/-", "value": map[string]any{"key": fmt.Sprint("t", calls.Load()), "operator": "Exists"}})
		}
		review.Response = &admissionreview.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: ptr.To(admissionreview.PatchTypeJSONPatch)}
		review.Response.Patch, _ = json.Marshal(patch)
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	a.Cleanup(server.Close)
	rule := func(group, resource string) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}}}
	}
	webhooks := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := webhooks.Create(a.Context(), &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "counts"},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "counts.example.com", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules:             []admissionv1.RuleWithOperations{rule("", "pods"), rule("batch", "jobs")},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: a.namespace}},
		}},
	}, metav1.CreateOptions{})
	live.Must(a.T, err)
	a.Cleanup(func() { live.Must(a.T, webhooks.Delete(context.Background(), "counts", metav1.DeleteOptions{})) })
	live.Must(a.T, live.Until(a.Context(), limit, func() error {
		p, err := client.CoreV1().Pods(a.namespace).Create(a.Context(), a.newPod("mutated", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && (p.Labels["example.com/team"] == "" || p.Labels["example.com/n"] == "" || p.Annotations["example.com/call"] == "") {
			err = fmt.Errorf("not all mutations are in force: %v %v", p.Labels, p.Annotations)
		}
		return err
	}))
}

// clientOf returns a client with the rights and the credential of a program.
func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	live.Must(t, err)
	c, err := kubernetes.NewForConfig(config)
	live.Must(t, err)
	return c
}

func capacityGate(spec *v1.PodSpec) {
	spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "spot-aware-scheduler.io/capacity"}}
}

// TestRequestsWithForeignMutations shows that other policies and webhooks may change an object in
// the same request as the controller or the scheduler. The admission policies see the object after
// these mutations.
func TestRequestsWithForeignMutations(t *testing.T) {
	a := newAdmission(t)
	a.mutate()
	scheduler := clientOf(t, controlPlane.SchedulerKubeconfig)
	const (
		ungate   = `{"spec":{"schedulingGates":[]}}`
		affinity = `{"metadata":{"annotations":{"spot-aware-scheduler.io/assigned":"on-demand: test"}},"spec":{"schedulingGates":[],"affinity":{"nodeAffinity":` +
			`{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"NotIn","values":["spot"]}]}]}}}}}`
		release = `{"metadata":{"labels":{"pod-template-hash":"released"},"annotations":{"spot-aware-scheduler.io/released":"{}"}}}`
		restore = `{"metadata":{"labels":{"pod-template-hash":"1"},"annotations":{"spot-aware-scheduler.io/released":null}}}`
		cost    = `{"metadata":{"annotations":{"spot-aware-scheduler.io/deletion-cost":"1","controller.kubernetes.io/pod-deletion-cost":"1"}}}`
	)
	for i, step := range []struct {
		what    string
		by      kubernetes.Interface
		edit    func(*v1.Pod)
		patches []string
	}{
		{"the controller removes the gate", a.controller, func(p *v1.Pod) { capacityGate(&p.Spec) }, []string{affinity}},
		{"the scheduler removes the gate", scheduler, func(p *v1.Pod) { capacityGate(&p.Spec) }, []string{ungate}},
		{"release and restore", a.controller, nil, []string{release, restore}},
		{"deletion cost", a.controller, nil, []string{cost}},
		{"the scheduler restores", scheduler, marked, []string{restore}},
	} {
		name := fmt.Sprint("p-", i)
		a.pod(name, step.edit)
		for _, patch := range step.patches {
			before, err := client.CoreV1().Pods(a.namespace).Get(t.Context(), name, metav1.GetOptions{})
			live.Must(t, err)
			p, err := step.by.CoreV1().Pods(a.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err != nil {
				t.Errorf("%s: %v", step.what, err)
			} else if p.Annotations["example.com/call"] == before.Annotations["example.com/call"] || p.Labels["example.com/n"] == before.Labels["example.com/n"] ||
				len(p.Spec.Tolerations) == len(before.Spec.Tolerations) {
				t.Errorf("%s: the other policies changed nothing in the request", step.what)
			}
		}
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "batch"}, Spec: batchv1.JobSpec{Suspend: ptr.To(true)}}
	job.Spec.Template.Spec = a.newPod("", nil).Spec
	job.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	job, err := client.BatchV1().Jobs(a.namespace).Create(t.Context(), job, metav1.CreateOptions{})
	live.Must(t, err)
	counted, err := a.controller.BatchV1().Jobs(a.namespace).Patch(t.Context(), "batch", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"spot-aware-scheduler.io/disruptions":"2"}}}`), metav1.PatchOptions{})
	if err != nil || counted.Annotations["example.com/call"] == job.Annotations["example.com/call"] {
		t.Errorf("count a disruption: %v, annotations %v", err, counted.Annotations)
	}
}

// gatesGone is a check that no pod of the namespace has the gate.
func (a *admission) gatesGone(names ...string) func() error {
	return func() error {
		for _, name := range names {
			p, err := client.CoreV1().Pods(a.namespace).Get(a.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(p.Spec.SchedulingGates) > 0 {
				return fmt.Errorf("%s is gated", name)
			}
		}
		return nil
	}
}

// TestGatesWithForeignMutations runs the programs while other policies and a webhook change pods.
// The controller removes gates. When it is killed, and for pods whose scheduler a policy has
// changed, the scheduler removes them within gateTimeout and 10 s.
func TestGatesWithForeignMutations(t *testing.T) {
	const timeout = time.Second // configure
	a := newAdmission(t)
	live.Must(t, controlPlane.Apply(t.Context(), "manifests/overlays/autoscaler/rbac.yaml"))
	t.Cleanup(func() {
		live.Must(t, client.RbacV1().ClusterRoles().Delete(context.Background(), "spot-controller-autoscaler", metav1.DeleteOptions{}))
		live.Must(t, client.RbacV1().ClusterRoleBindings().Delete(context.Background(), "spot-controller-autoscaler", metav1.DeleteOptions{}))
	})
	a.mutate()
	a.mutatePods("zzz-elsewhere", `request.operation == "CREATE" && object.metadata.name.startsWith("elsewhere")`,
		`{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/spec/schedulerName", value: "elsewhere"}]'}}`)
	create := func(name string) {
		_, err := client.CoreV1().Pods(a.namespace).Create(t.Context(), pod(name, capacityGate), metav1.CreateOptions{})
		live.Must(t, err)
	}
	controller, err := controlPlane.StartController(t.Context(), lab.ControllerOptions{
		Edit: func(config map[string]any) { config["gating"] = map[string]any{"enabled": true} }, EditScheduler: configure,
	})
	live.Must(t, err)
	defer removeLease(t, controllers)
	create("by-the-controller")
	gone := live.Until(t.Context(), limit, a.gatesGone("by-the-controller"))
	live.Must(t, controller.Kill())
	live.Must(t, gone)

	scheduler, err := controlPlane.StartScheduler(t.Context(), lab.SchedulerOptions{Edit: configure})
	live.Must(t, err)
	defer removeLease(t, schedulers)
	defer func() { live.Must(t, scheduler.Kill()) }()
	create("by-the-scheduler")
	live.Must(t, live.Until(t.Context(), limit, func() error { // until the policy is in force
		p, err := client.CoreV1().Pods(a.namespace).Create(t.Context(), pod("elsewhere"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && p.Spec.SchedulerName != "elsewhere" {
			err = errors.New("no policy changes the scheduler")
		}
		return err
	}))
	create("elsewhere")
	live.Must(t, live.Until(t.Context(), timeout+10*time.Second, a.gatesGone("by-the-scheduler", "elsewhere")))
}

func removeLease(t *testing.T, of account) {
	t.Helper()
	if err := client.CoordinationV1().Leases(namespace).Delete(context.Background(), string(of), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// TestLocksOfAStoppedController releases pods as the controller does, removes each mark by hand,
// and rolls their Deployments out while no controller runs. The scheduler gives the pods back, and
// the rollouts remove them. It deletes a PodDisruptionBudget of the controller, also without the
// label.
func TestLocksOfAStoppedController(t *testing.T) {
	a := newAdmission(t)
	node := a.namespace + "-node"
	live.Must(t, controlPlane.CreateNodes(t.Context(), lab.NodeSpec{Name: node, Capacity: lab.OnDemand, CPU: "100"}))
	t.Cleanup(func() {
		live.Must(t, client.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}))
	})
	removeLease(t, controllers)
	now := metav1.NowMicro() // without a Lease, the scheduler would give pods back before they are replaced
	_, err := client.CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: string(controllers)},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: ptr.To[int32](3600)}}, metav1.CreateOptions{})
	live.Must(t, err)
	scheduler, err := controlPlane.StartScheduler(t.Context(), lab.SchedulerOptions{})
	live.Must(t, err)
	defer removeLease(t, schedulers)
	defer func() { live.Must(t, scheduler.Kill()) }()
	unmarks := map[string]string{
		"all-marks":     `{}`,
		"no-label":      `{"metadata":{"labels":{"pod-template-hash":null}}}`,
		"no-annotation": `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":null}}}`,
		"no-mark":       `{"metadata":{"labels":{"pod-template-hash":null},"annotations":{"spot-aware-scheduler.io/released":null}}}`,
	}
	released := map[string]types.UID{}
	for app, unmark := range unmarks {
		labels := map[string]string{"app": app}
		d, err := client.AppsV1().Deployments(a.namespace).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: app},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}}}, metav1.CreateOptions{})
		live.Must(t, err)
		p := a.ready(app, 1)[0]
		rs := *metav1.GetControllerOf(&p)
		free := rs
		free.Controller = nil
		mark, err := json.Marshal(map[string]any{"replicaSet": rs.Name, "replicaSetUID": rs.UID, "pod": p.UID, "hash": p.Labels[hashKey], "reason": "heal", "at": time.Now().UTC()})
		live.Must(t, err)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"labels": map[string]string{hashKey: "released"}, "annotations": map[string]string{releasedKey: string(mark)},
			"ownerReferences": []metav1.OwnerReference{free, {APIVersion: "apps/v1", Kind: "Deployment", Name: app, UID: d.UID, Controller: ptr.To(true)}},
		}})
		live.Must(t, err)
		for _, step := range []struct {
			by    kubernetes.Interface
			patch string
		}{{a.controller, string(patch)}, {a.tenant, unmark}} {
			_, err := step.by.CoreV1().Pods(a.namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{})
			live.Must(t, err)
		}
		released[app] = p.UID
		for name, own := range map[string]map[string]string{app: {"spot-aware-scheduler.io/protect": "true"}, app + "-protected": nil} {
			budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}}}
			budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nothing"}}
			_, err = client.PolicyV1().PodDisruptionBudgets(a.namespace).Create(t.Context(), budget, metav1.CreateOptions{})
			live.Must(t, err)
		}
	}
	for app := range unmarks {
		a.ready(app, 2) // the released pod and its replacement
		_, err := client.AppsV1().Deployments(a.namespace).Patch(t.Context(), app, types.StrategicMergePatchType,
			[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"registry.invalid/next"}]}}}}`), metav1.PatchOptions{})
		live.Must(t, err)
	}
	removeLease(t, controllers)
	ago := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	_, err = client.CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: string(controllers)},
		Spec: coordinationv1.LeaseSpec{RenewTime: &ago, LeaseDurationSeconds: ptr.To[int32](1)}}, metav1.CreateOptions{})
	live.Must(t, err)
	defer removeLease(t, controllers)
	live.Must(t, live.Until(t.Context(), limit, func() error {
		pods, err := client.CoreV1().Pods(a.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.UID == released[p.Labels["app"]] {
				return fmt.Errorf("the pod of the old revision of %s still runs: %v %v %v", p.Labels["app"], p.Labels, p.Annotations, p.OwnerReferences)
			}
		}
		budgets, err := client.PolicyV1().PodDisruptionBudgets(a.namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(budgets.Items) > 0 {
			err = fmt.Errorf("%d PodDisruptionBudgets remain, such as %s", len(budgets.Items), budgets.Items[0].Name)
		}
		return err
	}))
	for app := range unmarks {
		a.ready(app, 1)
	}
}

// ready returns the pods of an app when there are exactly n and all are ready.
func (a *admission) ready(app string, n int) (pods []v1.Pod) {
	a.Helper()
	live.Must(a.T, live.Until(a.Context(), limit, func() (err error) {
		pods, err = live.Pods(a.Context(), client, a.namespace, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		for _, p := range pods {
			if !slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue }) {
				return fmt.Errorf("%s is not ready", p.Name)
			}
		}
		if len(pods) != n {
			err = fmt.Errorf("%s has %d pods, want %d", app, len(pods), n)
		}
		return err
	}))
	return pods
}
