package rbac

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	full     = "full"    // a node without free CPU
	devices  = "devices" // the node with devices
	spotNode = "spot"    // a node that no floor may use
	driver   = "devices.example.com"
	// extended is the extended resource by which a container requests a device.
	extended = driver + "/device"
	// doomed prefixes the names of pods whose binding the API server rejects.
	doomed = "doomed"
	// reader may read /metrics.
	reader = "metrics-reader"
)

// createSharedObjects creates the objects that all workloads share: nodes, devices, classes, and
// the policy that rejects some bindings.
func createSharedObjects(t *testing.T) {
	ctx, none := t.Context(), metav1.CreateOptions{}
	live.Must(t, controlPlane.CreateNodes(ctx,
		lab.NodeSpec{Name: full, Capacity: lab.OnDemand, CPU: "1"},
		lab.NodeSpec{Name: spotNode, Capacity: lab.Spot},
		lab.NodeSpec{Name: devices, Capacity: lab.OnDemand, CPU: "1000", Memory: "1000Gi", Pods: 1000},
	))
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: devices},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: ptr.To(devices), Pool: resourcev1.ResourcePool{Name: devices, ResourceSliceCount: 1},
		},
	}
	for i := range 100 {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	_, err := client.ResourceV1().ResourceSlices().Create(ctx, slice, none)
	live.Must(t, err)
	_, err = client.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: driver},
		Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{
				CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)},
			}},
			ExtendedResourceName: ptr.To(extended),
		},
	}, none)
	live.Must(t, err)
	_, err = client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}, none)
	live.Must(t, err)
	_, err = client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000,
	}, none)
	live.Must(t, err)
	rejectBindings(t)
	allowMetrics(t)
}

// refusal is the API server's text when it rejects the binding of a doomed pod. The message
// contains "forbidden", but is not about rights.
const refusal = "ValidatingAdmissionPolicy '" + doomed + "'"

// rejectBindings makes the API server reject the bindings of doomed pods.
func rejectBindings(t *testing.T) {
	ctx, none := t.Context(), metav1.CreateOptions{}
	admission := client.AdmissionregistrationV1()
	_, err := admission.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: doomed},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("!object.metadata.name.startsWith(%q)", doomed)}},
		},
	}, none)
	live.Must(t, err)
	_, err = admission.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: doomed},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: doomed, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, none)
	live.Must(t, err)
	_, err = client.CoreV1().Pods("default").Create(ctx, pod(doomed), none)
	live.Must(t, err)
	live.Must(t, live.Until(ctx, 30*time.Second, func() error {
		err := client.CoreV1().Pods("default").Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: doomed}, Target: v1.ObjectReference{Kind: "Node", Name: "nowhere"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), refusal) {
			return fmt.Errorf("binding a doomed pod: %w, want a refusal by policy", err)
		}
		return nil
	}))
	live.Must(t, client.CoreV1().Pods("default").Delete(ctx, doomed, *metav1.NewDeleteOptions(0)))
}

// allowMetrics creates a ServiceAccount that may read /metrics.
func allowMetrics(t *testing.T) {
	ctx, none, meta := t.Context(), metav1.CreateOptions{}, metav1.ObjectMeta{Name: reader}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta}, none)
	live.Must(t, err)
	_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, none)
	live.Must(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: reader}},
	}, none)
	live.Must(t, err)
}

// pod returns a small pod for this scheduler, modified by edits.
func pod(name string, edits ...func(*v1.PodSpec)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			SchedulerName:                 "spot-aware-scheduler",
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []v1.Container{{
				Name: "c", Image: "registry.invalid/app",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			}},
		},
	}
	for _, edit := range edits {
		edit(&p.Spec)
	}
	return p
}

func onNode(name string) func(*v1.PodSpec) {
	return func(spec *v1.PodSpec) { spec.NodeSelector = map[string]string{v1.LabelHostname: name} }
}

func withClaim(name string) func(*v1.PodSpec) {
	return func(spec *v1.PodSpec) {
		spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}}
	}
}

func withExtended(spec *v1.PodSpec) {
	one := resource.MustParse("1")
	spec.Containers[0].Resources.Requests[extended] = one
	spec.Containers[0].Resources.Limits = v1.ResourceList{extended: one}
}

// workload has one object for each kind of request that the scheduler sends to the API server. It
// has its own namespace.
type testWorkload struct{ namespace string }

// bound lists the pods of a workload that get a node. The other pods are waiting-0, which may not
// run on the only node that it selects, and the doomed pods.
var bound = []string{"plain", "preemptor", "volume", "claim", "template", "contended-0", "contended-1", "contended-2", "extended", "gated"}

