package gating

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/node"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/profilemetrics"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// keptProfile is the label profile of the metrics of the pods that keep their scheduler. The
// program that places the pods of a profile serves theirs, so no pod counts twice.
const keptProfile = spot.KeepScheduler

// RegisterGauges registers the metrics of the pods that keep their scheduler. It must be called at
// most once.
func (a *Assigner) RegisterGauges(signals []providers.Signal) {
	profilemetrics.Register(&profilemetrics.Cluster{
		Profile: keptProfile, Nodes: a.nodes, Reader: &node.Reader{Policy: a.settings.Policy, Signals: signals},
		Pods: corelisters.NewPodLister(a.pods), Owners: a.owners, Includes: a.settings.Scope.KeepsScheduler, VolumesOf: a.feasibility.volumesOf,
		Pools: &a.settings.Provisioning.Pools, Waiting: a.waitingForOnDemand, Clock: a.clock,
	})
}

// waitingForOnDemand returns how many pods that keep their scheduler wait for an on-demand node
// that they require, and the longest wait.
func (a *Assigner) waitingForOnDemand() (pods int, longest time.Duration) {
	for _, obj := range a.pods.List() {
		pod := obj.(*v1.Pod)
		if pod.Spec.NodeName != "" || workload.AssignedCapacityOf(pod) != decision.AssignedOnDemand || !workload.Unschedulable(pod) ||
			!workload.Counts(pod) || !a.settings.Scope.KeepsScheduler(pod) {
			continue
		}
		pods++
		if waited, known := a.waitedFor(pod); known {
			longest = max(longest, waited)
		}
	}
	return pods, longest
}

// observeBinding counts the placement of a pod that keeps its scheduler, and records an event if it
// is an exception.
func (a *Assigner) observeBinding(pod *v1.Pod) {
	if !a.leading.Load() || !a.settings.Scope.KeepsScheduler(pod) || !workload.PolicyApplies(pod) {
		return
	}
	node, err := a.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return
	}
	capacity := a.capacity(node).Type
	outcome := a.outcomeOf(pod, capacity)
	if outcome == "" {
		return
	}
	profilemetrics.RecordPlacement(keptProfile, capacity, outcome)
	workload.RecordException(a.recorder, pod, outcome, node.Name, nil)
}

// outcomeOf returns the reason why the pod runs on this capacity type, according to its assignment;
// "" if the assignment forbids that, because the labels of the node have changed.
func (a *Assigner) outcomeOf(pod *v1.Pod, capacity decision.CapacityType) decision.Outcome {
	requiresOnDemand := workload.OnlyOnDemand(pod, a.settings.Policy) || workload.AssignedCapacityOf(pod) == decision.AssignedOnDemand
	anyway := strings.Contains(pod.Annotations[spot.AssignedAnnotation], whyAnyway)
	switch {
	case capacity == decision.OnDemand && (requiresOnDemand || anyway):
		return decision.OnFloor
	case capacity == decision.OnDemand:
		return decision.Overflow
	case requiresOnDemand && workload.Granted(pod) == "":
		return ""
	case anyway:
		return decision.ByScheduleAnyway
	case workload.Granted(pod) == spot.GrantedExemption:
		return decision.ByExemption
	}
	return workload.GrantOf(pod).Outcome()
}
