package autoscaler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// keepScheduler starts kube-scheduler for pods that keep it, and audits the decisions about them.
func keepScheduler(s *live.Scenario, safety live.Settings) {
	s.Helper()
	s.Must(labelNamespace(s.Ctx, s.Namespace, "keep-scheduler"))
	s.Audit(safety.EditSafety, audit.Options{SchedulerName: v1.DefaultSchedulerName, Gated: true})
	var err error
	s.Scheduler, err = controlPlane.StartStockScheduler(s.Ctx)
	s.Must(err)
}

// keptScenario is a scenario in a namespace whose pods keep kube-scheduler.
type keptScenario struct {
	*live.Scenario
	// settings are the settings of the controller that gates pods.
	settings live.Settings
}

// startKept starts the controller beside kube-scheduler. Before Kubernetes 1.36 the webhook of the
// controller gates the pods, as in docs/versions.md.
func startKept(t *testing.T, nodes ...lab.NodeSpec) *keptScenario {
	t.Helper()
	s := &keptScenario{live.NewScenario(t, controlPlane, kube, nodes...), modeOn}
	s.CountSplits = splitsByName
	s.Watch()
	if servesWebhook() {
		s.settings = s.standby()
		s.ApplyWebhook(live.AnySchedulerWebhook, s.settings["gating.webhook.bindAddress"].(string))
	} else {
		s.ApplyMode(live.AnyScheduler)
	}
	keepScheduler(s.Scenario, nil)
	s.StartController(s.settings)
	s.WaitForGate()
	return s
}

func servesWebhook() bool { return live.MutatingPolicies().Version != "v1" }

// standby returns the settings of another controller. The API server of the lab sends no pods to
// its webhook.
func (s *keptScenario) standby() live.Settings {
	if !servesWebhook() {
		return modeOn
	}
	address, err := controlPlane.FreeAddress()
	s.Must(err)
	return at(address)
}

// separateLeader starts a leader and a standby, which it returns. The standby serves the webhook
// while the leader is paused.
func (s *keptScenario) separateLeader() (standby *lab.Process) {
	s.Helper()
	s.Must(s.Controller.Stop())
	s.StartController(s.standby())
	standby = s.StartAnotherController(s.settings)
	s.WaitForGate()
	return standby
}

// splitsByName counts as countSplits does, by the names of the nodes: od-1 is on-demand.
func splitsByName(ctx context.Context, kube kubernetes.Interface, namespace string) (map[string]live.Split, error) {
	pods, err := live.Pods(ctx, kube, namespace, metav1.ListOptions{})
	splits := map[string]live.Split{}
	for _, pod := range pods {
		counts := splits[pod.Labels["app"]]
		switch {
		case pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == "released":
		case pod.Spec.NodeName == "":
			counts.Waiting++
		case strings.HasPrefix(pod.Spec.NodeName, "od-"):
			counts.OnDemand++
		default:
			counts.Spot++
		}
		splits[pod.Labels["app"]] = counts
	}
	return splits, err
}

// kept is an edit that makes kube-scheduler place the pods of a Deployment.
func kept(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulerName = v1.DefaultSchedulerName }

// labelled returns the nodes with the label key instead of the project's own one.
func labelled(nodes []lab.NodeSpec, key string, values map[string]string) []lab.NodeSpec {
	for i := range nodes {
		nodes[i].Labels = map[string]string{key: values[nodes[i].Capacity]}
		nodes[i].Capacity = ""
	}
	return nodes
}

// onFloor returns the split of this many replicas if as many as the floor run on on-demand.
func onFloor(floor string, replicas int) live.Split {
	n := floorOf(floor, replicas)
	return live.Split{OnDemand: n, Spot: replicas - n}
}

// TestKeptScheduler: kube-scheduler places 36 replicas of eight Deployments. As many as the floors
// require run on on-demand, after the first placement, a rollout of all and the reclaim of a node.
func TestKeptScheduler(t *testing.T) {
	s := startKept(t, append(live.OnDemand(3, 10), live.Spot(4, 20)...)...)
	want := map[string]live.Split{}
	for replicas := 1; replicas <= 8; replicas++ {
		floor := []string{"1", "2", "30%"}[replicas%3]
		name := fmt.Sprint("app-", replicas)
		want[name] = onFloor(floor, replicas)
		s.Deploy(name, replicas, kept, live.Annotated("spot-aware-scheduler.io/min-on-demand", floor))
	}
	s.Eventually(soon, s.HaveReadySplits(want))
	for name := range want {
		s.SetImage(name, "registry.invalid/app:2")
	}
	s.Eventually(3*soon, s.HaveReadySplits(want))

	s.EditNode("spot-1", func(node *v1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: "spot-aware-scheduler.io/interruption", Value: "test", Effect: v1.TaintEffectNoSchedule})
	})
	s.Eventually(2*soon, func() error {
		pods, err := kube.CoreV1().Pods(s.Namespace).List(s.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=spot-1"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods on the reclaimed node", len(pods.Items))
		}
		return err
	})
	s.Eventually(2*soon, s.HaveReadySplits(want))
}

