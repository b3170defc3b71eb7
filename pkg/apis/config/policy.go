package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/decoding"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// Validate returns every error in the arguments, those found by decoding included. path is the
// field path of the arguments; nil for the root.
func (a *ReplicaSafetyArgs) Validate(path *field.Path) field.ErrorList {
	_, _, errs := a.convert(path)
	return errs
}

// Policy converts the arguments. It returns the policy and the interruption signals of nodes, both
// including the built-in ones. The error contains every error that Validate finds.
func (a *ReplicaSafetyArgs) Policy() (*decision.Policy, []providers.Signal, error) {
	policy, signals, errs := a.convert(nil)
	if err := errs.ToAggregate(); err != nil {
		return nil, nil, fmt.Errorf("invalid ReplicaSafetyArgs: %w", err)
	}
	return policy, signals, nil
}

// convert validates and converts in one pass, so that both always cover the same fields. Unset
// fields have their defaults.
func (a *ReplicaSafetyArgs) convert(path *field.Path) (*decision.Policy, []providers.Signal, field.ErrorList) {
	a = a.DeepCopy()
	a.SetDefaults()
	var errs field.ErrorList
	policy := &decision.Policy{
		Defaults:    convertSettings(&errs, path, a).Apply(decision.WorkloadSettings{}),
		Annotations: convertAnnotationPolicy(&errs, path, *a.AnnotationPolicy),
		UnlabeledNodes: decoding.OneOf(&errs, path.Child("unlabeledNodes"), *a.UnlabeledNodes,
			[]CapacityType{OnDemand, Spot}, decision.OnDemand, decision.Spot),
		LabelGrace:  decoding.AtLeast(&errs, path.Child("labelGrace"), *a.LabelGrace, 0),
		GateTimeout: decoding.AtLeast(&errs, path.Child("gateTimeout"), *a.GateTimeout, time.Second),
	}
	policy.Rules = convertRules(&errs, path.Child("rules"), a.Rules)
	policy.CapacityLabels = convertCapacityLabels(&errs, path.Child("capacityLabels"), a.CapacityLabels)
	signals := convertSignals(&errs, path.Child("signals"), a.Signals)
	return policy, signals, decoding.Join(path, a.decoded.list, errs)
}

func convertAnnotationPolicy(errs *field.ErrorList, path *field.Path, p AnnotationPolicy) decision.AnnotationPolicy {
	return decoding.OneOf(errs, path.Child("annotationPolicy"), p, []AnnotationPolicy{AllowAnnotations, StricterOnly, IgnoreAnnotations},
		decision.AllowAnnotations, decision.StricterOnly, decision.IgnoreAnnotations)
}

// convertCapacityLabels returns the built-in labels, then the configured labels.
func convertCapacityLabels(errs *field.ErrorList, path *field.Path, labels []CapacityLabel) []decision.CapacityLabel {
	result := providers.CapacityLabels()
	seen := map[string]bool{}
	for i, label := range labels {
		path := path.Index(i)
		checkText(errs, path.Child("key"), label.Key, validation.IsQualifiedName(label.Key))
		if seen[label.Key] {
			*errs = append(*errs, field.Duplicate(path.Child("key"), label.Key))
		}
		seen[label.Key] = true
		if label.Key == spot.CapacityLabel {
			*errs = append(*errs, field.Forbidden(path.Child("key"), "the values of the project's own label are fixed: spot and on-demand"))
		}
		if len(label.Spot)+len(label.OnDemand) == 0 {
			*errs = append(*errs, field.Required(path, "at least one value in spot or onDemand"))
		}
		values := map[string]bool{}
		checkEach(errs, path.Child("spot"), label.Spot, values, validation.IsValidLabelValue)
		checkEach(errs, path.Child("onDemand"), label.OnDemand, values, validation.IsValidLabelValue)
		result = append(result, decision.CapacityLabel{Key: label.Key, Spot: label.Spot, OnDemand: label.OnDemand})
	}
	return result
}

// Validate returns every error in the arguments, those found by decoding included. path is the
// field path of the arguments; nil for the root.
func (a *SpotPreferenceArgs) Validate(path *field.Path) field.ErrorList {
	_, _, errs := a.convert(path)
	return errs
}

// Risk converts the arguments. It returns the half-life of an observed interruption, and the risk
// (0 to 1) of pools that is known in advance. The error contains every error that Validate finds.
func (a *SpotPreferenceArgs) Risk() (halfLife time.Duration, poolRisk map[decision.Pool]float64, err error) {
	halfLife, poolRisk, errs := a.convert(nil)
	if err := errs.ToAggregate(); err != nil {
		return 0, nil, fmt.Errorf("invalid SpotPreferenceArgs: %w", err)
	}
	return halfLife, poolRisk, nil
}

func (a *SpotPreferenceArgs) convert(path *field.Path) (time.Duration, map[decision.Pool]float64, field.ErrorList) {
	a = a.DeepCopy()
	a.SetDefaults()
	var errs field.ErrorList
	halfLife := a.RiskHalfLife.Duration
	if halfLife <= 0 {
		errs = append(errs, field.Invalid(path.Child("riskHalfLife"), halfLife.String(), `expected a duration above 0 such as "1h"`))
	}
	poolRisk := make(map[decision.Pool]float64, len(a.PoolRisk))
	for i, row := range a.PoolRisk {
		path := path.Child("poolRisk").Index(i)
		requiredLabelValue(&errs, path.Child("instanceType"), row.InstanceType)
		requiredLabelValue(&errs, path.Child("zone"), row.Zone)
		risk := ptr.Deref(row.Risk, 0)
		if row.Risk == nil {
			errs = append(errs, field.Required(path.Child("risk"), ""))
		} else if risk < 0 || risk > 1 {
			errs = append(errs, field.Invalid(path.Child("risk"), risk, "expected a number from 0 to 1"))
		}
		pool := decision.NewPool(row.InstanceType, row.Zone)
		if _, ok := poolRisk[pool]; ok && pool != (decision.Pool{}) {
			errs = append(errs, field.Duplicate(path, row.InstanceType+" in "+row.Zone))
		}
		poolRisk[pool] = risk
	}
	return halfLife, poolRisk, decoding.Join(path, a.decoded.list, errs)
}

func requiredLabelValue(errs *field.ErrorList, path *field.Path, value string) {
	if value == "" {
		*errs = append(*errs, field.Required(path, ""))
	}
	checkText(errs, path, value, validation.IsValidLabelValue(value)) // which permits ""
}
