package kubectl

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	domain       = "spot-aware-scheduler.io/"
	released     = domain + "released"
	ourTaint     = domain + "interruption"
	ourCost      = domain + "deletion-cost"
	otherGate    = "example.com/gate"
	nothingLeft  = "Nothing is left.\n"
	leaseName    = "spot-controller"
	operatorName = "operator"
)

// operator may do what cleanup does, except delete PodDisruptionBudgets.
var operator = []string{"--as=" + operatorName, "--as-group=system:authenticated"}

// TestCleanup ends the programs without a warning while every kind of mark is in the cluster.
// kubectl spot cleanup refuses as long as a part of the installation remains. Then it removes all
// marks, and the pods of users continue to run.
func TestCleanup(t *testing.T) {
	install(t)
	s := live.NewScenario(t, controlPlane, client, append(live.OnDemand(2, 12), live.Spot(2, 12)...)...)
	s.ApplyMode(live.AutoscalerMode)
	s.StartScheduler(lab.SchedulerOptions{})
	s.StartController(live.Settings{"gating.enabled": true})
	deployMarked(s)

	before := marksOf(s)
	refuses := func(want string) {
		t.Helper()
		for _, args := range [][]string{{"cleanup"}, {"cleanup", "--yes"}} {
			if r := spot(t, controlPlane, args...); r.status != 1 || r.out != "" || !strings.Contains(r.err, want) {
				t.Errorf("%v: exit status %d, want a refusal with %q:\n%s%s", args, r.status, want, r.out, r.err)
			}
		}
	}
	refuses("Deployment kube-system/spot-controller exists")
	if out, err := kubectl(t, "", "-n", "kube-system", "delete", "deployment", "--all"); err != nil {
		t.Fatal(out)
	}
	refuses("renewed Lease kube-system/spot-controller at ")
	reclaimSpot(s)
	s.Must(s.Controller.Kill())
	s.Must(s.Scheduler.Kill())
	refuses("renewed Lease kube-system/spot-controller at ")
	expireLease(s)
	refuses("kubectl delete mutatingadmissionpolicybinding spot-aware-scheduler-capacity")
	s.Must(live.KubectlMode(s.Ctx, controlPlane, live.AutoscalerMode, "delete", "--ignore-not-found"))
	if now := marksOf(s); len(now) <= len(before) {
		t.Fatalf("a refusal changed marks:\nbefore: %q\nnow: %q", before, now)
	}
	changeAsUsers(s)
	wantCleanup(s)
}

// deployMarked creates workloads, and waits until the controller has marked them.
func deployMarked(s *live.Scenario) {
	s.Helper()
	const minOnDemand = domain + "min-on-demand"
	slowly := func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 } // a released pod waits for its replacement as long
	s.Deploy("web", 4, live.Annotated(minOnDemand, "2"), live.Annotated(domain+"protect", "true"))
	s.Deploy("moving", 2, live.Annotated(minOnDemand, "0"), slowly)
	s.Deploy("own", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{v1.PodDeletionCost: "7"}
	})
	s.Deploy("gated", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: otherGate}}
	})
	bare := live.NewDeployment("bare", 1, live.Annotated(minOnDemand, "0"), func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = "bare" // without it, no pod of the ReplicaSet is released
		d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	})
	_, err := client.AppsV1().ReplicaSets(s.Namespace).Create(s.Ctx, &appsv1.ReplicaSet{
		ObjectMeta: bare.ObjectMeta, Spec: appsv1.ReplicaSetSpec{Replicas: bare.Spec.Replicas, MinReadySeconds: 10, Selector: bare.Spec.Selector,
			Template: bare.Spec.Template},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually(2*time.Minute, func() error {
		costs := 0
		for _, pod := range podsOf(s) {
			if pod.Annotations[ourCost] != "" {
				costs++
			}
			if pod.Labels["app"] != "gated" && (!live.IsReady(&pod) || pod.CreationTimestamp.Time.After(time.Now().Add(-12*time.Second))) {
				return fmt.Errorf("pod %s is not available yet", pod.Name)
			}
		}
		_, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).Get(s.Ctx, "web-protected", metav1.GetOptions{})
		if costs < 2 {
			err = errors.Join(err, fmt.Errorf("%d pods have a deletion cost, want 2", costs))
		}
		return err
	})
	s.Must(s.HasGated("gated", 1)())
}

// reclaimSpot announces the reclaim of the spot nodes, and returns while pods of moving and bare
// are released.
func reclaimSpot(s *live.Scenario) {
	s.Helper()
	for _, node := range []string{"spot-1", "spot-2"} {
		s.Must(live.EditNode(s.Ctx, client, live.Soon, node, func(n *v1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "aws-node-termination-handler/spot-itn", Effect: v1.TaintEffectNoSchedule})
		}))
	}
	s.Eventually(live.Soon, func() error {
		found := map[string]bool{}
		for _, pod := range podsOf(s) {
			if pod.Annotations[released] != "" {
				found[pod.Labels["app"]] = true
			}
		}
		if !found["moving"] || !found["bare"] {
			return fmt.Errorf("pods of %v are released", found)
		}
		return nil
	})
}

