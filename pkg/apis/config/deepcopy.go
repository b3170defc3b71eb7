package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyObject implements runtime.Object.
func (a *ReplicaSafetyArgs) DeepCopyObject() runtime.Object {
	result := *a
	result.Rules = slices.Clone(a.Rules)
	for i := range result.Rules {
		r := &result.Rules[i]
		r.Namespaces = slices.Clone(r.Namespaces)
		r.PodSelector = r.PodSelector.DeepCopy()
		r.PriorityClasses = slices.Clone(r.PriorityClasses)
		r.QOSClasses = slices.Clone(r.QOSClasses)
		r.OwnerKinds = slices.Clone(r.OwnerKinds)
	}
	result.CapacityLabels = slices.Clone(a.CapacityLabels)
	for i := range result.CapacityLabels {
		l := &result.CapacityLabels[i]
		l.Spot, l.OnDemand = slices.Clone(l.Spot), slices.Clone(l.OnDemand)
	}
	result.Signals = slices.Clone(a.Signals)
	return &result
}

// DeepCopyObject implements runtime.Object.
func (a *SpotPreferenceArgs) DeepCopyObject() runtime.Object {
	result := *a
	result.PoolRisk = slices.Clone(a.PoolRisk)
	return &result
}
