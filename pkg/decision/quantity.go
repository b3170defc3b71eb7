package decision

import (
	"strconv"
	"strings"
)

// Quantity is a number of replicas, either a count or a percentage of the desired replicas. The
// zero value is the count 0.
type Quantity struct {
	n       int
	percent bool
}

// Count returns the Quantity of n replicas. n must not be negative.
func Count(n int) Quantity { return Quantity{n: n} }

// Percent returns the Quantity of p percent of the desired replicas. p must be within 0..100.
func Percent(p int) Quantity { return Quantity{n: p, percent: true} }

// ParseQuantity parses a count ("2") or a percentage from 0% to 100% ("30%"). It reports whether s
// is one.
func ParseQuantity(s string) (q Quantity, ok bool) {
	number, isPercent := strings.CutSuffix(s, "%")
	// Atoi would also accept "+2" and "-0", which are likely to be mistakes.
	n, err := strconv.Atoi(number)
	if err != nil || strings.ContainsAny(number, "+-") || isPercent && n > 100 {
		return Quantity{}, false
	}
	return Quantity{n: n, percent: isPercent}, true
}

// Of returns the number of replicas that q means for a workload of desired replicas. Percentages
// are rounded up, so that a floor is never lower than requested. A count may exceed desired.
func (q Quantity) Of(desired int) int {
	if !q.percent {
		return q.n
	}
	// Ceiling division that cannot overflow for any int32 replica count.
	return int((int64(q.n)*int64(desired) + 99) / 100)
}

// String returns q in the form that ParseQuantity reads.
func (q Quantity) String() string {
	if q.percent {
		return strconv.Itoa(q.n) + "%"
	}
	return strconv.Itoa(q.n)
}
