package replay

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// Arm is one way to use spot.
type Arm struct {
	Name, Title string
	// Spot reports that spot nodes exist.
	Spot bool
	// Scheduler reports that this project's scheduler places the pods; otherwise it is
	// kube-scheduler.
	Scheduler bool
	// Controller reports that this project's controller runs. Otherwise the lab drains nodes that
	// get notice, like a node termination handler.
	Controller bool
	// Gating reports that the controller assigns a capacity type to each new pod. Without
	// Scheduler, the pods keep kube-scheduler.
	Gating bool
	// PreferSpot, RequireOnDemand and Spread are constraints of the pods.
	PreferSpot, RequireOnDemand, Spread bool
	// Split reports that each service is two Deployments: the floor on on-demand, the rest on spot.
	Split bool
	// IgnoreFloor reports that the services have no floor, although it is measured. It proves that
	// the lab notices a broken floor.
	IgnoreFloor bool
	// Extra reports that the arm runs only if it is named.
	Extra bool
}

// hasPolicy reports whether this project's policy applies to the pods.
func (a Arm) hasPolicy() bool { return a.Scheduler || a.Controller }

// checksFloors reports that a violated floor is reported as broken. Without the controller, a
// scale-down or a drain can violate floors, because they are enforced only when a pod is placed.
func (a Arm) checksFloors() bool { return a.Controller || a.IgnoreFloor }

// Arms are all arms, in the order of the report.
var Arms = []Arm{
	{Name: "on-demand", Title: "all on-demand", RequireOnDemand: true},
	{Name: "preferred", Title: "kube-scheduler, preferred spot affinity, drain on notice", Spot: true, PreferSpot: true},
	{Name: "spread", Title: "the same with a hard spread over capacity types", Spot: true, PreferSpot: true, Spread: true},
	{Name: "split", Title: "two Deployments: floor on on-demand, rest on spot", Spot: true, Split: true},
	{Name: "scheduler", Title: "spot-aware-scheduler, drain on notice", Spot: true, Scheduler: true},
	{Name: "controller", Title: "spot-aware-scheduler and spot-controller", Spot: true, Scheduler: true, Controller: true},
	{Name: "autoscaler", Title: "the same in the autoscaler mode", Spot: true, Scheduler: true, Controller: true, Gating: true},
	{Name: "any-scheduler", Title: "kube-scheduler and spot-controller", Spot: true, Controller: true, Gating: true},
	{Name: "broken-floor", Title: "spot-aware-scheduler without floors (a check of the lab)", Spot: true, Scheduler: true, IgnoreFloor: true,
		Extra: true},
}

// armIndex returns the index of an arm in Arms, or -1.
func armIndex(name string) int {
	return slices.IndexFunc(Arms, func(a Arm) bool { return a.Name == name })
}