// TestKeptSchedulerByLabels: the floors hold on the node groups of other provisioners, whose labels
// the configuration does not name. Pods that opt out run anywhere.
func TestKeptSchedulerByLabels(t *testing.T) {
	for name, provisioner := range map[string]struct{ key, spot, onDemand string }{
		"EKS": {"eks.amazonaws.com/capacityType", "SPOT", "ON_DEMAND"},
		"AKS": {"kubernetes.azure.com/scalesetpriority", "spot", "regular"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := labelled(append(live.OnDemand(1, 10), live.Spot(2, 10)...), provisioner.key,
				map[string]string{lab.Spot: provisioner.spot, lab.OnDemand: provisioner.onDemand})
			s := startKept(t, nodes...)
			s.Deploy("web", 6, kept, live.Annotated("spot-aware-scheduler.io/min-on-demand", "2"))
			s.Eventually(soon, s.HasReadySplit("web", live.Split{OnDemand: 2, Spot: 4}))
			s.Deploy("out", 4, kept, func(d *appsv1.Deployment) {
				d.Spec.Template.Labels[optInLabel] = "false"
				d.Spec.Template.Spec.NodeSelector = map[string]string{provisioner.key: provisioner.spot}
			})
			s.Eventually(soon, s.HasReadySplit("out", live.Split{Spot: 4}))
		})
	}
}

// TestKeptSchedulerOutage: no controller runs, so the failsafe removes the gates of new pods after
// gateTimeout, and kube-scheduler places them on spot alone. The next controller heals their floor.
func TestKeptSchedulerOutage(t *testing.T) {
	if servesWebhook() {
		t.Skip("without a controller the webhook gates no pods: see TestWebhookOutage")
	}
	s := startKept(t, append(live.OnDemand(1, 10), live.Spot(2, 10)...)...)
	s.StartAnotherController(s.standby(), "--failsafe")
	s.EditNode("od-1", func(node *v1.Node) { node.Spec.Unschedulable = true })
	s.Must(s.Controller.Kill())
	began := time.Now()
	s.Deploy("web", 3, kept)
	s.Eventually(soon, s.HasSplit("web", live.Split{Waiting: 3}))
	s.Eventually(time.Minute, s.HasReadySplit("web", live.Split{Spot: 3}))
	t.Logf("ready without a controller after %s", time.Since(began).Round(100*time.Millisecond))

	s.EditNode("od-1", func(node *v1.Node) { node.Spec.Unschedulable = false })
	began = time.Now()
	s.StartController(s.settings)
	s.Eventually(time.Minute, s.HasReadySplit("web", live.Split{OnDemand: 1, Spot: 2}))
	t.Logf("healed %s after the controller was started", time.Since(began).Round(100*time.Millisecond))
}

