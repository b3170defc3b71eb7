package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/decoding"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

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
		errs = append(errs, requiredLabelValue(row.InstanceType, path.Child("instanceType"))...)
		errs = append(errs, requiredLabelValue(row.Zone, path.Child("zone"))...)
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

func requiredLabelValue(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, value, validation.IsValidLabelValue(value))
}
