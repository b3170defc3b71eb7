//go:build long

package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// Karpenter may add spot in two of three zones only. Each workload is spread over all three with a
// skew of at most 1 and has its floor on on-demand. So it is over the two NodePools.
func TestLongZones(t *testing.T) {
	s := start(t, setup{mode: true, karpenter: lab.KarpenterOptions{NodePools: zonalPools()}})
	s.deploy("spot", 1, "100m", "16Mi", floor("0"), live.OnlyOn(lab.KarpenterCapacityLabel, lab.Spot))
	s.deploy("single", 1, "100m", "16Mi") // without an on-demand node, nothing is known about such nodes
	// Near a pod on spot, a floor would exclude every node. Other pods could fill the node.
	s.Eventually(soon, s.isAvailableWithSplit("spot", split{Spot: 1}))
	s.Eventually(soon, s.isAvailableWithSplit("single", split{OnDemand: 1}))
	s.deploy("near", 2, "100m", "16Mi", floor("1"), nearApp("spot"))
	s.Eventually(soon, s.isAvailableWithSplit("near", split{Spot: 2}))
	s.Eventually(soon, s.HasEvent("near-", "ExemptFromFloor", ""))
	apps := s.deployZonal()
	s.deploy("pools", 10, "200m", "64Mi", floor("2"), live.SpreadOver(lab.KarpenterPoolLabel))
	s.deploy("types", 6, "200m", "64Mi", floor("2"), live.SpreadOver(v1.LabelInstanceTypeStable))
	for _, app := range apps {
		s.Eventually(soon, s.isSpread(app, v1.LabelTopologyZone, zones...))
	}
	s.Eventually(soon, s.isSpread("pools", lab.KarpenterPoolLabel, lab.Spot, lab.OnDemand))
	s.Eventually(soon, s.isSpread("types", v1.LabelInstanceTypeStable))
	got, err := s.Splits()
	s.Must(err)
	for _, app := range append(apps, "pools") {
		if got[app].Spot < 4 {
			t.Errorf("%s: %+v, want at least 4 replicas on spot", app, got[app])
		}
	}
	s.logSpread("created", apps...)
	s.Auditor.Require(t)
}

// The skew and the floors are kept when the workloads of TestLongZones change and when spot is
// reclaimed. No pod waits for longer than Karpenter needs. A scale-down may break any spread,
// because no controller of Kubernetes considers it then; a rollout restores it.
func TestLongZoneSpread(t *testing.T) {
	s := start(t, setup{mode: true, karpenter: lab.KarpenterOptions{NodePools: zonalPools()}})
	apps := s.deployZonal()
	settled := func(what string) {
		t.Helper()
		for _, app := range apps {
			s.Eventually(4*time.Minute, s.isSpread(app, v1.LabelTopologyZone, zones...))
			if pending := longestPending(s.Seen, app); pending > soon {
				t.Errorf("a pod of %s was pending for %s", app, pending)
			}
		}
		s.logSpread(what, apps...)
	}
	each := func(change func(app string)) {
		for _, app := range apps {
			change(app)
		}
	}
	settled("created")
	each(func(app string) { s.Scale(app, 15) })
	settled("scaled up")
	each(func(app string) { s.Scale(app, 7) })
	s.Eventually(time.Minute, s.complete)
	s.Eventually(soon, s.floorsMet)
	s.logSpread("scaled down", apps...)
	each(func(app string) { s.SetImage(app, "app:2") })
	settled("rolled out")
	each(func(app string) { s.Scale(app, 10) })
	settled("scaled up again")
	s.loseSpot()
	settled("spot reclaimed")
	s.Auditor.Require(t)
}

// zones are the zones of zonalPools.
var zones = []string{"test-zone-a", "test-zone-b", "test-zone-c"}

// zonalPools returns NodePools with on-demand in three zones, and with spot in two zones. Karpenter
// tries spot first.
func zonalPools() []lab.NodePool {
	return []lab.NodePool{
		{Name: lab.Spot, CapacityTypes: []string{lab.Spot}, Weight: 10, Requirements: map[string][]string{v1.LabelTopologyZone: zones[:2]}},
		{Name: lab.OnDemand, CapacityTypes: []string{lab.OnDemand}, Requirements: map[string][]string{v1.LabelTopologyZone: zones}},
	}
}