// expireLease changes the Lease as if the controller had ended some time ago.
func expireLease(s *live.Scenario) {
	s.Helper()
	leases := client.CoordinationV1().Leases("kube-system")
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().Add(-2*time.Minute).UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(s.Ctx, leaseName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// changeAsUsers sets a taint like the controller's, and changes one of its deletion costs.
func changeAsUsers(s *live.Scenario) {
	s.Helper()
	s.Must(live.EditNode(s.Ctx, client, live.Soon, "od-2", func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: ourTaint, Value: "by-hand", Effect: v1.TaintEffectNoSchedule})
	}))
	pods := podsOf(s)
	i := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Annotations[ourCost] != "" })
	patch := `{"metadata":{"annotations":{"` + v1.PodDeletionCost + `":"-5"}}}`
	_, err := client.CoreV1().Pods(s.Namespace).Patch(s.Ctx, pods[i].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// wantCleanup fails unless cleanup lists and removes the marks, and nothing else.
func wantCleanup(s *live.Scenario) {
	s.Helper()
	before, pods, marks := time.Now(), podsOf(s), marksOf(s)
	list := spot(s.T, controlPlane, "cleanup")
	s.Logf("kubectl spot cleanup:\n%s%s", list.out, list.err)
	for _, want := range []string{
		"remove gate spot-aware-scheduler.io/capacity", "restore it to ReplicaSet moving-", "restore it to ReplicaSet bare",
		"PodDisruptionBudget", "web-protected", "remove taint spot-aware-scheduler.io/interruption",
		"remove annotation controller.kubernetes.io/pod-deletion-cost", "with --yes.\n",
	} {
		if list.status != 0 || !strings.Contains(list.out, want) {
			s.Errorf("cleanup: exit status %d, want a list with %q", list.status, want)
		}
	}
	for _, want := range []string{"node/od-2 keeps a mark: another client set taint spot-aware-scheduler.io/interruption=by-hand:NoSchedule",
		"for scheduler spot-aware-scheduler and cannot start without it: " + s.Namespace + "/", "uninstall.md"} {
		if !strings.Contains(list.err, want) {
			s.Errorf("cleanup does not warn %q", want)
		}
	}
	if diff := cmp.Diff(marks, marksOf(s)); diff != "" {
		s.Errorf("without --yes marks changed (-before +after):\n%s", diff)
	}

	wantPartialCleanup(s)
	if r := spot(s.T, controlPlane, "cleanup", "--yes"); r.status != 0 || !strings.Contains(r.out, "web-protected") {
		s.Errorf("cleanup --yes: exit status %d\n%s%s", r.status, r.out, r.err)
	}
	if diff := cmp.Diff([]string{"node od-2: " + ourTaint}, marksOf(s)); diff != "" {
		s.Errorf("marks that are left (-want +got):\n%s", diff)
	}
	wantPodsOfUsers(s, pods)
	s.Logf("removed %d marks within %s", len(marks), time.Since(before).Round(time.Millisecond))

	s.Must(live.EditNode(s.Ctx, client, live.Soon, "od-2", func(n *v1.Node) { n.Spec.Taints = nil }))
	for _, args := range [][]string{{"cleanup"}, {"cleanup", "--yes"}} {
		if r := spot(s.T, controlPlane, args...); r.status != 0 || r.out != nothingLeft {
			s.Errorf("%v again: exit status %d, %q\n%s", args, r.status, r.out, r.err)
		}
	}
}

// wantPartialCleanup runs cleanup with the rights of operator. It fails unless everything except
// the PodDisruptionBudget is removed, and the error names that.
func wantPartialCleanup(s *live.Scenario) {
	s.Helper()
	meta := metav1.ObjectMeta{Name: operatorName}
	_, err := client.RbacV1().ClusterRoles().Create(s.Ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"patch", "delete"}, APIGroups: []string{""}, Resources: []string{"pods", "nodes", "configmaps"}},
	}}, metav1.CreateOptions{})
	s.Must(err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(s.Ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: operatorName},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorName}}}, metav1.CreateOptions{})
	s.Must(err)
	s.Cleanup(func() {
		_, _ = kubectl(s.T, "", "delete", "clusterrolebinding,clusterrole", operatorName)
	})
	s.Eventually(live.Soon, func() error { // the API server reads the new role some time later
		if r := spot(s.T, controlPlane, append([]string{"cleanup"}, operator...)...); r.status != 0 {
			return errors.New(r.err)
		}
		return nil
	})
	r := spot(s.T, controlPlane, append([]string{"cleanup", "--yes"}, operator...)...)
	s.Logf("kubectl spot cleanup --yes:\n%s%s", r.out, r.err)
	if want := "poddisruptionbudget/web-protected of namespace " + s.Namespace + " was not changed: "; r.status != 1 ||
		!strings.Contains(r.err, want) || strings.Count(r.err, "was not changed: ") != 1 {
		s.Errorf("cleanup --yes without the right to delete the budget: exit status %d, want only %q\n%s", r.status, want, r.err)
	}
	want := []string{"node od-2: " + ourTaint, "poddisruptionbudget web-protected: " + domain + "protect"}
	if diff := cmp.Diff(want, marksOf(s)); diff != "" {
		s.Errorf("marks that are left (-want +got):\n%s", diff)
	}
}

