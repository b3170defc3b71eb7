package lab

import "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/instances"

// InstanceTypes are the instance types that the lab supports, by name.
var InstanceTypes = instances.Types
