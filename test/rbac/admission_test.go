package rbac

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The names that users read. The literal values detect an accidental change of the constants in the
// code.
const (
	controllerUser = "system:serviceaccount:kube-system:spot-controller"
	releasedKey    = "spot-aware-scheduler.io/released"
	hashKey        = appsv1.DefaultDeploymentUniqueLabelKey
	podsPolicy     = "spot-controller-pods"
)

// as returns a client that impersonates a user with these groups.
func as(user string, groups ...string) (kubernetes.Interface, error) {
	config := rest.CopyConfig(controlPlane.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return kubernetes.NewForConfig(config)
}

// admission is a namespace in which the shipped policy is in force.
type admission struct {
	*testing.T
	namespace string
	// controller uses the controller's own account with its own rights. mighty is the same user
	// without RBAC restrictions. tenant has all rights on the pods of the namespace.
	controller, mighty, tenant kubernetes.Interface
	// owner refers to an existing object. The garbage collector would delete an object with a
	// reference to a missing one.
	owner metav1.OwnerReference
}

func newAdmission(t *testing.T) *admission {
	t.Helper()
	kubeconfig, err := controlPlane.ControllerKubeconfig(t.Context())
	live.Must(t, err)
	a := &admission{T: t, controller: clientOf(t, kubeconfig)}
	a.mighty, err = as(controllerUser, "system:masters")
	live.Must(t, err)
	a.tenant, err = as("tenant", "system:authenticated")
	live.Must(t, err)
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-"}}, metav1.CreateOptions{})
	live.Must(t, err)
	a.namespace = ns.Name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		list, err := client.CoreV1().Pods(a.namespace).List(ctx, metav1.ListOptions{})
		live.Must(t, err)
		for _, p := range list.Items { // no controller removes their finalizers
			_, err := client.CoreV1().Pods(a.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			live.Must(t, err)
		}
		live.Must(t, live.Clear(ctx, client, a.namespace))
		live.Must(t, client.CoreV1().Namespaces().Delete(ctx, a.namespace, metav1.DeleteOptions{}))
	})
	_, err = client.RbacV1().Roles(a.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}}, metav1.CreateOptions{})
	live.Must(t, err)
	_, err = client.RbacV1().RoleBindings(a.namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "tenant"}},
	}, metav1.CreateOptions{})
	live.Must(t, err)
	owner, err := client.CoreV1().ConfigMaps(a.namespace).Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	live.Must(t, err)
	a.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)}
	// A policy takes effect some time after its creation, and so does a right.
	a.pod("probe", nil)
	for patch, by := range map[string]kubernetes.Interface{
		`{"metadata":{"labels":{"pod-template-hash":"released"}}}`:                a.tenant,
		`{"spec":{"containers":[{"name":"c","image":"registry.invalid/other"}]}}`: a.mighty,
	} {
		live.Must(t, live.Until(t.Context(), limit, func() error {
			_, err := by.CoreV1().Pods(a.namespace).Patch(t.Context(), "probe", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return rejectedBy(podsPolicy, err)
		}))
	}
	return a
}

// TestPoliciesCompile checks that the API server reports no warning about the expressions of the
// shipped policies.
func TestPoliciesCompile(t *testing.T) {
	_, err := controlPlane.ControllerKubeconfig(t.Context()) // applies the controller's policy
	live.Must(t, err)
	for _, name := range []string{podsPolicy, "spot-controller-jobs", "spot-aware-scheduler-pods", "spot-aware-scheduler-budgets"} {
		live.Must(t, live.Until(t.Context(), limit, func() error {
			policy, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && (policy.Status.TypeChecking == nil || policy.Status.ObservedGeneration != policy.Generation) {
				err = fmt.Errorf("%s has not been checked", name)
			}
			if err == nil {
				for _, warning := range policy.Status.TypeChecking.ExpressionWarnings {
					t.Errorf("%s: %s", warning.FieldRef, warning.Warning)
				}
			}
			return err
		}))
	}
}

// rejectedBy returns nil if err is a rejection by this policy, and an error otherwise.
func rejectedBy(policy string, err error) error {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'") {
		return nil
	}
	return fmt.Errorf("got %v, want a rejection by the policy %s", err, policy)
}

