// Package pricing computes what nodes cost per hour, from price lists and node annotations. It also
// contains a dozen instance types, with the resources of their nodes and their list prices.
package pricing

// Type describes the resources and the price of a node of one instance type.
type Type struct {
	// CPUMilli, MemoryMiB and Pods are the allocatable resources of a node.
	CPUMilli, MemoryMiB int64
	Pods                int
	// OnDemandUSD is the list price per hour in US dollars.
	OnDemandUSD float64
	// SpotSavingPercent is the average saving of spot over on-demand, in percent.
	SpotSavingPercent float64
}

// Types contains a dozen AWS instance types in us-east-1, by name. Sources: the AWS us-east-1 Linux
// on-demand list price; the saving over on-demand in the AWS Spot Advisor; the allocatable
// resources that Karpenter's AWS provider publishes.
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

// Price returns the price per hour in US dollars of "spot" or "on-demand" capacity. The price of
// spot is an estimate: the list price less the average saving. The real price differs by zone and
// changes all the time.
func (t Type) Price(capacity string) float64 {
	if capacity == "spot" {
		return t.OnDemandUSD * (1 - t.SpotSavingPercent/100)
	}
	return t.OnDemandUSD
}
