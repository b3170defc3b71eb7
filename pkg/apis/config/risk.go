package config

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/scalar"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// Validate returns every error in the arguments, whose defaults must be set. path is the field path
// of the arguments; nil for the root.
func (a *SpotPreferenceArgs) Validate(path *field.Path) field.ErrorList {
	_, _, errs := a.convert(path)
	return errs
}

// Risk converts the arguments, whose defaults must be set. It returns the half-life of an observed
// interruption, and the risk (0 to 1) of pools that is known in advance. The error contains every
// error that Validate finds.
func (a *SpotPreferenceArgs) Risk() (halfLife time.Duration, poolRisk map[decision.Pool]float64, err error) {
	halfLife, poolRisk, errs := a.convert(nil)
	if err := errs.ToAggregate(); err != nil {
		return 0, nil, fmt.Errorf("invalid SpotPreferenceArgs: %w", err)
	}
	return halfLife, poolRisk, nil
}

func (a *SpotPreferenceArgs) convert(path *field.Path) (time.Duration, map[decision.Pool]float64, field.ErrorList) {
	var errs field.ErrorList
	halfLife := scalar.Parse(&errs, path.Child("riskHalfLife"), a.RiskHalfLife, scalar.PositiveDuration)
	poolRisk := make(map[decision.Pool]float64, len(a.PoolRisk))
	for i, row := range a.PoolRisk {
		path := path.Child("poolRisk").Index(i)
		errs = append(errs, requiredLabelValue(row.InstanceType, path.Child("instanceType"))...)
		errs = append(errs, requiredLabelValue(row.Zone, path.Child("zone"))...)
		risk := scalar.Parse(&errs, path.Child("risk"), row.Risk, parseRisk)
		pool := decision.NewPool(row.InstanceType, row.Zone)
		if _, ok := poolRisk[pool]; ok && pool != (decision.Pool{}) {
			errs = append(errs, field.Duplicate(path, row.InstanceType+" in "+row.Zone))
		}
		poolRisk[pool] = risk
	}
	return halfLife, poolRisk, errs
}

func requiredLabelValue(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, value, validation.IsValidLabelValue(value))
}

func parseRisk(text string) (float64, error) {
	risk, err := strconv.ParseFloat(text, 64)
	// The negation also rejects NaN.
	if err != nil || !(risk >= 0 && risk <= 1) {
		return 0, errors.New("expected a number from 0 to 1")
	}
	return risk, nil
}