// pod creates a pod for an unknown scheduler. It does so as the controller's user, which may add
// marks.
func (a *admission) pod(name string, edit func(*v1.Pod)) {
	a.Helper()
	_, err := a.mighty.CoreV1().Pods(a.namespace).Create(a.Context(), a.newPod(name, edit), metav1.CreateOptions{})
	live.Must(a.T, err)
}

func (a *admission) newPod(name string, edit func(*v1.Pod)) *v1.Pod {
	p := pod(name, func(spec *v1.PodSpec) { spec.SchedulerName = "no-scheduler" })
	p.Labels, p.Annotations = nil, nil
	if edit != nil {
		edit(p)
	}
	return p
}

// marked adds the marks of a released pod.
func marked(p *v1.Pod) {
	p.Labels = map[string]string{hashKey: "released", "app": "web"}
	p.Annotations = map[string]string{releasedKey: "{}", "theirs": "x"}
}

func (a *admission) patch(c kubernetes.Interface, name, patch string, subresources ...string) error {
	_, err := c.CoreV1().Pods(a.namespace).Patch(a.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// TestSchedulerMayRemoveOnlyItsGate shows that the scheduler may update a pod only to remove the
// capacity gate or to restore a released pod. Fields that a mutating policy may change in the same
// request may differ; images and the like may not.
func TestSchedulerMayRemoveOnlyItsGate(t *testing.T) {
	const policy = "spot-aware-scheduler-pods"
	a := newAdmission(t)
	scheduler := clientOf(t, controlPlane.SchedulerKubeconfig)
	a.pod("gated", func(p *v1.Pod) {
		p.Finalizers = []string{"example.com/theirs"}
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "spot-aware-scheduler.io/capacity"}, {Name: "quota.example/wait"}}
	})
	a.pod("released", marked)
	a.pod("free", nil)
	const theirs = `"schedulingGates":[{"name":"quota.example/wait"}]`
	for what, step := range map[string]struct {
		pod, patch string
		rejected   bool
	}{
		"its gate": {"gated", `{"spec":{` + theirs + `}}`, false},
		// A mutating policy may change these in the same request.
		"its gate and a deadline":      {"gated", `{"spec":{` + theirs + `,"activeDeadlineSeconds":5}}`, false},
		"its gate and a node selector": {"gated", `{"spec":{` + theirs + `,"nodeSelector":{"a":"b"}}}`, false},
		"its gate and a toleration":    {"gated", `{"spec":{` + theirs + `,"tolerations":[{"key":"x","operator":"Exists"}]}}`, false},
		"its gate and a label":         {"gated", `{"metadata":{"labels":{"a":"b"}},"spec":{` + theirs + `}}`, false},
		"its gate and an annotation":   {"gated", `{"metadata":{"annotations":{"a":"b"}},"spec":{` + theirs + `}}`, false},
		"its gate and a finalizer":     {"gated", `{"metadata":{"finalizers":["example.com/theirs","example.com/x"]},"spec":{` + theirs + `}}`, false},

		"its gate and an image":        {"gated", `{"spec":{` + theirs + `,"containers":[{"name":"c","image":"registry.invalid/other"}]}}`, true},
		"its gate, without finalizers": {"gated", `{"metadata":{"finalizers":null},"spec":{` + theirs + `}}`, true},
		"its gate and an owner":        {"gated", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"y","uid":"y"}]},"spec":{` + theirs + `}}`, true},
		"another's gate":               {"gated", `{"spec":{"schedulingGates":[{"name":"spot-aware-scheduler.io/capacity"}]}}`, true},
		"all gates":                    {"gated", `{"spec":{"schedulingGates":null}}`, true},
		"an annotation":                {"gated", `{"metadata":{"annotations":{"a":"b"}}}`, true},
		"a label of a released pod":    {"released", `{"metadata":{"labels":{"a":"b"}}}`, true},
		"a label of any pod":           {"free", `{"metadata":{"labels":{"a":"b"}}}`, true},

		"restore":              {"released", `{"metadata":{"labels":{"pod-template-hash":"1"},"annotations":{"spot-aware-scheduler.io/released":null}}}`, false},
		"restore and an owner": {"released", `{"metadata":{"labels":{"pod-template-hash":"1"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"y","uid":"y"}]}}`, true},
		"restore and an image": {"released", `{"metadata":{"labels":{"pod-template-hash":"1"}},"spec":{"containers":[{"name":"c","image":"registry.invalid/other"}]}}`, true},
	} {
		patchType := types.MergePatchType
		if strings.Contains(step.patch, "containers") {
			patchType = types.StrategicMergePatchType
			step.patch = strings.Replace(step.patch, theirs, `"schedulingGates":[{"name":"spot-aware-scheduler.io/capacity","$patch":"delete"}]`, 1)
		}
		check := func() error {
			_, err := scheduler.CoreV1().Pods(a.namespace).Patch(t.Context(), step.pod, patchType, []byte(step.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if step.rejected {
				err = rejectedBy(policy, err)
			}
			return err
		}
		if err := live.Until(t.Context(), limit, check); err != nil { // a policy takes effect some time after its creation
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestControllerMayPatchOnlyItsFields shows which fields of a pod the controller may change,
// regardless of RBAC: its own, and fields that a mutating policy may change in the same request.
func TestControllerMayPatchOnlyItsFields(t *testing.T) {
	a := newAdmission(t)
	bare := func(*v1.Pod) {}
	full := func(p *v1.Pod) {
		p.Labels = map[string]string{"app": "web", hashKey: "1"}
		p.Annotations = map[string]string{"theirs": "x"}
		p.Finalizers = []string{"example.com/theirs"}
		p.OwnerReferences = []metav1.OwnerReference{a.owner}
	}
	const condition = `{"status":{"conditions":[{"type":%q,"status":"True","reason":"x","lastTransitionTime":"2026-03-01T12:00:00Z"}]}}`
	n := 0
	for name, test := range map[string]struct {
		patch       string
		subresource []string
		rejected    bool
	}{
		"release":               {patch: `{"metadata":{"labels":{"pod-template-hash":"released"},"annotations":{"spot-aware-scheduler.io/released":"{}"}}}`},
		"restore":               {patch: `{"metadata":{"labels":{"pod-template-hash":"2"}}}`},
		"remove the annotation": {patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":null}}}`},
		"deletion cost":         {patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/deletion-cost":"1","controller.kubernetes.io/pod-deletion-cost":"1"}}}`},
		"without deletion cost": {patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/deletion-cost":null,"controller.kubernetes.io/pod-deletion-cost":null}}}`},
		"DisruptionTarget":      {patch: fmt.Sprintf(condition, v1.DisruptionTarget), subresource: []string{"status"}},

		"image": {patch: `{"spec":{"containers":[{"name":"c","image":"registry.invalid/other"}]}}`, rejected: true},
		// A mutating policy may change these in the same request.
		"toleration":           {patch: `{"spec":{"tolerations":[{"key":"x","operator":"Exists"}]}}`},
		"foreign label":        {patch: `{"metadata":{"labels":{"app":"other"}}}`},
		"new label":            {patch: `{"metadata":{"labels":{"other":"x"}}}`},
		"foreign annotation":   {patch: `{"metadata":{"annotations":{"theirs":"y"}}}`},
		"finalizer":            {patch: `{"metadata":{"finalizers":["example.com/ours"]}}`},
		"label by status":      {patch: `{"metadata":{"labels":{"other":"x"}}}`, subresource: []string{"status"}},
		"annotation by status": {patch: `{"metadata":{"annotations":{"theirs":"y"}}}`, subresource: []string{"status"}},

		"debugger":          {patch: `{"spec":{"ephemeralContainers":[{"name":"d","image":"registry.invalid/debug"}]}}`, subresource: []string{"ephemeralcontainers"}, rejected: true},
		"resources":         {patch: `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`, subresource: []string{"resize"}, rejected: true},
		"pod IP":            {patch: `{"status":{"podIP":"192.0.2.1","podIPs":[{"ip":"192.0.2.1"}]}}`, subresource: []string{"status"}, rejected: true},
		"owner":             {patch: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"y","uid":"y"}]}}`, rejected: true},
		"another condition": {patch: fmt.Sprintf(condition, "Ready"), subresource: []string{"status"}, rejected: true},
		"phase":             {patch: `{"status":{"phase":"Failed"}}`, subresource: []string{"status"}, rejected: true},
		"without a phase":   {patch: `{"status":{"phase":null}}`, subresource: []string{"status"}, rejected: true},
	} {
		for kind, edit := range map[string]func(*v1.Pod){"bare": bare, "full": full} {
			n++
			pod := fmt.Sprintf("p-%d", n)
			t.Run(name+" of a "+kind+" pod", func(t *testing.T) {
				a.pod(pod, edit)
				clients := map[string]kubernetes.Interface{"mighty": a.mighty, "as shipped": a.controller}
				if test.subresource != nil {
					delete(clients, "as shipped") // RBAC rejects the request first
				}
				for who, c := range clients {
					err := a.patch(c, pod, test.patch, test.subresource...)
					if test.rejected {
						err = rejectedBy(podsPolicy, err)
					}
					if err != nil {
						t.Errorf("%s: %v", who, err)
					}
				}
			})
		}
	}
	t.Run("owners", func(t *testing.T) { a.owners(t) })
	t.Run("gates", func(t *testing.T) { a.gates(t) })
	t.Run("removal", func(t *testing.T) {
		a.pod("removal", full)
		for what, patch := range map[string]string{
			"finalizers": `{"metadata":{"finalizers":null}}`, "owners": `{"metadata":{"ownerReferences":null}}`,
		} {
			if err := rejectedBy(podsPolicy, a.patch(a.mighty, "removal", patch)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// gates shows that the controller may remove its capacity gate, whatever a mutating policy changes
// in the same request. It may not remove gates of others, or change an image.
func (a *admission) gates(t *testing.T) {
	a.pod("gated", func(p *v1.Pod) {
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "spot-aware-scheduler.io/capacity"}, {Name: "quota.example/wait"}}
	})
	const (
		theirs   = `"schedulingGates":[{"name":"quota.example/wait"}]`
		affinity = `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[` +
			`{"key":"karpenter.sh/capacity-type","operator":"NotIn","values":["spot"]}]}]}}}`
		assigned = `"metadata":{"annotations":{"spot-aware-scheduler.io/assigned":"on-demand: test"}}`
	)
	for what, step := range map[string]struct {
		patch    string
		rejected bool
	}{
		"ungate with affinity":           {patch: `{` + assigned + `,"spec":{` + theirs + `,` + affinity + `}}`},
		"ungate alone":                   {patch: `{"spec":{` + theirs + `}}`},
		"ungate with a grant":            {patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/granted":"fallback"}},"spec":{` + theirs + `}}`},
		"affinity alone":                 {patch: `{"spec":{` + affinity + `}}`}, // the API server allows only tighter affinity
		"another's gate":                 {patch: `{"spec":{"schedulingGates":[{"name":"spot-aware-scheduler.io/capacity"}]}}`, rejected: true},
		"all gates":                      {patch: `{"spec":{"schedulingGates":null}}`, rejected: true},
		"ungate with a node selector":    {patch: `{"spec":{` + theirs + `,"nodeSelector":{"a":"b"}}}`},
		"ungate with a toleration":       {patch: `{"spec":{` + theirs + `,"tolerations":[{"key":"x","operator":"Exists"}]}}`},
		"ungate with a foreign label":    {patch: `{"metadata":{"labels":{"a":"b"}},"spec":{` + theirs + `}}`},
		"ungate with an active deadline": {patch: `{"spec":{` + theirs + `,"activeDeadlineSeconds":5}}`},
		"ungate with an image": {rejected: true, patch: `{"spec":{` + theirs + `,"containers":[{"name":"c","image":"registry.invalid/other","resources":{"requests":{"cpu":"1"}},` +
			`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}]}}`},
	} {
		for who, c := range map[string]kubernetes.Interface{"mighty": a.mighty, "as shipped": a.controller} {
			_, err := c.CoreV1().Pods(a.namespace).Patch(t.Context(), "gated", types.MergePatchType, []byte(step.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if step.rejected {
				err = rejectedBy(podsPolicy, err)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", what, who, err)
			}
		}
	}
	const granted = `{"metadata":{"annotations":{"spot-aware-scheduler.io/granted":"fallback"}}}`
	if err := rejectedBy(podsPolicy, a.patch(a.tenant, "gated", granted)); err != nil {
		t.Errorf("a tenant grants: %v", err)
	}
	// A copy of a granted pod is not refused: the grant contains the UID of the original.
	_, err := a.tenant.CoreV1().Pods(a.namespace).Create(t.Context(), a.newPod("granted", func(p *v1.Pod) {
		p.Annotations = map[string]string{"spot-aware-scheduler.io/granted": "fallback 1"}
	}), metav1.CreateOptions{})
	live.Must(t, err)
}

// owners shows that the controller may transfer control of a pod from its ReplicaSet to a
// Deployment and back. It may change no other owner. The admission plugin
// OwnerReferencesPermissionEnforcement is enabled here, and requires no right on finalizers for
// this.
func (a *admission) owners(t *testing.T) {
	labels := map[string]string{"app": "owned"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: a.newPod("", nil).Spec}
	set, err := client.AppsV1().ReplicaSets(a.namespace).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "owned"},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: template}}, metav1.CreateOptions{})
	live.Must(t, err)
	d, err := client.AppsV1().Deployments(a.namespace).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: selector, Template: template}}, metav1.CreateOptions{})
	live.Must(t, err)
	theirs := a.owner
	theirs.Controller = nil
	of := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
	plain, to := of, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: d.UID, Controller: ptr.To(true)}
	plain.Controller = nil
	blocking, free, custom, renamed := to, plain, to, plain
	blocking.BlockOwnerDeletion, free.BlockOwnerDeletion, custom.APIVersion, renamed.Name = ptr.To(true), nil, "example.com/v1", "other"
	// The pod must be one that the ReplicaSet created: the ReplicaSet might delete any other pod as
	// surplus.
	owned := ""
	live.Must(t, live.Until(t.Context(), limit, func() error {
		list, err := client.CoreV1().Pods(a.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=owned"})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d pods, want that of the ReplicaSet", len(list.Items))
		}
		if err == nil {
			owned = list.Items[0].Name
		}
		return err
	}))
	both, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{of, theirs}}})
	live.Must(t, err)
	_, err = client.CoreV1().Pods(a.namespace).Patch(t.Context(), owned, types.MergePatchType, both, metav1.PatchOptions{})
	live.Must(t, err)
	a.pod("handed-over", func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{plain, theirs, to} })
	for _, step := range []struct {
		what, pod string
		owners    []metav1.OwnerReference
		rejected  bool
	}{
		{"a Deployment that blocks", owned, []metav1.OwnerReference{plain, theirs, blocking}, true},
		{"a custom kind", owned, []metav1.OwnerReference{plain, theirs, custom}, true},
		{"without the ReplicaSet", owned, []metav1.OwnerReference{theirs, to}, true},
		{"without the other owner", owned, []metav1.OwnerReference{plain, to}, true},
		{"a ReplicaSet that no longer blocks", owned, []metav1.OwnerReference{free, theirs, to}, true},
		{"a ReplicaSet of another name", owned, []metav1.OwnerReference{renamed, theirs, to}, true},
		{"another controller", owned, []metav1.OwnerReference{plain, a.owner}, true},
		{"none", owned, nil, true},
		{"hand over", owned, []metav1.OwnerReference{plain, theirs, to}, false},
		{"handed over, without the ReplicaSet", "handed-over", []metav1.OwnerReference{theirs, to}, true},
		{"restore", "handed-over", []metav1.OwnerReference{of, theirs}, false},
	} {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": step.owners}})
		live.Must(t, err)
		clients := map[string]kubernetes.Interface{"mighty": a.mighty, "as shipped": a.controller}
		if step.rejected {
			delete(clients, "as shipped") // OwnerReferencesPermissionEnforcement may reject the request first
		}
		for who, c := range clients {
			_, err := c.CoreV1().Pods(a.namespace).Patch(t.Context(), step.pod, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if step.rejected {
				err = rejectedBy(podsPolicy, err)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", step.what, who, err)
			}
		}
	}
}

