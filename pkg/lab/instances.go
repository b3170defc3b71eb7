package lab

import "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/instances"

// InstanceTypes are those that the lab knows, by name.
var InstanceTypes = instances.Types