// makeWorkload creates the objects of a workload. Earlier pods on the node full must be gone.
func makeWorkload(ctx context.Context) (*testWorkload, error) {
	none := metav1.CreateOptions{}
	ns, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rbac-"}}, none)
	if err != nil {
		return nil, err
	}
	w := &testWorkload{ns.Name}

	requests := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: driver},
	}}}}
	for _, name := range []string{"claim", "contended", doomed} {
		if _, err := client.ResourceV1().ResourceClaims(w.namespace).Create(ctx, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: requests,
		}, none); err != nil {
			return nil, err
		}
	}
	if _, err := client.ResourceV1().ResourceClaimTemplates(w.namespace).Create(ctx, &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "template"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: requests},
	}, none); err != nil {
		return nil, err
	}
	if err := w.makeVolume(ctx); err != nil {
		return nil, err
	}

	if err := w.makeBudget(ctx); err != nil {
		return nil, err
	}

	onDevices := onNode(devices)
	for _, p := range []*v1.Pod{
		pod("victim", func(spec *v1.PodSpec) { spec.NodeName = full }),
		pod("preemptor", onNode(full), func(spec *v1.PodSpec) { spec.PriorityClassName = "high" }),
		pod("plain", onDevices),
		pod("gated", onDevices, func(spec *v1.PodSpec) {
			spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "spot-aware-scheduler.io/capacity"}}
		}),
		pod("volume", onDevices, func(spec *v1.PodSpec) {
			spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "volume"},
			}}}
		}),
		pod("claim", withClaim("claim")),
		pod("template", func(spec *v1.PodSpec) {
			spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: ptr.To("template")}}
		}),
		pod("contended-0", withClaim("contended")), pod("contended-1", withClaim("contended")), pod("contended-2", withClaim("contended")),
		pod("extended", withExtended),
		pod(doomed+"-claim", withClaim(doomed)),
		pod(doomed+"-extended", withExtended),
	} {
		if _, err := client.CoreV1().Pods(w.namespace).Create(ctx, p, none); err != nil {
			return nil, err
		}
	}
	labels := map[string]string{"app": "waiting"}
	_, err = client.AppsV1().StatefulSets(w.namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "waiting"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("", onNode(spotNode)).Spec},
		},
	}, none)
	return w, err
}

// makeVolume creates a claim that is bound to a volume only after its pod has a node.
func (w *testWorkload) makeVolume(ctx context.Context) error {
	none, size := metav1.CreateOptions{}, v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: "local",
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/nowhere"}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{devices}}},
			}}}},
		},
	}, none); err != nil {
		return err
	}
	_, err := client.CoreV1().PersistentVolumeClaims(w.namespace).Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "volume"},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("local"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: size},
		},
	}, none)
	return err
}

// makeBudget creates a PodDisruptionBudget of a controller that has not run for an hour.
func (w *testWorkload) makeBudget(ctx context.Context) error {
	leases, ago := client.CoordinationV1().Leases(namespace), metav1.NewMicroTime(time.Now().Add(-time.Hour))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: string(controllers)}, Spec: coordinationv1.LeaseSpec{
		RenewTime: &ago, LeaseDurationSeconds: ptr.To[int32](1),
	}}
	if err := leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if _, err := leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return err
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "left", Labels: map[string]string{"spot-aware-scheduler.io/protect": "true"}}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "protected"}}
	_, err := client.PolicyV1().PodDisruptionBudgets(w.namespace).Create(ctx, budget, metav1.CreateOptions{})
	return err
}

// keepChanging changes objects until ctx is done. It updates the claim contended, so that the
// scheduler's own updates conflict. It occasionally updates the owner of waiting-0, so that the
// scheduler retries that pod and it fails with the same event.
func (w *testWorkload) keepChanging(ctx context.Context) {
	claims, sets := client.ResourceV1().ResourceClaims(w.namespace), client.AppsV1().StatefulSets(w.namespace)
	unbroken := context.WithoutCancel(ctx) // a canceled request is logged as an error
	for i := 0; ctx.Err() == nil; i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"i":"%d"}}}`, i)
		_, _ = claims.Patch(unbroken, "contended", types.MergePatchType, patch, metav1.PatchOptions{})
		if i%50 == 0 {
			// Only a change that might help makes the scheduler retry a pod. Here it is another
			// floor, but the pod belongs to the floor either way.
			floor := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, spot.MinOnDemandAnnotation, 1+i/50%2)
			_, _ = sets.Patch(unbroken, "waiting", types.MergePatchType, floor, metav1.PatchOptions{})
		}
		time.Sleep(time.Millisecond) // lets other processes run
	}
}

// done returns an error unless the scheduler has done all the work.
func (w *testWorkload) done(ctx context.Context) error {
	pods := client.CoreV1().Pods(w.namespace)
	for _, name := range bound {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("%s has no node: %+v", name, p.Status.Conditions)
		}
		if err != nil {
			return err
		}
	}
	if _, err := client.PolicyV1().PodDisruptionBudgets(w.namespace).Get(ctx, "left", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("PodDisruptionBudget of a stopped controller: %v, want it deleted", err)
	}
	waiting, err := pods.Get(ctx, "waiting-0", metav1.GetOptions{})
	if err == nil && len(waiting.Status.Conditions) == 0 {
		err = errors.New("waiting-0 has no condition")
	}
	if err != nil {
		return err
	}
	events, err := client.EventsV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedScheduling"})
	if err != nil {
		return err
	}
	failed, failedAgain := map[string]bool{}, map[string]bool{} // by pod
	for _, event := range events.Items {
		failed[event.Regarding.Name] = true
		failedAgain[event.Regarding.Name] = failedAgain[event.Regarding.Name] || event.Series != nil
	}
	if !failed[doomed+"-claim"] || !failed[doomed+"-extended"] || !failedAgain["waiting-0"] {
		return fmt.Errorf("pods failed: %v, failed again with the same event: %v", failed, failedAgain)
	}
	return nil
}

// remove deletes the workload, and returns when no pod of it is left.
func (w *testWorkload) remove(ctx context.Context) error {
	if err := client.AppsV1().StatefulSets(w.namespace).Delete(ctx, "waiting", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := client.CoreV1().PersistentVolumes().Delete(ctx, w.namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return live.Until(ctx, 20*time.Second, func() error {
		if err := client.CoreV1().Pods(w.namespace).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
			return err
		}
		pods, err := client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods remain", len(pods.Items))
		}
		return err
	})
}