// SelectArms returns the arms with these names, in the order of Arms. No names select all arms that
// are not Extra.
func SelectArms(names []string) ([]Arm, error) {
	var all []string
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var selected []Arm
	for _, arm := range Arms {
		all = append(all, arm.Name)
		if wanted[arm.Name] || len(names) == 0 && !arm.Extra {
			selected = append(selected, arm)
			delete(wanted, arm.Name)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("--arms: unknown arm %q: expected names of %s", sortedKeys(wanted)[0], strings.Join(all, ", "))
	}
	return selected, nil
}

const (
	namespace = "replay"
	// serviceLabel is on all pods of a service, also on released ones.
	serviceLabel = "lab.spot-aware-scheduler.io/service"
	// partLabel distinguishes the two Deployments of a service that is split.
	partLabel = "lab.spot-aware-scheduler.io/part"
	// beatAnnotation on the namespace changes when the driver causes an event for the controller.
	beatAnnotation = "lab.spot-aware-scheduler.io/beat"
	// karpenterLabel is the capacity label that the autoscaler mode uses by default.
	karpenterLabel = "karpenter.sh/capacity-type"
	schedulerName  = "spot-aware-scheduler"
)

// namespace returns the namespace of the services. Its pods opt in if they keep kube-scheduler.
func (a Arm) namespace() *corev1.Namespace {
	meta := metav1.ObjectMeta{Name: namespace}
	if a.Gating && !a.Scheduler {
		meta.Labels = map[string]string{spot.OptInLabel: spot.KeepScheduler}
	}
	return &corev1.Namespace{ObjectMeta: meta}
}

// deployments returns the replicas of the Deployments of a service, by name.
func (a Arm) deployments(p *Plan, service string, desired int) map[string]int {
	if !a.Split {
		return map[string]int{service: desired}
	}
	floor := p.Floor.Of(desired)
	return map[string]int{service + "-base": floor, service + "-spot": desired - floor}
}

// objects returns the Deployments and the PodDisruptionBudget of a service at the start of the
// window.
func (a Arm) objects(p *Plan, s Service, scales Scales) ([]*appsv1.Deployment, *policyv1.PodDisruptionBudget) {
	var deployments []*appsv1.Deployment
	replicas := a.deployments(p, s.Name, s.Desired())
	for _, name := range sortedKeys(replicas) {
		labels := map[string]string{serviceLabel: s.Name}
		if a.Split {
			labels[partLabel] = strings.TrimPrefix(name, s.Name+"-")
		}
		meta := metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels, Annotations: map[string]string{}}
		if a.hasPolicy() && !a.IgnoreFloor {
			meta.Annotations[spot.MinOnDemandAnnotation] = p.Floor.String()
		} else if a.hasPolicy() {
			meta.Annotations[spot.MinOnDemandAnnotation] = "0"
		}
		deployments = append(deployments, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas[name])), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: a.podSpec(s, labels, scales)},
		}})
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.Parse(p.Budget.String())),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{serviceLabel: s.Name}},
		},
	}
	return deployments, budget
}

func (a Arm) podSpec(s Service, labels map[string]string, scales Scales) corev1.PodSpec {
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To(graceSeconds(scales)),
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.example/replay:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(s.CPUMilli, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(s.MemoryMiB<<20, resource.BinarySI),
			}},
		}},
	}
	if a.Scheduler {
		spec.SchedulerName = schedulerName
	}
	switch {
	case a.RequireOnDemand || labels[partLabel] == "base":
		spec.Affinity = require(lab.OnDemand)
	case labels[partLabel] == "spot":
		spec.Affinity = require(lab.Spot)
	case a.PreferSpot:
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: capacityIs(lab.Spot)}},
		}}
	}
	if a.Spread {
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: lab.CapacityLabel, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
		}}
	}
	return spec
}

func require(capacity string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{capacityIs(capacity)}},
	}}
}

func capacityIs(capacity string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: lab.CapacityLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{capacity},
	}}}
}

// maxPods returns the largest number of pods of a node.
func (p *Plan) maxPods() int {
	if p.Node.MaxPods == 0 {
		return 110 // the default of the kubelet
	}
	return p.Node.MaxPods
}

// node returns the Node object of a spot or on-demand node.
func (p *Plan) node(name, zone, capacity string) *corev1.Node {
	price := p.Node.OnDemandUSD
	if capacity == lab.Spot {
		price = p.Node.SpotUSD
	}
	return lab.NodeSpec{
		Name: name, Capacity: capacity, InstanceType: p.Settings.InstanceType, Zone: zone,
		Labels:      map[string]string{karpenterLabel: capacity},
		Annotations: map[string]string{lab.PriceAnnotation: fmt.Sprintf("%.6g", price)},
		CPU:         fmt.Sprintf("%dm", p.Node.CPUMilli), Memory: fmt.Sprintf("%dMi", p.Node.MemoryMiB), Pods: p.maxPods(),
	}.Node()
}
