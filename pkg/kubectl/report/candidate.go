package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// longestNotice is the longest notice of a cloud before it reclaims a spot node (AWS).
const longestNotice = 2 * time.Minute

type candidate struct {
	*View
	priced                 map[*snapshot.Node]*pricing.Cost
	spot, onDemand         []*snapshot.Node
	fitsSpot, fitsOnDemand func(*snapshot.Pod) bool
	hidden                 *v1.Node // gating.HiddenNode
	doubts                 func(*snapshot.Workload) []string

	w        *snapshot.Workload
	p        *snapshot.Pod // of the newest revision
	pods     []*snapshot.Pod
	subject  *decision.Pod
	settings decision.WorkloadSettings
	// AssessedWorkload is the answer.
	AssessedWorkload

	byBudget int // how many replicas its PodDisruptionBudgets require
	// obstacles are why no replica should run on spot, unknown is what the input lacks, and changes
	// is what should change.
	obstacles, unknown, changes []string
}

// add adds a text to a list, once.
func add(list *[]string, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

func readyOnDemand(p *snapshot.Pod) bool {
	return p.IsReady() && p.Node.Facts.Capacity.Type == decision.OnDemand
}

// raiseFloor raises the suggested floor, as a change, to the larger of a majority and what
// PodDisruptionBudgets require whether other workloads opt in or not; or else to what prevents an
// outage.
func (c *candidate) raiseFloor() {
	if c.subject.Workload.Groups > 0 {
		return // the floor of a group is all or none of it
	}
	needed, by := c.requiredByBudget(c.w, func(w *snapshot.Workload, share int) int {
		switch {
		case w == c.w:
			return share
		case w.InScope:
			share = min(share, w.Floor)
		}
		return min(share, w.CountPods(readyOnDemand))
	})
	c.byBudget = min(needed, c.w.Desired)
	majority := c.w.Desired/2 + 1
	switch needed = c.byBudget; {
	case needed < majority && c.needsBudget() && c.w.Desired >= 3 && !c.w.HasReplicaSets() && slices.ContainsFunc(c.p.Spec.Volumes, hasData):
		needed, by = majority, "a majority" // a smaller budget does not keep it
	case needed > 0:
	case c.Outage(&c.Floor) && !c.Outage(c.WithoutSpot):
		needed, by = 1, "a service without an outage"
	}
	if needed > c.Floor && !c.w.InScope {
		setting, annotated := spot.MinOnDemandAnnotation, *c.subject
		annotated.Workload.Annotations = map[string]string{setting: strconv.Itoa(needed)}
		if settings, _ := c.Policy.Settings(&annotated); settings.Floor(c.w.Desired) < needed {
			setting = "minOnDemand in a rule of the policy, which ignores annotations,"
		}
		add(&c.changes, "set %s to %d, which %s requires: with %d, a loss of all spot nodes leaves %d of %d replicas, today %s",
			setting, needed, by, c.Floor, c.Floor, c.w.Desired, OptionalCount(c.WithoutSpot))
		c.Floor, c.FloorSource = needed, by
	}
}

func (c *candidate) classify() {
	staysOnDemand := c.settings.Floor(c.w.Desired) == c.w.Desired
	c.findObstacles()
	c.findUnknown(staysOnDemand)
	c.findChanges(staysOnDemand)
	patch := c.patch()
	switch {
	case slices.Contains(systemPriorities, c.p.Spec.PriorityClassName), c.isNamed(infrastructure, "-"):
		c.Class = Infrastructure
	case c.w.InScope:
		c.Class, c.Reasons = OptedIn, slices.Concat(c.obstacles, c.doubts(c.w))
	case len(c.obstacles) > 0:
		c.Class, c.Reasons = NotForSpot, c.obstacles
	case len(c.unknown) > 0:
		c.Class, c.Reasons = NotChecked, slices.Concat(c.unknown, c.changes)
	case len(c.changes) > 0:
		c.Class, c.Reasons, c.Patch = NeedsChange, c.changes, patch
	case staysOnDemand && c.w.FloorStatus().Spot == 0:
		c.Class, c.Reasons = StaysOnDemand, []string{"opt in at your next rollout: now it would only restart, because no replica runs on spot"}
	case staysOnDemand:
		c.Class, c.Patch = StaysOnDemand, patch
	default:
		c.Class, c.Patch = ReadyForSpot, patch
	}
}

func (c *candidate) findObstacles() {
	switch name := c.p.Spec.SchedulerName; {
	case c.Mode == ModeKeepScheduler && c.w.Namespace == metav1.NamespaceSystem:
		add(&c.obstacles, "pods of kube-system cannot opt in")
	case c.Mode != ModeKeepScheduler && name != "" && name != v1.DefaultSchedulerName && name != c.Scope.Profile:
		add(&c.obstacles, "its pods name the scheduler %s, which only --mode %s keeps", name, ModeKeepScheduler)
	}
	if c.w.Kind == "Pod" {
		add(&c.obstacles, "no controller creates the pod again if its node is lost")
	}
	if c.subject.Workload.Batch == decision.NotRetriable {
		add(&c.obstacles, "the Job fails if it loses a pod")
	}
	for _, p := range c.pods {
		for _, volume := range p.Volumes {
			if volume.Spec.Local != nil || volume.Spec.HostPath != nil {
				add(&c.obstacles, "its data is on one node: PersistentVolume %s", volume.Name)
			}
		}
		if c.w.Desired == 1 {
			for _, name := range hostPaths(p.Pod) {
				add(&c.obstacles, "a single replica has data on its node: hostPath volume %s", name)
			}
		}
	}
}

func (c *candidate) findUnknown(staysOnDemand bool) {
	c.unknown = c.doubts(c.w)
	if c.subject.Workload.Batch == decision.NotBatch && len(c.pods) < c.w.Desired {
		add(&c.unknown, "%d of its %d pods are known", len(c.pods), c.w.Desired)
	}
	for _, p := range c.pods {
		claims := 0
		for i := range p.Spec.Volumes {
			if p.Spec.Volumes[i].PersistentVolumeClaim != nil {
				claims++
			}
		}
		if claims > len(p.Volumes) {
			add(&c.unknown, "whether its data is on one node: a PersistentVolumeClaim or PersistentVolume is not known")
		}
	}
	if c.Floor > 0 && len(c.onDemand) == 0 {
		add(&c.unknown, "whether its floor fits on-demand nodes: there is none")
	}
	if staysOnDemand {
		return
	}
	if len(c.spot) == 0 {
		add(&c.unknown, "whether its pods fit spot nodes: there is none; --spot-pool describes one")
	}
	if c.needsBudget() && c.DisruptionBudgetsUnknown {
		add(&c.unknown, "whether a PodDisruptionBudget blocks evictions: none is known")
	}
}

// findChanges finds what should change before the replicas beyond the floor run on spot.
func (c *candidate) findChanges(staysOnDemand bool) {
	if c.Floor > 0 {
		if c.Mode == ModeKeepScheduler && c.hidden != nil {
			add(&c.changes, "label the spot nodes: no label that node affinity can express marks node %s as spot", c.hidden.Name)
		}
		if c.Mode == ModeKeepScheduler && c.subject.SpreadByAffinity {
			add(&c.changes, "set nodeAffinityPolicy: Ignore in its topology spread constraints: with Honor, the floor is only a preference")
		}
		c.checkFit(decision.OnDemand, c.onDemand, c.fitsOnDemand)
	}
	for _, p := range c.pods {
		for _, name := range hostPaths(p.Pod) {
			add(&c.changes, "check that the data of hostPath volume %s may be lost", name)
		}
	}
	if staysOnDemand {
		return
	}
	c.checkFit(decision.Spot, c.spot, c.fitsSpot)
	for _, p := range c.pods {
		if !workload.MayDisrupt(p.Pod, c.Snapshot.Now) {
			add(&c.changes, "an annotation asks not to disrupt its pods, but spot nodes are reclaimed")
		}
		if grace := time.Duration(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, 0)) * time.Second; grace > longestNotice {
			add(&c.changes, "its grace period of %s is longer than the notice of a spot node, at most %s", grace, longestNotice)
		}
	}
	if c.needsBudget() && !c.DisruptionBudgetsUnknown {
		c.findBudgetChanges()
	}
}