// TestKeptPods shows what happens to pods whose opt-in is unusual or changes.
func TestKeptPods(t *testing.T) {
	s := startKept(t, append(live.OnDemand(1, 20), live.Spot(2, 20)...)...)
	s.separateLeader()
	s.StartScheduler(lab.SchedulerOptions{})
	optIn := func(value string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.Template.Labels[optInLabel] = value }
	}
	two := live.Annotated(minOnDemand, "2")
	onSpot := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{capacityLabel: lab.Spot}
	}

	// Only the pods of the Deployment out have no policy.
	s.Deploy("own", 4, optIn("keep-scheduler"), two)
	s.Deploy("kept", 4, kept, optIn("keep-scheduler"), two)
	s.Deploy("unknown-value", 4, kept, optIn("yes"), two) // the label of the namespace decides
	s.Deploy("out", 4, kept, optIn("false"), two, onSpot)
	s.Deploy("only-spot", 4, kept, two, onSpot)
	s.Eventually(soon, s.HaveReadySplits(map[string]live.Split{
		"own": {OnDemand: 2, Spot: 2}, "kept": {OnDemand: 2, Spot: 2}, "unknown-value": {OnDemand: 2, Spot: 2},
		"out": {Spot: 4}, "only-spot": {Spot: 4},
	}))
	s.Eventually(soon, s.HasEvent("only-spot-", "HiddenFromAutoscaler", ""))
	s.Eventually(soon, s.HasEvent("own-", "OptInIgnored", ""))

	// While the controller is paused, pods with the gate lose their owner, opt out, or reach a
	// deadline.
	s.Must(s.Controller.Pause())
	s.Deploy("orphans", 2, kept)
	s.Deploy("opted-out", 2, kept, onSpot)
	late := int64(5)
	template := live.PodTemplate("late")
	template.Spec.SchedulerName, template.Spec.RestartPolicy = v1.DefaultSchedulerName, v1.RestartPolicyNever
	_, err := kube.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: batchv1.JobSpec{ActiveDeadlineSeconds: &late, Template: template},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually(soon, s.HaveSplits(map[string]live.Split{"orphans": {Waiting: 2}, "opted-out": {Waiting: 2}, "late": {Waiting: 1}}))
	orphan := metav1.DeletePropagationOrphan
	s.Must(kube.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, "orphans", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	s.Must(kube.AppsV1().ReplicaSets(s.Namespace).DeleteCollection(s.Ctx, metav1.DeleteOptions{PropagationPolicy: &orphan},
		metav1.ListOptions{LabelSelector: "app=orphans"}))
	pods, err := s.Pods("opted-out")
	s.Must(err)
	for _, pod := range pods {
		_, err := kube.CoreV1().Pods(s.Namespace).Patch(s.Ctx, pod.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:"false"}}}`, optInLabel), metav1.PatchOptions{})
		s.Must(err)
	}
	// The time in the gate counts for the deadline of a Job.
	s.Eventually(soon, s.HasSplit("late", live.Split{}))
	s.Must(s.Controller.Resume())
	s.Eventually(soon, s.HaveReadySplits(map[string]live.Split{
		"orphans":   {OnDemand: 2}, // each is a single replica now
		"opted-out": {Spot: 2},
	}))
	for _, pod := range s.Seen.Pods("opted-out") {
		if !strings.HasPrefix(pod.Assigned, "none: the policy does not apply") {
			t.Errorf("%s is assigned %q", pod.Name, pod.Assigned)
		}
	}
	s.Eventually(soon, s.HasEvent("opted-out-", "OptInIgnored", ""))
}

// TestKeptSwitched: the mode is enabled and disabled for a namespace with running workloads, of
// which our scheduler places one.
func TestKeptSwitched(t *testing.T) {
	s := startKept(t, append(live.OnDemand(1, 40), live.Spot(2, 40)...)...)
	s.StartScheduler(lab.SchedulerOptions{})
	s.Must(labelNamespace(s.Ctx, s.Namespace, "true")) // has no effect without the overlay namespace-opt-in
	want := map[string]live.Split{"own": {OnDemand: 2, Spot: 4}}
	s.Deploy("own", 6, live.Annotated(minOnDemand, "2"))
	before := map[string]live.Split{}
	for i := range 4 {
		name := fmt.Sprint("app-", i)
		s.Deploy(name, 4, kept, preferSpot(capacityLabel))
		before[name], want[name] = live.Split{Spot: 4}, live.Split{OnDemand: 1, Spot: 3}
	}
	s.Eventually(soon, s.HaveReadySplits(before))
	for name := range want {
		s.Seen.RequireServing(name, want[name].OnDemand+want[name].Spot-1)
	}
	began := time.Now()
	s.Must(labelNamespace(s.Ctx, s.Namespace, "keep-scheduler"))
	s.Eventually(time.Minute, s.HaveReadySplits(want))
	t.Logf("all floors were met %s after the mode was enabled", time.Since(began).Round(100*time.Millisecond))

	s.Must(labelNamespace(s.Ctx, s.Namespace, "other"))
	s.Deploy("after", 4, kept, preferSpot(capacityLabel))
	s.Eventually(soon, s.HasReadySplit("after", live.Split{Spot: 4}))
	s.SetImage("own", "registry.invalid/app:2")
	s.Eventually(soon, s.HaveReadySplits(map[string]live.Split{"own": want["own"]}))
}
