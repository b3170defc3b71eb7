package lab

import (
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

// InstanceTypes are the instance types that the lab supports, by name.
var InstanceTypes = pricing.Types
