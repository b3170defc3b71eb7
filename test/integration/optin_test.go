package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// optIn is the label of namespaces that opt in, and of pods that opt out.
const optIn = "spot-aware-scheduler.io/opt-in"

// TestNamespaceOptIn tests manifests/overlays/namespace-opt-in. New pods of a labelled namespace
// get this scheduler and are placed by its rules. All other pods are unchanged.
func TestNamespaceOptIn(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(2, 20), live.Spot(2, 20)))
	// podTemplate opts in by itself, so plain removes the scheduler name.
	plain := func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulerName = "" }

	s.Deploy("before", 1, plain)
	s.Eventually(soon, s.haveScheduler("before", 1, v1.DefaultSchedulerName))

	s.applyOptIn()
	s.labelNamespace(s.Namespace, "true")
	// Only a new pod shows whether the API server has observed both the policy and the label.
	s.Eventually(soon, func() error { return s.checkSchedulerName(s.Namespace, nil, "spot-aware-scheduler") })

	s.run("every kind of workload", func(s *scenario) {
		s.Deploy("web", 3, plain)
		s.statefulSet("db", 3, func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.SchedulerName = "" })
		s.Eventually(soon, s.HasSplit("web", split{OnDemand: 1, Spot: 2}))
		s.Eventually(soon, s.HasSplit("db", split{OnDemand: 1, Spot: 2}))
		s.Must(s.haveScheduler("web", 3, "spot-aware-scheduler")())
	})

	s.run("pods created before the overlay", func(s *scenario) {
		s.Must(s.haveScheduler("before", 1, v1.DefaultSchedulerName)())
	})

	for name, test := range map[string]struct {
		edit func(*v1.Pod)
		want string
	}{
		"twice the same variable": {
			func(pod *v1.Pod) {
				pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
			},
			"spot-aware-scheduler",
		},
		"owned by another kind than DaemonSet": {ownedBy("ReplicaSet"), "spot-aware-scheduler"},
		"another scheduler":                    {func(pod *v1.Pod) { pod.Spec.SchedulerName = "volcano" }, "volcano"},
		"opted out":                            {func(pod *v1.Pod) { pod.Labels = map[string]string{optIn: "false"} }, v1.DefaultSchedulerName},
		"owned by a DaemonSet":                 {ownedBy("DaemonSet"), v1.DefaultSchedulerName},
		"already bound to a node":              {func(pod *v1.Pod) { pod.Spec.NodeName = "od-1" }, v1.DefaultSchedulerName},
	} {
		s.run(name, func(s *scenario) { s.Must(s.checkSchedulerName(s.Namespace, test.edit, test.want)) })
	}

	s.run("namespace with the label false", func(s *scenario) {
		s.labelNamespace(s.Namespace, "false")
		s.Eventually(soon, func() error { return s.checkSchedulerName(s.Namespace, nil, v1.DefaultSchedulerName) })
	})

	s.run("namespace without the label", func(s *scenario) {
		s.Must(s.checkSchedulerName(metav1.NamespaceDefault, nil, v1.DefaultSchedulerName))
	})

	s.run("kube-system, whatever its label", func(s *scenario) {
		s.labelNamespace(metav1.NamespaceSystem, "true")
		s.labelNamespace(s.Namespace, "true")
		// The other label was set earlier, so the API server has observed it too.
		s.Eventually(soon, func() error { return s.checkSchedulerName(s.Namespace, nil, "spot-aware-scheduler") })
		s.Must(s.checkSchedulerName(metav1.NamespaceSystem, nil, v1.DefaultSchedulerName))
		s.labelNamespace(metav1.NamespaceSystem, "")
	})
}

// applyOptIn applies the overlay as users do. Before Kubernetes 1.36 it converts the policies, like
// the command in docs/versions.md. The cleanup of the test removes them.
func (s *scenario) applyOptIn() {
	s.Helper()
	k := kubectl{cp: controlPlane, cache: s.TempDir()}
	overlay := filepath.Join(controlPlane.Root, "manifests", "overlays", "namespace-opt-in")
	if api := live.MutatingPolicies(); api.Version != "v1" {
		converted := filepath.Join(s.TempDir(), "policy.yaml")
		s.Must(os.WriteFile(converted, []byte(api.Convert(k.must(s.T, "kustomize", overlay))), 0o600))
		s.Cleanup(func() { k.must(s.T, "delete", "--ignore-not-found", "-f", converted) })
		k.must(s.T, "apply", "-f", converted)
		return
	}
	s.Cleanup(func() { k.must(s.T, "delete", "--ignore-not-found", "-k", overlay) })
	applyOverlay(s.T, k, overlay, "created")
	applyOverlay(s.T, k, overlay, "unchanged")
}

// labelNamespace sets the label of a namespace, or removes it if value is empty.
func (s *scenario) labelNamespace(namespace, value string) {
	s.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, optIn, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, optIn)
	}
	_, err := client.CoreV1().Namespaces().Patch(s.Ctx, namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// checkSchedulerName checks which scheduler a new pod gets. It uses a dry run, so nothing is
// stored.
func (s *scenario) checkSchedulerName(namespace string, edit func(*v1.Pod), want string) error {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dry-run"}, Spec: live.PodTemplate("dry-run").Spec}
	pod.Spec.SchedulerName = ""
	if edit != nil {
		edit(pod)
	}
	env := pod.Spec.Containers[0].Env
	pod, err := client.CoreV1().Pods(namespace).Create(s.Ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if pod.Spec.SchedulerName != want {
		return fmt.Errorf("in %s the pod gets the scheduler %q, want %q", namespace, pod.Spec.SchedulerName, want)
	}
	if got := pod.Spec.Containers[0].Env; !slices.Equal(got, env) {
		return fmt.Errorf("environment changed to %v, want %v", got, env)
	}
	return nil
}

// ownedBy returns an edit that gives a pod an owner of this kind in apps/v1.
func ownedBy(kind string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		owner := unknownKind(kind)
		owner.APIVersion = "apps/v1"
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	}
}

// haveScheduler returns a check that app has n pods, all with this scheduler.
func (s *scenario) haveScheduler(app string, n int, want string) func() error {
	return func() error {
		pods, err := s.Pods(app)
		if err == nil && len(pods) != n {
			err = fmt.Errorf("%s: %d pods, want %d", app, len(pods), n)
		}
		for _, pod := range pods {
			if pod.Spec.SchedulerName != want {
				return fmt.Errorf("%s has the scheduler %q, want %q", pod.Name, pod.Spec.SchedulerName, want)
			}
		}
		return err
	}
}
