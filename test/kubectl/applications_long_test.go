//go:build long

package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// part is a workload of an application.
type part struct {
	app
	volumes, onDelete bool
	// mixed means that it is created when there are spot nodes, so it may run on spot today.
	mixed bool
	// class is that of assess.
	class string
}

// parts have the kinds, replicas, volumes and strategies that the charts or operators create by
// default.
var parts = map[string]part{
	"vault":       {app: app{kind: "StatefulSet", replicas: 3}, volumes: true, onDelete: true, class: "WithChange"},
	"zookeeper":   {app: app{kind: "StatefulSet", replicas: 3}, volumes: true, class: "WithChange"}, // of Pulsar, as the next three
	"bookie":      {app: app{kind: "StatefulSet", replicas: 4}, volumes: true, mixed: true, class: "WithChange"},
	"broker":      {app: app{kind: "StatefulSet", replicas: 3}, mixed: true, class: "WithChange"},
	"proxy":       {app: app{kind: "Deployment", replicas: 3}, class: "Now"},
	"cockroachdb": {app: app{kind: "StatefulSet", replicas: 3}, volumes: true, class: "WithChange"},
	"kafka":       {app: app{kind: "StatefulSet", replicas: 6}, volumes: true, class: "WithChange"},
	"masters":     {app: app{kind: "StatefulSet", replicas: 3}, volumes: true, class: "WithChange"}, // of ECK, as the next two
	"data":        {app: app{kind: "StatefulSet", replicas: 3}, volumes: true, class: "WithChange"},
	"ingest":      {app: app{kind: "StatefulSet", replicas: 2}, mixed: true, class: "WithChange"},
	"etcd":        {app: app{kind: "StatefulSet", replicas: 5}, volumes: true, class: "WithChange"}, // without a budget
}

// disruption is a PodDisruptionBudget over some workloads.
type disruption struct {
	minAvailable, maxUnavailable string
	of                           []string
}

var disruptions = map[string]disruption{
	"vault": {"", "1", []string{"vault"}}, "zookeeper": {"", "1", []string{"zookeeper"}}, "bookie": {"", "1", []string{"bookie"}},
	"broker": {"", "1", []string{"broker"}}, "proxy": {"1", "", []string{"proxy"}}, "cockroachdb": {"", "1", []string{"cockroachdb"}},
	"kafka": {"", "1", []string{"kafka"}}, "elasticsearch": {"", "1", []string{"masters", "data", "ingest"}},
}

// boutique are the Deployments of Online Boutique, with one replica each.
var boutique = strings.Fields("adservice cartservice checkoutservice currencyservice emailservice frontend loadgenerator paymentservice " +
	"productcatalogservice recommendationservice redis-cart shippingservice")

// TestLongOptInOfApplications runs the active commands of assess -o patch, and then a loss of all
// spot nodes takes no PodDisruptionBudget and no majority. The same applies to the commands that
// are comments, after the change that each names.
func TestLongOptInOfApplications(t *testing.T) {
	for _, mode := range []string{"own", "keep-scheduler"} {
		t.Run(mode, func(t *testing.T) {
			t.Cleanup(func() { // t.Context would end before
				live.Must(t, client.CoreV1().PersistentVolumes().DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			})
			s := &applications{live.NewScenario(t, controlPlane, client, live.OnDemand(3, 60)...), mode, map[string]int{}}
			s.start()
			before := s.survivors(s.pods())
			s.lose(before, s.optIn(false))

			s.AddNodes(live.Spot(6, 60)...)
			s.Eventually(time.Minute, s.ready)
			const rolling = `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`
			_, err := client.AppsV1().StatefulSets(s.Namespace).Patch(s.Ctx, "vault", types.MergePatchType, []byte(rolling), metav1.PatchOptions{})
			s.Must(err)
			before = s.survivors(s.pods())
			s.lose(before, s.optIn(true))
		})
	}
}

// applications is a scenario with the mode of assess and the replicas of its workloads.
type applications struct {
	*live.Scenario
	mode string
	want map[string]int
}

// start creates all workloads and the programs of the mode.
func (s *applications) start() {
	s.Helper()
	_, err := controlPlane.StartStockScheduler(s.Ctx)
	s.Must(err)
	for _, name := range boutique {
		s.Deploy(name, 1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulerName = v1.DefaultSchedulerName })
		s.want[name] = 1
	}
	s.create(false)
	s.Eventually(time.Minute, s.ready)
	s.AddNodes(live.Spot(6, 60)...)
	s.create(true)
	s.Eventually(time.Minute, s.ready)
	if s.mode == "own" {
		s.StartScheduler(lab.SchedulerOptions{})
		s.StartController(live.Settings{})
		return
	}
	s.ApplyMode(live.AnyScheduler)
	s.StartController(live.Settings{"gating.enabled": true})
}

