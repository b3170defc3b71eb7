package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed assess.html.tmpl
var assessmentText string

var assessmentPage = template.Must(template.New("assessment").Funcs(template.FuncMap{
	"classes":   func() any { return classes },
	"orUnknown": OptionalDollars,
	"count":     OptionalCount,
	"join":      func(texts []string) string { return strings.Join(texts, "; ") },
	"list":      func(texts []string) string { return strings.Join(texts, ", ") },
	"workloads": func(n int) string { return Count(n, "workload", "workloads") },
}).Parse(assessmentText))

// classTexts describes a class.
type classTexts struct {
	Class Class
	// Title is the heading for a reader who does not know the product, and Reasons that of the
	// column of reasons; "" without such a column. Summary follows the number of workloads.
	Title, Reasons, Summary string
}

// classes has all classes, in the order in which they are shown.
var classes = []classTexts{
	{ReadyForSpot, "Can run on spot now", "", "can run on spot now"},
	{NeedsChange, "Can run on spot with a change", "change", "with a change"},
	{StaysOnDemand, "Stays on on-demand: the floor is all of its replicas", "", "on on-demand only"},
	{OptedIn, "Opted in already", "reason", "opted in"},
	{Infrastructure, "Infrastructure of the cluster", "", "are infrastructure"},
	{NotForSpot, "Should not run on spot", "reason", "should not"},
	{NotChecked, "Cannot be checked", "not known", "cannot be checked"},
}

// HTML returns the assessment as a page that needs no other file and no network. policy is the
// source of the policy. warnings are shown first.
func (a *Assessment) HTML(policy string, warnings []string, now time.Time) ([]byte, error) {
	data := struct {
		*Assessment
		Policy, Date       string
		Warnings, Unpriced []string
	}{Assessment: a, Policy: policy, Date: now.UTC().Format("2 January 2006 15:04 UTC"), Warnings: warnings, Unpriced: PoolCounts(a.Unpriced)}
	var out bytes.Buffer
	err := assessmentPage.Execute(&out, data)
	return out.Bytes(), err
}

// PoolCounts returns numbers of nodes by pool in words, such as "m5.large/a (2)", in the order of
// the pools.
func PoolCounts(nodes map[string]int) (all []string) {
	for _, pool := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, fmt.Sprintf("%s (%d)", pool, nodes[pool]))
	}
	return all
}

// Difference describes what the policy saves or costs per month.
func (a *Assessment) Difference() string {
	if a.Now == nil {
		return "unknown"
	}
	direction := "less"
	if *a.Then > *a.Now {
		direction = "more"
	}
	return dollars(math.Abs(*a.Now-*a.Then)) + " USD a month " + direction
}

// Summary counts the workloads by class, in words.
func (a *Assessment) Summary() string {
	parts := []string{}
	for _, c := range classes {
		if n := a.Classes[c.Class]; n > 0 || c.Class == ReadyForSpot {
			parts = append(parts, fmt.Sprintf("%d %s", n, c.Summary))
		}
	}
	return strings.Join(parts, ", ")
}

// OptionalCount returns a number, or "unknown" for nil.
func OptionalCount(n *int) string { return optional(n, strconv.Itoa) }

// OptionalDollars returns an amount, or "unknown" for nil.
func OptionalDollars(usd *float64) string { return optional(usd, dollars) }

func optional[T any](value *T, text func(T) string) string {
	if value == nil {
		return "unknown"
	}
	return text(*value)
}

func dollars(usd float64) string { return strconv.FormatFloat(usd, 'f', 2, 64) }