// TestTenantsCannotMarkPods shows that only the controller may set or change the marks of a
// release. The policy rejects no other request.
func TestTenantsCannotMarkPods(t *testing.T) {
	a := newAdmission(t)
	pods := func(c kubernetes.Interface) interface {
		Create(context.Context, *v1.Pod, metav1.CreateOptions) (*v1.Pod, error)
	} {
		return c.CoreV1().Pods(a.namespace)
	}
	for who, c := range map[string]kubernetes.Interface{"tenant": a.tenant, "admin": client} {
		for what, edit := range map[string]func(*v1.Pod){
			"annotation": func(p *v1.Pod) { p.Annotations = map[string]string{releasedKey: "{}"} },
			"empty":      func(p *v1.Pod) { p.Annotations = map[string]string{releasedKey: ""} },
			"label":      func(p *v1.Pod) { p.Labels = map[string]string{hashKey: "released"} },
		} {
			// A backup restores pods with the marks of another life. They name another UID.
			if _, err := pods(c).Create(t.Context(), a.newPod("forged", edit), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("%s creates a pod with the %s: %v", who, what, err)
			}
		}
	}
	_, err := pods(a.tenant).Create(t.Context(), a.newPod("bare", nil), metav1.CreateOptions{})
	live.Must(t, err)
	a.pod("marked", marked)
	for _, step := range []struct {
		what, pod, patch string
		subresource      []string
		rejected         bool
	}{
		{what: "annotate", pod: "bare", patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":"{}"}}}`, rejected: true},
		{what: "label", pod: "bare", patch: `{"metadata":{"labels":{"pod-template-hash":"released"}}}`, rejected: true},
		{what: "annotate by status", pod: "bare", patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":"{}"}}}`, subresource: []string{"status"}, rejected: true},
		{what: "label by status", pod: "bare", patch: `{"metadata":{"labels":{"pod-template-hash":"released"}}}`, subresource: []string{"status"}, rejected: true},
		{what: "change the annotation", pod: "marked", patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":"{\"hash\":\"x\"}"}}}`, rejected: true},
		{what: "another label", pod: "bare", patch: `{"metadata":{"labels":{"pod-template-hash":"x","app":"web"}}}`},
		{what: "another annotation", pod: "bare", patch: `{"metadata":{"annotations":{"theirs":"x"}}}`},
		{what: "the image", pod: "bare", patch: `{"spec":{"containers":[{"name":"c","image":"registry.invalid/other"}]}}`},
		{what: "the status", pod: "bare", patch: `{"status":{"phase":"Running"}}`, subresource: []string{"status"}},
		{what: "a debugger", pod: "bare", patch: `{"spec":{"ephemeralContainers":[{"name":"d","image":"registry.invalid/debug"}]}}`, subresource: []string{"ephemeralcontainers"}},
		{what: "another label of a marked pod", pod: "marked", patch: `{"metadata":{"labels":{"app":"other"}}}`},
		{what: "the status of a marked pod", pod: "marked", patch: `{"status":{"phase":"Running"}}`, subresource: []string{"status"}},
		{what: "remove the annotation", pod: "marked", patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":null}}}`},
		{what: "and set it again", pod: "marked", patch: `{"metadata":{"annotations":{"spot-aware-scheduler.io/released":"{}"}}}`, rejected: true},
		{what: "remove the label", pod: "marked", patch: `{"metadata":{"labels":{"pod-template-hash":null}}}`},
	} {
		err := a.patch(a.tenant, step.pod, step.patch, step.subresource...)
		if step.rejected {
			err = rejectedBy(podsPolicy, err)
		}
		if err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
	}

	// The API server copies annotations of a binding to the pod.
	a.pod("bound", nil)
	err = client.CoreV1().Pods(a.namespace).Bind(t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "bound", Annotations: map[string]string{releasedKey: "{}"}}, Target: v1.ObjectReference{Kind: "Node", Name: "nowhere"},
	}, metav1.CreateOptions{})
	if err := rejectedBy(podsPolicy, err); err != nil {
		t.Errorf("bind with the annotation: %v", err)
	}
	live.Must(t, client.CoreV1().Pods(a.namespace).Bind(t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "bound"}, Target: v1.ObjectReference{Kind: "Node", Name: "nowhere"},
	}, metav1.CreateOptions{}))
	live.Must(t, client.CoreV1().Pods(a.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "bare", Namespace: a.namespace}}))

	// Kubernetes' own controllers may create pods, adopt restored pods that still have the
	// annotation, and release marked pods.
	labels := map[string]string{"app": "set", hashKey: "1"}
	a.pod("restored", func(p *v1.Pod) { p.Labels, p.Annotations = labels, map[string]string{releasedKey: "{}"} })
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: a.newPod("", nil).Spec}
	_, err = a.tenant.AppsV1().ReplicaSets(a.namespace).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
	}}, metav1.CreateOptions{})
	live.Must(t, err)
	owned := func(want int) func() error {
		return func() error {
			list, err := client.CoreV1().Pods(a.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=set"})
			if err != nil {
				return err
			}
			owned := 0
			for _, p := range list.Items {
				if metav1.GetControllerOf(&p) != nil {
					owned++
				}
			}
			if owned != 2 || len(list.Items) != want {
				return fmt.Errorf("%d of %d pods are owned, want 2 of %d", owned, len(list.Items), want)
			}
			return nil
		}
	}
	live.Must(t, live.Until(t.Context(), limit, owned(2)))
	live.Must(t, a.patch(a.controller, "restored", `{"metadata":{"labels":{"pod-template-hash":"released"}}}`))
	live.Must(t, live.Until(t.Context(), limit, owned(3)))
}