// create creates the workloads that run on spot today, or the others, and their budgets.
func (s *applications) create(mixed bool) {
	s.Helper()
	for name, part := range parts {
		if part.mixed != mixed {
			continue
		}
		s.want[name] = part.replicas
		if part.kind == "Deployment" {
			s.Deploy(name, part.replicas, func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulerName = v1.DefaultSchedulerName })
			continue
		}
		template := live.PodTemplate(name)
		template.Spec.SchedulerName = v1.DefaultSchedulerName
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(part.replicas)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}
		if part.onDelete {
			set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}
		if part.volumes {
			set.Spec.Template.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
			set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: new(""),
				Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}}
			for i := range part.replicas {
				s.volume(fmt.Sprintf("data-%s-%d", name, i), fmt.Sprintf("zone-%c", 'a'+i%3))
			}
		}
		_, err := client.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, set, metav1.CreateOptions{})
		s.Must(err)
	}
	for name, d := range disruptions {
		if parts[d.of[len(d.of)-1]].mixed != mixed {
			continue
		}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: d.of}}}}}
		if d.minAvailable != "" {
			budget.Spec.MinAvailable = new(intstr.Parse(d.minAvailable))
		} else {
			budget.Spec.MaxUnavailable = new(intstr.Parse(d.maxUnavailable))
		}
		_, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).Create(s.Ctx, budget, metav1.CreateOptions{})
		s.Must(err)
	}
}

// volume creates a volume in a zone for a claim.
func (s *applications) volume(claim, zone string) {
	s.Helper()
	_, err := client.CoreV1().PersistentVolumes().Create(s.Ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + claim}, Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: s.Namespace, Name: claim},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: claim}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}}}},
		}}, metav1.CreateOptions{})
	s.Must(err)
}

func (s *applications) pods() []v1.Pod {
	s.Helper()
	pods, err := live.Pods(s.Ctx, client, s.Namespace, metav1.ListOptions{})
	s.Must(err)
	return pods
}