// deployZonal creates Deployments with a hard spread over zones, and returns their names.
func (s *scenario) deployZonal() []string {
	s.Helper()
	// Without minDomains, kube-scheduler does not count a zone before it has a node. Without
	// matchLabelKeys, it counts the pods of the old revision in a rollout.
	strict := func(d *appsv1.Deployment) {
		domains, c := int32(len(zones)), &d.Spec.Template.Spec.TopologySpreadConstraints[0]
		c.MinDomains, c.MatchLabelKeys = &domains, []string{appsv1.DefaultDeploymentUniqueLabelKey}
	}
	s.deploy("two", 10, "200m", "64Mi", floor("2"), live.SpreadOver(v1.LabelTopologyZone), strict)
	s.deploy("percent", 9, "200m", "64Mi", floor("30%"), live.SpreadOver(v1.LabelTopologyZone), strict)
	s.deploy("half", 10, "200m", "64Mi", floor("50%"), live.SpreadOver(v1.LabelTopologyZone), strict)
	s.deploy("never", 9, "200m", "64Mi", floor("2"), live.SpreadOver(v1.LabelTopologyZone), strict, func(d *appsv1.Deployment) {
		d.Annotations["spot-aware-scheduler.io/overflow"] = "Never"
	})
	return []string{"two", "percent", "half", "never"}
}

// nearApp returns an edit that requires a node with a pod of another app.
func nearApp(app string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: v1.LabelHostname},
		}}}
	}
}

// byDomain counts the bound pods of an app by a label of their nodes, the given domains included.
// Pods that are released do not count, because the constraint of deployZonal does not select them.
func (s *scenario) byDomain(app, key string, domains ...string) (map[string]int, error) {
	pods, err := live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	nodes, err := kube.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	counts, domain := map[string]int{}, map[string]string{}
	for _, one := range domains {
		counts[one] = 0
	}
	for _, node := range nodes.Items {
		domain[node.Name] = node.Labels[key]
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "released" {
			counts[domain[pod.Spec.NodeName]]++
		}
	}
	return counts, nil
}

// isSpread returns a check that an app is available, with a skew of at most 1 over the domains that
// have its pods and these, and with its floor on on-demand.
func (s *scenario) isSpread(app, key string, domains ...string) func() error {
	return func() error {
		d, err := kube.AppsV1().Deployments(s.Namespace).Get(s.Ctx, app, metav1.GetOptions{})
		if err != nil {
			return err
		}
		counts, err := s.byDomain(app, key, domains...)
		if err != nil {
			return err
		}
		got, err := s.Splits()
		if err != nil {
			return err
		}
		want, status := int(*d.Spec.Replicas), d.Status
		least, most, sum := want, 0, 0
		for _, n := range counts {
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		floor := floorOf(d.Annotations[minOnDemand], want)
		switch {
		case status.ObservedGeneration < d.Generation || int(status.UpdatedReplicas) != want || int(status.AvailableReplicas) != want || sum != want:
			err = fmt.Errorf("%s: %d of %d replicas are updated, %d available, %d bound", app, status.UpdatedReplicas, want, status.AvailableReplicas, sum)
		case most-least > 1:
			err = fmt.Errorf("%s: the skew is %d: %v", app, most-least, counts)
		case got[app].OnDemand < floor:
			err = fmt.Errorf("%s: %+v with a floor of %d", app, got[app], floor)
		}
		return err
	}
}

// logSpread logs how the apps are spread over zones, and the longest time that one of their pods
// was or has been pending.
func (s *scenario) logSpread(what string, apps ...string) {
	s.Helper()
	got, err := s.Splits()
	s.Must(err)
	for _, app := range apps {
		counts, err := s.byDomain(app, v1.LabelTopologyZone, zones...)
		s.Must(err)
		s.Logf("%s: %s: %v, %+v, pending for %s at most", what, app, counts, got[app], longestPending(s.Seen, app).Round(100*time.Millisecond))
	}
}

// longestPending returns the longest time that a pod of an app was pending.
func longestPending(h *live.History, app string) time.Duration {
	var pending []time.Duration
	for _, pod := range h.Pods(app) {
		until := time.Now()
		if !pod.Bound.IsZero() {
			until = pod.Bound
		} else if !pod.Left.IsZero() {
			until = pod.Left
		}
		pending = append(pending, until.Sub(pod.Created))
	}
	return slices.Max(pending)
}
