package lab

// DefaultNodes returns the nodes of the demo, which are also the default nodes of a lab:
// on-demand nodes of one type, and eight spot pools (instance type and zone) in three zones.
func DefaultNodes() []NodeSpec {
	const a, b, c = "us-east-1a", "us-east-1b", "us-east-1c"
	return Expand([]NodeGroup{
		{NamePrefix: "od-a-", Count: 2, Capacity: OnDemand, InstanceType: "m6i.xlarge", Zone: a},
		{NamePrefix: "od-b-", Count: 2, Capacity: OnDemand, InstanceType: "m6i.xlarge", Zone: b},
		{NamePrefix: "od-c-", Count: 2, Capacity: OnDemand, InstanceType: "m6i.xlarge", Zone: c},
		{NamePrefix: "spot-m5-a-", Count: 2, Capacity: Spot, InstanceType: "m5.xlarge", Zone: a},
		{NamePrefix: "spot-m6a-a-", Count: 2, Capacity: Spot, InstanceType: "m6a.xlarge", Zone: a},
		{NamePrefix: "spot-m5a-b-", Count: 2, Capacity: Spot, InstanceType: "m5a.xlarge", Zone: b},
		{NamePrefix: "spot-c6i-b-", Count: 2, Capacity: Spot, InstanceType: "c6i.xlarge", Zone: b},
		{NamePrefix: "spot-r5-b-", Count: 1, Capacity: Spot, InstanceType: "r5.xlarge", Zone: b},
		{NamePrefix: "spot-m5-c-", Count: 2, Capacity: Spot, InstanceType: "m5.xlarge", Zone: c},
		{NamePrefix: "spot-c5-c-", Count: 1, Capacity: Spot, InstanceType: "c5.2xlarge", Zone: c},
		{NamePrefix: "spot-m6i-c-", Count: 2, Capacity: Spot, InstanceType: "m6i.xlarge", Zone: c},
	})
}
