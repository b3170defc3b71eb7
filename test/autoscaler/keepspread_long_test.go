//go:build long

package autoscaler

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// constraints are edits of a Deployment by the kind of its constraints. Only on-demand nodes have
// the instance type that affinity prefers.
var constraints = map[string]func(*appsv1.Deployment){
	"none": func(*appsv1.Deployment) {},
	"affinity": func(d *appsv1.Deployment) {
		prefers := v1.PreferredSchedulingTerm{Weight: 100, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: v1.LabelInstanceTypeStable, Operator: v1.NodeSelectorOpIn, Values: []string{"m5.xlarge"}}}}}
		d.Spec.Template.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{prefers}}}
	},
	"soft": func(d *appsv1.Deployment) {
		for _, key := range []string{v1.LabelTopologyZone, v1.LabelHostname} {
			live.SpreadOver(key)(d)
		}
		for i := range d.Spec.Template.Spec.TopologySpreadConstraints {
			d.Spec.Template.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable = v1.ScheduleAnyway
		}
	},
	"hard": func(d *appsv1.Deployment) {
		live.SpreadOver(v1.LabelTopologyZone)(d)
		d.Spec.Template.Spec.TopologySpreadConstraints[0].NodeAffinityPolicy = new(v1.NodeInclusionPolicyIgnore)
	},
}

// TestLongKeptSpread measures where kube-scheduler starts replicas of workloads with a floor of 1:
// how many beyond the floor on on-demand, and how many in each of three spot pools with three
// nodes. EKS can set MostAllocated. OpenShift has the profiles HighNodeUtilization and NoScoring.
// Other pods use half of one pool, or nothing.
func TestLongKeptSpread(t *testing.T) {
	const mostAllocated = "pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]"
	for _, scoring := range [][2]string{
		{"defaults", ""},
		{"MostAllocated", mostAllocated},
		{"HighNodeUtilization", "plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}], enabled: [{name: NodeResourcesFit, weight: 5}]}}, " + mostAllocated},
		{"NoScoring", `plugins: {preScore: {disabled: [{name: "*"}]}, score: {disabled: [{name: "*"}]}}`},
	} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, half a pool used %t", scoring[0], used), func(t *testing.T) { measureKeptSpread(t, scoring[1], used) })
		}
	}
}

func measureKeptSpread(t *testing.T, profile string, used bool) {
	s := startKept(t, append(live.OnDemand(3, 100), live.Spot(9, 100)...)...)
	s.Must(s.Scheduler.Stop())
	file := filepath.Join(t.TempDir(), "kube-scheduler.yaml")
	text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{" + profile + "}]\n"
	s.Must(os.WriteFile(file, []byte(text), 0o600))
	var err error
	s.Scheduler, err = controlPlane.StartScheduler(s.Ctx, lab.SchedulerOptions{
		Name: "kube-scheduler", Binary: filepath.Join(controlPlane.Root, ".local", "bin", "kube-scheduler"),
		Kubeconfig: controlPlane.StockKubeconfig, ConfigFile: file,
	})
	s.Must(err)
	for i := 1; i <= 9 && used; i += 3 { // the nodes in zone-a
		half := v1.ResourceList{v1.ResourceCPU: resource.MustParse("50"), v1.ResourceMemory: resource.MustParse("32Gi")}
		s.Deploy(fmt.Sprint("other-", i), 1, kept, live.OnlyOn(v1.LabelHostname, fmt.Sprint("spot-", i)), func(d *appsv1.Deployment) {
			d.Spec.Template.Labels[optInLabel] = "false"
			d.Spec.Template.Spec.Containers[0].Resources.Requests = half
		})
		s.Eventually(soon, s.HasReadySplit(fmt.Sprint("other-", i), live.Split{Spot: 1}))
	}
	want := map[string]int{}
	for _, replicas := range []int{4, 8, 20} {
		for kind, edit := range constraints {
			app := fmt.Sprintf("%s-%02d", kind, replicas)
			s.Deploy(app, replicas, kept, edit)
			want[app] = replicas
		}
	}
	pods := map[string][]v1.Pod{}
	s.Eventually(2*soon, func() (err error) {
		for app, n := range want {
			if pods[app], err = live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "spec.nodeName!="}); err != nil {
				return err
			}
			if len(pods[app]) < n {
				return fmt.Errorf("%s: %d pods have a node", app, len(pods[app]))
			}
		}
		return nil
	})
	for _, app := range slices.Sorted(maps.Keys(pods)) {
		onDemand, pools := 0, map[string]int{}
		for i := range pods[app] {
			if node := s.Node(pods[app][i].Spec.NodeName); node.Labels[capacityLabel] == lab.Spot {
				pools[node.Labels[v1.LabelTopologyZone]]++
			} else {
				onDemand++
			}
		}
		t.Logf("%-12s %d beyond the floor on on-demand, by spot pool %v", app, onDemand-1, pools)
		if onDemand < 1 {
			t.Errorf("%s has no replica on on-demand, want its floor", app)
		}
	}
}