// TestControllerMayOnlyCountDisruptionsOfJobs shows that the controller may change only the count
// of disruptions on a Job, regardless of RBAC, and what a mutating policy may change with it. The
// policy rejects no request of another user.
func TestControllerMayOnlyCountDisruptionsOfJobs(t *testing.T) {
	const policy = "spot-controller-jobs"
	a := newAdmission(t)
	newJob := func(name string) *batchv1.Job {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"theirs": "x"}, Annotations: map[string]string{"theirs": "x"}, Finalizers: []string{"example.com/theirs"},
		}}
		job.Spec.Suspend, job.Spec.Template.Spec = ptr.To(true), a.newPod("", nil).Spec
		job.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
		return job
	}
	jobs := func(c kubernetes.Interface) batchclient.JobInterface { return c.BatchV1().Jobs(a.namespace) }
	_, err := jobs(client).Create(t.Context(), newJob("batch"), metav1.CreateOptions{})
	live.Must(t, err)
	t.Cleanup(func() { // no controller removes the finalizer
		_, err := jobs(client).Patch(context.Background(), "batch", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		live.Must(t, err)
	})
	dryRun := []string{metav1.DryRunAll}
	patch := func(c kubernetes.Interface, patch string, subresources ...string) func() error {
		return func() error {
			_, err := jobs(c).Patch(t.Context(), "batch", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun}, subresources...)
			return err
		}
	}
	const count = `{"metadata":{"annotations":{"spot-aware-scheduler.io/disruptions":"2","spot-aware-scheduler.io/disrupted-pods":"a,b"}}}`
	for what, step := range map[string]struct {
		do       func() error
		rejected bool
	}{
		"the count, with its own rights": {do: patch(a.controller, count)},
		"the count":                      {do: patch(a.mighty, count)},
		"remove the count":               {do: patch(a.mighty, `{"metadata":{"annotations":{"spot-aware-scheduler.io/disruptions":null}}}`)},
		"the limit":                      {do: patch(a.mighty, `{"metadata":{"annotations":{"spot-aware-scheduler.io/disruption-limit":"2"}}}`)},
		"another annotation":             {do: patch(a.mighty, `{"metadata":{"annotations":{"theirs":"y"}}}`)},
		"remove another annotation":      {do: patch(a.mighty, `{"metadata":{"annotations":{"theirs":null}}}`)},
		"a label":                        {do: patch(a.mighty, `{"metadata":{"labels":{"theirs":"y"}}}`)},
		"a time to live":                 {do: patch(a.mighty, `{"spec":{"ttlSecondsAfterFinished":60}}`)},
		"an owner":                       {do: patch(a.mighty, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"y","uid":"y"}]}}`), rejected: true},
		"remove the finalizer":           {do: patch(a.mighty, `{"metadata":{"finalizers":null}}`), rejected: true},
		"parallelism":                    {do: patch(a.mighty, `{"spec":{"parallelism":5}}`), rejected: true},
		"the count and suspend":          {do: patch(a.mighty, strings.TrimSuffix(count, "}")+`,"spec":{"suspend":false}}`), rejected: true},
		"the status":                     {do: patch(a.mighty, `{"status":{"active":5}}`, "status"), rejected: true},
		"create a Job": {do: func() error {
			_, err := jobs(a.mighty).Create(t.Context(), newJob("new"), metav1.CreateOptions{DryRun: dryRun})
			return err
		}, rejected: true},
		"delete the Job": {do: func() error {
			return jobs(a.mighty).Delete(t.Context(), "batch", metav1.DeleteOptions{DryRun: dryRun})
		}, rejected: true},
		"a tenant's change of the count": {do: patch(client, count)},
		"a tenant's change of a label":   {do: patch(client, `{"metadata":{"labels":{"theirs":"y"}}}`)},
	} {
		check := func() error {
			err := step.do()
			if step.rejected {
				err = rejectedBy(policy, err)
			}
			return err
		}
		if err := live.Until(t.Context(), limit, check); err != nil { // a policy takes effect some time after its creation
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOnlyOwnBudgetsMayBeChanged shows that the controller and the scheduler may change only
// PodDisruptionBudgets with the label, regardless of RBAC.
func TestOnlyOwnBudgetsMayBeChanged(t *testing.T) {
	const policy = "spot-aware-scheduler-budgets"
	a := newAdmission(t)
	scheduler, err := as("system:serviceaccount:kube-system:spot-aware-scheduler", "system:masters")
	live.Must(t, err)
	deployment := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: ptr.To(true)}
	budget := func(name string, own bool, owner *metav1.OwnerReference) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		if own {
			b.Labels = map[string]string{"spot-aware-scheduler.io/protect": "true"}
		}
		if owner != nil {
			b.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		return b
	}
	owner := a.owner // must exist, or the garbage collector would delete the PodDisruptionBudgets
	for _, b := range []*policyv1.PodDisruptionBudget{budget("own", true, &owner), budget("theirs", false, nil)} {
		_, err := client.PolicyV1().PodDisruptionBudgets(a.namespace).Create(t.Context(), b, metav1.CreateOptions{})
		live.Must(t, err)
	}
	dryRun := []string{metav1.DryRunAll}
	budgets := func(c kubernetes.Interface) policyclient.PodDisruptionBudgetInterface {
		return c.PolicyV1().PodDisruptionBudgets(a.namespace)
	}
	patch := func(name, patch string) error {
		_, err := budgets(a.mighty).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	create := func(b *policyv1.PodDisruptionBudget) error {
		_, err := budgets(a.mighty).Create(t.Context(), b, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	const owned = `"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"web","controller":true}]`
	for what, step := range map[string]struct {
		do       func() error
		rejected bool
	}{
		"create one with the label":       {do: func() error { return create(budget("new", true, deployment)) }},
		"create one without the label":    {do: func() error { return create(budget("new", false, deployment)) }, rejected: true},
		"create one without a Deployment": {do: func() error { return create(budget("new", true, nil)) }, rejected: true},
		"relax its own":                   {do: func() error { return patch("own", `{"metadata":{`+owned+`},"spec":{"maxUnavailable":1}}`) }},
		"remove the label":                {do: func() error { return patch("own", `{"metadata":{`+owned+`,"labels":null}}`) }, rejected: true},
		"relax another":                   {do: func() error { return patch("theirs", `{"spec":{"maxUnavailable":1}}`) }, rejected: true},
		"add the label to another": {do: func() error {
			return patch("theirs", `{"metadata":{`+owned+`,"labels":{"spot-aware-scheduler.io/protect":"true"}}}`)
		}, rejected: true},
		"delete its own": {do: func() error {
			return budgets(a.mighty).Delete(t.Context(), "own", metav1.DeleteOptions{DryRun: dryRun})
		}},
		"delete another": {do: func() error {
			return budgets(a.mighty).Delete(t.Context(), "theirs", metav1.DeleteOptions{DryRun: dryRun})
		}, rejected: true},
		"delete its own as the scheduler": {do: func() error {
			return budgets(scheduler).Delete(t.Context(), "own", metav1.DeleteOptions{DryRun: dryRun})
		}},
		"delete another as the scheduler": {do: func() error {
			return budgets(scheduler).Delete(t.Context(), "theirs", metav1.DeleteOptions{DryRun: dryRun})
		}, rejected: true},
	} {
		check := func() error {
			err := step.do()
			if step.rejected {
				err = rejectedBy(policy, err)
			}
			return err
		}
		if err := live.Until(t.Context(), limit, check); err != nil { // a policy takes effect some time after its creation
			t.Errorf("%s: %v", what, err)
		}
	}
}
