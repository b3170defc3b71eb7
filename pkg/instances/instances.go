// Package instances knows a dozen instance types: what a node of one offers, and its list price.
package instances

// Type is what a node of one type offers and costs.
type Type struct {
	// CPUMilli, MemoryMiB and Pods are what pods may use of a node (its allocatable resources).
	CPUMilli, MemoryMiB int64
	Pods                int
	// OnDemandUSD is the list price of an hour.
	OnDemandUSD float64
	// SpotSavingPercent is how much cheaper spot is, on average.
	SpotSavingPercent float64
}

// Types are a dozen types of AWS in us-east-1, by name. Sources: the AWS us-east-1 Linux on-demand list price; the saving over on-demand that
// the AWS Spot Advisor shows; allocatable resources as Karpenter's AWS provider publishes them.
var Types = map[string]Type{
	"c5.2xlarge":  {CPUMilli: 7910, MemoryMiB: 14162, Pods: 58, OnDemandUSD: 0.34, SpotSavingPercent: 56},
	"c5.xlarge":   {CPUMilli: 3920, MemoryMiB: 6584, Pods: 58, OnDemandUSD: 0.17, SpotSavingPercent: 56},
	"c6a.2xlarge": {CPUMilli: 7910, MemoryMiB: 14162, Pods: 58, OnDemandUSD: 0.306, SpotSavingPercent: 57},
	"c6i.xlarge":  {CPUMilli: 3920, MemoryMiB: 6584, Pods: 58, OnDemandUSD: 0.17, SpotSavingPercent: 60},
	"m5.large":    {CPUMilli: 1930, MemoryMiB: 6903, Pods: 29, OnDemandUSD: 0.096, SpotSavingPercent: 66},
	"m5.xlarge":   {CPUMilli: 3920, MemoryMiB: 14162, Pods: 58, OnDemandUSD: 0.192, SpotSavingPercent: 66},
	"m5a.xlarge":  {CPUMilli: 3920, MemoryMiB: 14162, Pods: 58, OnDemandUSD: 0.172, SpotSavingPercent: 54},
	"m6a.xlarge":  {CPUMilli: 3920, MemoryMiB: 14162, Pods: 58, OnDemandUSD: 0.1728, SpotSavingPercent: 57},
	"m6i.2xlarge": {CPUMilli: 7910, MemoryMiB: 29317, Pods: 58, OnDemandUSD: 0.384, SpotSavingPercent: 58},
	"m6i.xlarge":  {CPUMilli: 3920, MemoryMiB: 14162, Pods: 58, OnDemandUSD: 0.192, SpotSavingPercent: 55},
	"r5.xlarge":   {CPUMilli: 3920, MemoryMiB: 29317, Pods: 58, OnDemandUSD: 0.252, SpotSavingPercent: 69},
	"r6i.large":   {CPUMilli: 1930, MemoryMiB: 14481, Pods: 29, OnDemandUSD: 0.126, SpotSavingPercent: 68},
}

// Price is what an hour costs in US dollars for "spot" or "on-demand" capacity. The price of spot is an estimate, the list price
// less the average saving: the real one differs by zone and changes all the time.
func (t Type) Price(capacity string) float64 {
	if capacity == "spot" {
		return t.OnDemandUSD * (1 - t.SpotSavingPercent/100)
	}
	return t.OnDemandUSD
}