// ready is a check that all replicas are ready, and that no rollout or move is in progress.
func (s *applications) ready() error {
	got := map[string]int{}
	for _, pod := range s.pods() {
		if got[pod.Labels["app"]]++; !live.IsReady(&pod) {
			return fmt.Errorf("%s is not ready", pod.Name)
		}
	}
	if diff := cmp.Diff(s.want, got); diff != "" {
		return fmt.Errorf("replicas (-want +got):\n%s", diff)
	}
	budgets, err := client.PolicyV1().PodDisruptionBudgets(s.Namespace).List(s.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, budget := range budgets.Items { // the disruption controller has counted the pods
		if budget.Status.DisruptionsAllowed == 0 {
			return fmt.Errorf("PodDisruptionBudget %s: %+v", budget.Name, budget.Status)
		}
	}
	return rolledOut(s.T, s.Namespace)
}

// optIn runs the script of assess. comments means that it also runs the commands that are comments.
// It returns how many replicas the loss of all spot nodes leaves of each workload that opted in, as
// assess predicts.
func (s *applications) optIn(comments bool) (then map[string]int) {
	s.Helper()
	var assessed struct {
		Items []struct {
			Name, Class     string
			WithoutSpotThen int
		}
	}
	args := []string{"assess", "-n", s.Namespace, "--scheduler-config", shippedConfig(), "--mode", s.mode, "-o"}
	s.Must(json.Unmarshal([]byte(spot(s.T, controlPlane, append(args, "json")...).out), &assessed))
	script := spot(s.T, controlPlane, append(args, "patch")...).out
	if comments {
		script = strings.ReplaceAll(script, "# kubectl", "kubectl")
	}
	then = map[string]int{}
	for _, w := range assessed.Items {
		if strings.Contains("\n"+script, "\nkubectl patch "+strings.ToLower(kindOf(w.Name))+" "+w.Name+" ") {
			then[w.Name] = w.WithoutSpotThen
		}
		if part, ok := parts[w.Name]; ok && !comments && w.Class != part.class || !ok && w.Class != "OnDemand" {
			s.Errorf("%s has the class %s", w.Name, w.Class)
		}
	}
	s.Logf("opt in, with the predicted replicas outside of spot: %v", then)
	run := exec.CommandContext(s.Ctx, "sh", "-e", "-c", script)
	run.Env = append(os.Environ(), "KUBECONFIG="+controlPlane.Kubeconfig,
		"PATH="+filepath.Join(controlPlane.Root, ".local", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	if output, err := run.CombinedOutput(); err != nil {
		s.Fatalf("%v\n%s", err, output)
	}
	s.Eventually(time.Minute, s.ready)
	return then
}

func kindOf(name string) string {
	if part, ok := parts[name]; ok {
		return part.kind
	}
	return "Deployment"
}

// survivors counts the ready pods outside of spot by app.
func (s *applications) survivors(pods []v1.Pod) map[string]int {
	n := map[string]int{}
	for _, pod := range pods {
		if strings.HasPrefix(pod.Spec.NodeName, "od-") && live.IsReady(&pod) {
			n[pod.Labels["app"]]++
		}
	}
	return n
}

// lose loses all spot nodes. Pods that are created later do not count. What the loss would already
// have taken before the workloads opted in may be lost.
func (s *applications) lose(before, then map[string]int) {
	s.Helper()
	old := map[string]bool{}
	for _, pod := range s.pods() {
		old[string(pod.UID)] = true
	}
	for _, node := range live.Spot(6, 60) {
		s.LoseNodes(node.Name)
	}
	left := s.survivors(slices.DeleteFunc(s.pods(), func(pod v1.Pod) bool { return !old[string(pod.UID)] }))
	s.Logf("left: %v", left)
	for name, n := range then {
		if left[name] < n {
			s.Errorf("%s: %d replicas are left, and assess predicted %d", name, left[name], n)
		}
	}
	sum := func(of []string, counts map[string]int) (n int) {
		for _, name := range of {
			n += counts[name]
		}
		return n
	}
	for _, name := range slices.Sorted(maps.Keys(disruptions)) {
		d := disruptions[name]
		setting, all := intstr.Parse(d.minAvailable+d.maxUnavailable), sum(d.of, s.want)
		required, err := intstr.GetScaledValueFromIntOrPercent(&setting, all, true)
		s.Must(err)
		if d.maxUnavailable != "" {
			required = all - required
		}
		if got := sum(d.of, left); got < min(required, sum(d.of, before)) {
			s.Errorf("PodDisruptionBudget %s requires %d, and the loss of all spot nodes leaves %d, before the opt-in %d", name, required, got, sum(d.of, before))
		}
	}
	for name, part := range parts {
		if majority := part.replicas/2 + 1; part.volumes && left[name] < min(majority, before[name]) {
			s.Errorf("%s: %d of %d replicas are left, before the opt-in %d", name, left[name], part.replicas, before[name])
		}
	}
}