// checkFit adds a change if a pod that would run on a capacity type fits none of its nodes. Pods of
// a StatefulSet may have volumes in different zones, and its first ordinals are the floor.
func (c *candidate) checkFit(capacity decision.CapacityType, nodes []*snapshot.Node, fits func(*snapshot.Pod) bool) {
	for _, p := range c.pods {
		subject := &p.Subject.Pod
		if of := &subject.Workload; of.Ordered && (of.Ordinal < c.Floor) != (capacity == decision.OnDemand) {
			continue
		}
		switch {
		case capacity == decision.Spot && subject.OnlyOnDemand:
			add(&c.changes, "its node selector, node affinity or volume admits only on-demand nodes")
		case capacity == decision.OnDemand && subject.OnlySpot:
			add(&c.changes, "its node selector, node affinity or volume admits only spot nodes: that contradicts the floor")
		case len(nodes) > 0 && !fits(p):
			add(&c.changes, "its pods fit no %s node. On %s: %s", capacity, nodes[0].Name,
				strings.Join(simulation.NewInspection(c.Snapshot, p).Obstacles(nodes[0]), ", "))
		default:
			continue
		}
		return
	}
}

// patch returns the patch that makes the workload opt in. It is nil if no patch can, and then adds
// the change that replaces it.
func (c *candidate) patch() *Patch {
	if c.w.Kind == "Pod" {
		return nil
	}
	ref, d, set := c.Ref, c.w.Deployment, c.w.StatefulSet
	setting, value, form := "schedulerName", c.Scope.Profile, `{"spec":{"template":{"spec":{"schedulerName":%s}}}}`
	if c.Mode == ModeKeepScheduler {
		setting, value = "the label "+spot.OptInLabel, spot.KeepScheduler
		form = `{"spec":{"template":{"metadata":{"labels":{"` + spot.OptInLabel + `":%s}}}}}`
	}
	if c.Floor > c.settings.Floor(c.w.Desired) {
		form = fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}},`, spot.MinOnDemandAnnotation, c.Floor) + form[1:]
	}
	text, _ := json.Marshal(value) // a string always has a JSON form
	patch := &Patch{Kind: strings.ToLower(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, Patch: fmt.Appendf(nil, form, text)}
	var controller *metav1.OwnerReference
	if object := c.object(ref); object != nil {
		controller = metav1.GetControllerOfNoCopy(object)
	}
	switch kind := groupKind(ref.APIVersion, ref.Kind); {
	case controller != nil && kind == "Job.batch" && groupKind(controller.APIVersion, controller.Kind) == "CronJob.batch" &&
		len(validation.IsDNS1123Subdomain(controller.Name)) == 0: // a tenant may write any name, and it becomes part of a command
		patch.Kind, patch.Name = "cronjob", controller.Name
		patch.Patch = json.RawMessage(`{"spec":{"jobTemplate":` + string(patch.Patch) + `}}`)
		return patch
	case controller != nil:
		add(&c.changes, "set %s in %s %s, which controls it", setting, controller.Kind, controller.Name)
	case kind == "Job.batch":
		add(&c.changes, "set %s in the manifest, and create the Job again: its pod template cannot change", setting)
	case d != nil && d.Spec.Paused, set != nil && (set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType ||
		ptr.Deref(ptr.Deref(set.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{}).Partition, 0) > 0):
		add(&c.changes, "set %s in its manifest, and replace its pods: it is paused, or its strategy is OnDelete or has a partition", setting)
	case kind == "Deployment.apps", kind == "StatefulSet.apps":
		return patch
	case kind == "ReplicaSet.apps", kind == "ReplicationController":
		add(&c.changes, "delete its pods after it opted in: a %s does not replace them", ref.Kind)
		return patch
	default:
		if by := metav1.GetControllerOfNoCopy(c.p); by.Kind != workload.RevisionOf(c.p.Pod).Kind { // it did not create the pod from its template
			add(&c.changes, "set %s in the pods that %s %s controls", setting, by.Kind, by.Name)
		} else {
			add(&c.changes, "set %s in the pod template of %s %s", setting, ref.Kind, ref.Name)
		}
	}
	return nil
}

// findOffers finds what the workload could have in addition: a second replica.
func (c *candidate) findOffers() {
	if c.Class == StaysOnDemand && c.w.Desired == 1 && c.mayHaveSibling() {
		offer := Offer{Text: "a second replica, on spot, if it may run twice at a time: may it?"}
		if cost, ok := costOf(c.p, c.priced); ok && cost.Spot > 0 {
			offer.Cost = &cost.Spot
		}
		c.Offers = append(c.Offers, offer)
	}
}

func hasData(v v1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.HostPath != nil || v.Ephemeral != nil
}

// mayHaveSibling reports whether nothing indicates that the workload must have only one replica:
// that it is a database or an operator, has a volume with data, or never has two pods in a rollout.
func (c *candidate) mayHaveSibling() bool {
	if c.w.Deployment == nil || slices.ContainsFunc(c.p.Spec.Volumes, hasData) || c.isNamed(singletons, "") {
		return false
	}
	strategy := &c.w.Deployment.Spec.Strategy
	surge := ptr.Deref(strategy.RollingUpdate, appsv1.RollingUpdateDeployment{}).MaxSurge.String()
	return strategy.Type != appsv1.RecreateDeploymentStrategyType && surge != "0" && surge != "0%"
}

// groupKind returns a kind with its group, such as Deployment.apps.
func groupKind(apiVersion, kind string) string {
	return schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind().String()
}

func hostPaths(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].HostPath != nil {
			names = append(names, pod.Spec.Volumes[i].Name)
		}
	}
	return names
}
