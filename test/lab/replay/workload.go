package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Amount is a count or a percentage of replicas.
type Amount struct {
	Count   int
	Percent int // 0: Count applies
	text    string
}

// ParseAmount parses a count such as "2" or a percentage such as "30%".
func ParseAmount(text string) (Amount, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 31) // as in the API; no sign
	if err != nil || percent && n > 100 {
		return Amount{}, fmt.Errorf("%q: expected a count such as 2, or a percentage such as 30%%", text)
	}
	if percent {
		return Amount{Percent: int(n), text: text}, nil
	}
	return Amount{Count: int(n), text: text}, nil
}

// Of returns the amount for a number of replicas: percentages are rounded up, and the result is at
// most the replicas.
func (a Amount) Of(replicas int) int {
	if a.Percent > 0 {
		return (replicas*a.Percent + 99) / 100
	}
	return min(a.Count, replicas)
}

func (a Amount) String() string { return a.text }

// Share returns the larger of the replica's shares of a node's CPU and memory.
func (s Service) Share(node Price) float64 {
	return max(float64(s.CPUMilli)/float64(node.CPUMilli), float64(s.MemoryMiB)/float64(node.MemoryMiB))
}

// Desired returns the desired replicas at the start of the window.
func (s Service) Desired() int { return s.Replicas[0].Count }

// selectServices selects and scales services. Replica counts are as recorded. The seed orders the
// services, and each is selected that fits into the remaining pods. CPU and memory of all replicas
// are divided by one number, so that the largest replica counts in the window request
// Settings.Demand of the largest spot capacity.
func (p *Plan) selectServices(traces []ServiceTrace, spotNodes int) error {
	traces = slices.Clone(traces)
	slices.SortFunc(traces, func(a, b ServiceTrace) int { return cmp.Compare(a.Name, b.Name) })
	stream(p.Settings.Seed, "services").Shuffle(len(traces), func(i, j int) { traces[i], traces[j] = traces[j], traces[i] })
	var selected []ServiceTrace
	pods := 0
	var cpu, memory float64
	for _, t := range traces {
		most := mostReplicas(window(t.Replicas, p.Window))
		// One service must not use all pods, so that enough services are selected.
		if len(selected) == p.Settings.Services || most == 0 || most > max(p.Settings.Pods/10, 1) || pods+most > p.Settings.Pods {
			continue
		}
		selected = append(selected, t)
		pods += most
		cpu += float64(most) * float64(t.CPUMilli)
		memory += float64(most) * float64(t.MemoryMiB)
	}
	if len(selected) == 0 {
		return fmt.Errorf("--pods-limit: %d: no service fits: expected at least ten times the replicas of a service, and more than 0 replicas",
			p.Settings.Pods)
	}
	room := p.Settings.Demand * float64(spotNodes)
	p.Divisor = max(cpu/float64(p.Node.CPUMilli), memory/float64(p.Node.MemoryMiB)) / room
	for _, t := range selected {
		s := Service{
			Name: "svc-" + objectName(t.Name), Replicas: window(t.Replicas, p.Window),
			CPUMilli:  max(1, int64(math.Round(float64(t.CPUMilli)/p.Divisor))),
			MemoryMiB: max(1, int64(math.Round(float64(t.MemoryMiB)/p.Divisor))),
		}
		if s.Share(p.Node) > 1 {
			return fmt.Errorf("a replica of service %q requests %d milli-CPUs and %d MiB and does not fit a node of %s: reduce --demand",
				s.Name, s.CPUMilli, s.MemoryMiB, p.Settings.InstanceType)
		}
		p.Services = append(p.Services, s)
	}
	slices.SortFunc(p.Services, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// mostReplicas returns the largest number of replicas.
func mostReplicas(steps []Step) int {
	most := 0
	for _, s := range steps {
		most = max(most, s.Count)
	}
	return most
}

// objectNameRule is what a name in an input file must be.
const objectNameRule = "a name with letters a to z or digits, of at most 40 bytes"

// isObjectName reports whether objectName returns a valid part of a name of Kubernetes.
func isObjectName(name string) bool { return objectName(name) != "" && len(name) <= 40 }

// objectName returns a name of the trace as a name of Kubernetes.
func objectName(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
}
