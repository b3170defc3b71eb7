package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// spreadOver returns an edit that adds a hard topology spread constraint over a node label.
func spreadOver(key string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: d.Spec.Selector},
		}
	}
}

// A hard spread over capacity types keeps its meaning: the controller adds no affinity that hides a
// domain. With overflow Never, the spread wins.
func TestCapacitySpread(t *testing.T) {
	s := start(t, setup{mode: true})
	s.deploy("allow", 10, "200m", "64Mi", spreadOver(lab.KarpenterCapacityLabel))
	s.deploy("never", 10, "200m", "64Mi", spreadOver(lab.KarpenterCapacityLabel), func(d *appsv1.Deployment) {
		d.Annotations["spot-aware-scheduler.io/overflow"] = "Never"
	})
	for _, app := range []string{"allow", "never"} {
		s.eventually(soon, s.isAvailableWithSplit(app, split{OnDemand: 5, Spot: 5}))
	}
	s.requireNoGeneratedLabels()
}

// Karpenter may add spot in two of three zones only. Each workload is spread over all three with a
// skew of at most 1 and has its floor on on-demand. So it is over the two NodePools.
func TestZoneSpread(t *testing.T) {
	s := start(t, setup{mode: true, karpenter: lab.KarpenterOptions{NodePools: zonalPools()}})
	s.deploy("spot", 1, "100m", "16Mi", floor("0"), onlyOn(lab.Spot))
	apps := s.deployZonal()
	s.deploy("pools", 10, "200m", "64Mi", floor("2"), spreadOver(lab.KarpenterPoolLabel))
	s.deploy("types", 6, "200m", "64Mi", floor("2"), spreadOver(v1.LabelInstanceTypeStable))
	// Near a pod on spot, a floor would exclude every node.
	s.eventually(soon, s.isAvailableWithSplit("spot", split{Spot: 1}))
	s.deploy("near", 2, "100m", "16Mi", floor("1"), nearApp("spot"))
	for _, app := range apps {
		s.eventually(soon, s.isSpread(app, v1.LabelTopologyZone, zones...))
	}
	s.eventually(soon, s.isSpread("pools", lab.KarpenterPoolLabel, lab.Spot, lab.OnDemand))
	s.eventually(soon, s.isSpread("types", v1.LabelInstanceTypeStable))
	s.eventually(soon, s.isAvailableWithSplit("near", split{Spot: 2}))
	s.eventually(soon, s.hasEvent("near-", "SpotByOwnAffinity", ""))
	got, err := s.splits()
	s.must(err)
	for _, app := range append(apps, "pools") {
		if got[app].Spot < 4 {
			t.Errorf("%s: %+v, want at least 4 replicas on spot", app, got[app])
		}
	}
	s.logSpread("created", apps...)
	s.auditor.Require(t)
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
	s.deploy("two", 10, "200m", "64Mi", floor("2"), spreadOver(v1.LabelTopologyZone), strict)
	s.deploy("percent", 9, "200m", "64Mi", floor("30%"), spreadOver(v1.LabelTopologyZone), strict)
	s.deploy("half", 10, "200m", "64Mi", floor("50%"), spreadOver(v1.LabelTopologyZone), strict)
	s.deploy("never", 9, "200m", "64Mi", floor("2"), spreadOver(v1.LabelTopologyZone), strict, func(d *appsv1.Deployment) {
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
	pods, err := live.Pods(s.ctx, kube, s.namespace, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	nodes, err := kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
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
		d, err := kube.AppsV1().Deployments(s.namespace).Get(s.ctx, app, metav1.GetOptions{})
		if err != nil {
			return err
		}
		counts, err := s.byDomain(app, key, domains...)
		if err != nil {
			return err
		}
		got, err := s.splits()
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
	got, err := s.splits()
	s.must(err)
	for _, app := range apps {
		counts, err := s.byDomain(app, v1.LabelTopologyZone, zones...)
		s.must(err)
		s.Logf("%s: %s: %v, %+v, pending for %s at most", what, app, counts, got[app], s.seen.longestPending(app).Round(100*time.Millisecond))
	}
}

// longestPending returns the longest time that a pod of an app was pending.
func (h *history) longestPending(app string) time.Duration {
	var pending []time.Duration
	for _, pod := range h.podsOf(app) {
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