// wantPodsOfUsers fails unless all pods of before still run, except the replacements of released
// pods, and each owner has as many pods as it wants.
func wantPodsOfUsers(s *live.Scenario, before []v1.Pod) {
	s.Helper()
	var now map[types.UID]v1.Pod
	s.Eventually(live.Soon, func() error {
		sets, err := client.AppsV1().ReplicaSets(s.Namespace).List(s.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		now = map[types.UID]v1.Pod{}
		count := map[types.UID]int{}
		for _, pod := range podsOf(s) {
			now[pod.UID] = pod
			owner := metav1.GetControllerOf(&pod)
			if owner == nil || owner.Kind != "ReplicaSet" || len(pod.OwnerReferences) != 1 {
				return fmt.Errorf("the owners of pod %s are %v, want a ReplicaSet", pod.Name, pod.OwnerReferences)
			}
			count[owner.UID]++
		}
		for _, set := range sets.Items {
			if want := int(*set.Spec.Replicas); count[set.UID] != want || int(set.Status.Replicas) != want {
				return fmt.Errorf("ReplicaSet %s has %d pods, and %d in its status, want %d", set.Name, count[set.UID], set.Status.Replicas, want)
			}
		}
		return nil
	})
	restored, lost := 0, 0
	for _, pod := range before {
		current, exists := now[pod.UID]
		switch wasReleased := pod.Annotations[released] != ""; {
		case wasReleased && (!exists || !live.IsReady(&current) || current.Spec.NodeName != pod.Spec.NodeName):
			s.Errorf("released pod %s does not run any more", pod.Name)
		case wasReleased:
			restored++
		case !exists:
			lost++
		}
		if user, ok := pod.Annotations[v1.PodDeletionCost]; exists && ok && pod.Annotations[ourCost] != user &&
			current.Annotations[v1.PodDeletionCost] != user {
			s.Errorf("pod %s has the deletion cost %q, want that of the user: %s", pod.Name, current.Annotations[v1.PodDeletionCost], user)
		}
		if pod.Labels["app"] == "gated" && (live.Gated(&current) || len(current.Spec.SchedulingGates) != 1) {
			s.Errorf("pod %s has the gates %v, want %s", pod.Name, current.Spec.SchedulingGates, otherGate)
		}
	}
	if restored < 2 || lost > restored {
		s.Errorf("%d released pods run, and %d other pods are gone, want at most one for each", restored, lost)
	}
}

func podsOf(s *live.Scenario) []v1.Pod {
	s.Helper()
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	return pods
}

// stays matches the marks that docs/uninstall.md lists under "What stays", and the prices that the
// lab wrote on the nodes.
var stays = regexp.MustCompile(`: spot-aware-scheduler\.io/(assigned|granted|waiting-since|usd-per-hour)$`)

// marksOf returns all names of the project on pods, nodes and PodDisruptionBudgets, without those
// that stay.
func marksOf(s *live.Scenario) (marks []string) {
	s.Helper()
	add := func(kind string, object metav1.Object, more any) {
		object.SetManagedFields(nil)
		metadata, err := json.Marshal([]any{object.GetLabels(), object.GetAnnotations(), object.GetFinalizers(), more})
		s.Must(err)
		found := map[string]bool{}
		for _, key := range regexp.MustCompile(regexp.QuoteMeta(domain)+`[a-z-]+|"pod-template-hash":"released"`).FindAllString(string(metadata), -1) {
			found[kind+" "+object.GetName()+": "+key] = true
		}
		marks = append(marks, slices.Collect(maps.Keys(found))...)
	}
	pods, err := client.CoreV1().Pods("").List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	for i := range pods.Items {
		add("pod", &pods.Items[i], pods.Items[i].Spec.SchedulingGates)
	}
	nodes, err := client.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	for i := range nodes.Items {
		add("node", &nodes.Items[i], nodes.Items[i].Spec.Taints)
	}
	budgets, err := client.PolicyV1().PodDisruptionBudgets("").List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	for i := range budgets.Items {
		add("poddisruptionbudget", &budgets.Items[i], nil)
	}
	marks = slices.DeleteFunc(marks, stays.MatchString)
	slices.Sort(marks)
	return marks
}
