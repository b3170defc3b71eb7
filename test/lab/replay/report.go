package replay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Report is the content of report.json. Durations are seconds of the trace, and costs are US
// dollars for the measured part of the window.
type Report struct {
	// Partial reports that the replay was interrupted: an arm is missing or has Partial set.
	Partial bool `json:"partial"`
	// Problem is the reason for Partial.
	Problem string    `json:"problem,omitempty"`
	Created time.Time `json:"created"`
	// Machine describes where the replay ran, and Command how.
	Machine string `json:"machine"`
	Command string `json:"command"`

	Dataset      string  `json:"dataset"`
	Source       string  `json:"source"`
	Seed         uint64  `json:"seed"`
	FromSeconds  float64 `json:"fromSeconds"`
	WindowLength float64 `json:"windowSeconds"`

	NoticeSeconds       float64 `json:"noticeSeconds"`
	StartupSeconds      float64 `json:"startupSeconds"`
	ProvisioningSeconds float64 `json:"provisioningSeconds"`
	// Scale is the number of trace seconds per real second during notice and start-up, and
	// CalmScale while only the calm period is awaited.
	Scale     float64 `json:"scale"`
	CalmScale float64 `json:"calmScale"`

	InstanceType string  `json:"instanceType"`
	Node         Node    `json:"node"`
	Services     int     `json:"services"`
	Pods         int     `json:"pods"`
	SpotNodes    int     `json:"spotNodes"`
	Divisor      float64 `json:"requestDivisor"`
	VMsPerNode   int     `json:"vmsPerNode"`
	Demand       float64 `json:"demand"`
	// Gaps are the parts of the window for which nothing was recorded.
	Gaps   []string `json:"recordingGaps,omitempty"`
	Floor  string   `json:"floor"`
	Budget string   `json:"budget"`
	// Victims are the removed nodes in the order of their removal: the same in every arm.
	Victims []string `json:"victims"`

	// ScaledSettings are the settings that differ from the shipped ones.
	ScaledSettings []ScaledSetting `json:"scaledSettings"`
	Pools          []PoolNote      `json:"pools,omitempty"`

	Arms  []ArmResult `json:"arms"`
	Bound Bound       `json:"bound"`
}

// Node is the shape and price of all nodes.
type Node struct {
	CPUMilli    int64   `json:"cpuMilli"`
	MemoryMiB   int64   `json:"memoryMiB"`
	OnDemandUSD float64 `json:"onDemandUSDPerHour"`
	SpotUSD     float64 `json:"spotUSDPerHour"`
}

// ArmResult is the result of an arm.
type ArmResult struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Partial reports that the arm ended before the end of the window. Problem is the reason.
	Partial bool   `json:"partial"`
	Problem string `json:"problem,omitempty"`
	// Broken lists the guarantees that the arm makes and did not meet.
	Broken []string `json:"broken,omitempty"`
	// RealSeconds is how long the arm ran, and SkippedSeconds the trace time that was skipped.
	RealSeconds    float64 `json:"realSeconds"`
	SkippedSeconds float64 `json:"skippedSeconds"`
	// CalmPeriods describes the calm periods that the controller awaited. Nil without any.
	CalmPeriods *CalmPeriods `json:"calmPeriods,omitempty"`
	Result
}

// CalmPeriods compares calm periods in the trace with the configured one. The controller measures
// them in real time. A period is short if pods start or nodes have notice during most of it,
// because the clock is slow then.
type CalmPeriods struct {
	Count           int     `json:"count"`
	Short           int     `json:"short"`
	ShortestSeconds float64 `json:"shortestSeconds"`
}

// newCalmPeriods compares calm periods with the configured one. It returns nil without any.
func newCalmPeriods(periods []time.Duration, configured time.Duration) *CalmPeriods {
	if len(periods) == 0 {
		return nil
	}
	c := &CalmPeriods{Count: len(periods), ShortestSeconds: slices.Min(periods).Seconds()}
	for _, p := range periods {
		if p < configured*9/10 {
			c.Short++
		}
	}
	return c
}

// Result contains the measurements of an arm.
type Result struct {
	// Figures are the totals of all services. The largest loss and the longest times belong to one
	// service.
	Figures
	// MeasuredSeconds is the measured part of the window.
	MeasuredSeconds float64 `json:"measuredSeconds"`
	// NodeHoursCost is the cost of all nodes, including idle ones.
	NodeHoursCost     float64 `json:"nodeHoursCost"`
	SpotNodeHours     float64 `json:"spotNodeHours"`
	SpotUsedNodeHours float64 `json:"spotUsedNodeHours"`
	OnDemandNodeHours float64 `json:"onDemandNodeHours"`
	// Gap are the reasons for a PodHoursCost above the bound.
	Gap Gap `json:"gap"`
	// Services are sorted by OutageSeconds, the longest first.
	Services []ServiceResult `json:"services"`
	Series   []Point         `json:"series"`
}

// ServiceResult contains the figures of a service.
type ServiceResult struct {
	Name string `json:"name"`
	Figures
}

// Figures are the figures of a service or of an arm.
type Figures struct {
	// PodHoursCost is the cost of the pods: the larger of the shares of CPU and memory of their
	// nodes, while they are bound. Unused capacity costs nothing.
	PodHoursCost float64 `json:"podHoursCost"`
	// SpotShare is the share of the pods' node-hours on spot, from 0 to 1.
	SpotShare float64 `json:"spotShare"`
	// ReadyShare is ready by desired replicas, weighted by time, from 0 to 1.
	ReadyShare float64 `json:"readyShare"`
	// Outages counts the times at which a service lost its last ready replica while it wanted some,
	// and OutageSeconds is their duration, summed over services.
	Outages              int     `json:"outages"`
	OutageSeconds        float64 `json:"outageSeconds"`
	LongestOutageSeconds float64 `json:"longestOutageSeconds"`
	// BelowFloorSeconds is the time with fewer ready replicas than the floor, and
	// BelowBudgetSeconds with fewer than the PodDisruptionBudget requires, summed over services.
	// Replicas that have not been ready since a scale-up do not count as missing. With a floor of
	// 1, BelowFloorSeconds equals OutageSeconds.
	BelowFloorSeconds  float64 `json:"belowFloorSeconds"`
	BelowBudgetSeconds float64 `json:"belowBudgetSeconds"`
	// ExposedSeconds is the time in which the loss of all spot nodes would have violated the floor,
	// summed over services.
	ExposedSeconds        float64 `json:"exposedSeconds"`
	LongestExposedSeconds float64 `json:"longestExposedSeconds"`
	// LargestLoss is the largest number of replicas of one service lost within ten seconds.
	LargestLoss int `json:"largestLoss"`
	// Evictions counts the pods that the eviction API removed. Moves also counts the pods that the
	// controller deleted at a deadline. Surges counts the evictions after the replacement was
	// ready. LostPods ran on a node when it vanished.
	Evictions         int `json:"evictions"`
	Moves             int `json:"moves"`
	Surges            int `json:"surges"`
	DeletedAtDeadline int `json:"deletedAtDeadline"`
	LostPods          int `json:"lostPods"`
	// PendingSeconds is the time that pods were not bound, summed over pods.
	PendingSeconds float64 `json:"pendingSeconds"`
}

// Point is a part of the window, from Seconds to the next point. All services are summed.
type Point struct {
	Seconds float64 `json:"seconds"`
	// Desired, SpotNodes and SpotUsed are means. SpotUsed is in nodes. LowestReady is the lowest
	// number of ready replicas.
	Desired      float64 `json:"desired"`
	LowestReady  float64 `json:"lowestReady"`
	SpotNodes    float64 `json:"spotNodes"`
	SpotUsed     float64 `json:"spotUsed"`
	PodHoursCost float64 `json:"podHoursCost"`
}

// exposedTolerance is the longest time that a service may be exposed without a broken guarantee. It
// is the shipped fallbackAfter.
const exposedTolerance = 5 * time.Minute

// broken returns the guarantees of the floor that a result violates.
func (r Result) broken() []string {
	var problems []string
	add := func(violated bool, format string, args ...any) {
		if violated {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	add(r.Outages > 0, "%d outages of %.0f s in total", r.Outages, r.OutageSeconds)
	add(r.BelowFloorSeconds > 0, "%.0f s below the floor", r.BelowFloorSeconds)
	add(r.LongestExposedSeconds > exposedTolerance.Seconds(), "the loss of all spot would have violated the floor of a service for %.0f s",
		r.LongestExposedSeconds)
	return problems
}

// Arm returns the result of an arm by name; nil if there is none.
func (r *Report) Arm(name string) *ArmResult {
	for i := range r.Arms {
		if r.Arms[i].Name == name {
			return &r.Arms[i]
		}
	}
	return nil
}

// NewReport returns a report of a plan without arms.
func NewReport(p *Plan, in Inputs) *Report {
	r := &Report{
		Partial: true, Dataset: p.Dataset, Source: in.Source, Pools: in.Pools,
		Seed: p.Settings.Seed, FromSeconds: p.Window.From.Seconds(), WindowLength: p.Window.Length.Seconds(),
		NoticeSeconds: p.Settings.Notice.Seconds(), StartupSeconds: p.Settings.Startup.Seconds(),
		ProvisioningSeconds: p.Settings.Provisioning.Seconds(),
		InstanceType:        p.Settings.InstanceType,
		Node: Node{
			CPUMilli: p.Node.CPUMilli, MemoryMiB: p.Node.MemoryMiB, OnDemandUSD: p.Node.OnDemandUSD, SpotUSD: p.Node.SpotUSD,
		},
		Services: len(p.Services), Divisor: p.Divisor, VMsPerNode: p.Settings.VMsPerNode, Demand: p.Settings.Demand,
		Gaps: p.recordingGaps(in), Floor: p.Floor.String(), Budget: p.Budget.String(),
		Victims: []string{}, Arms: []ArmResult{}, ScaledSettings: []ScaledSetting{}, Bound: p.Bound(p.Window.Length),
	}
	for _, s := range p.SpotCount() {
		r.SpotNodes = max(r.SpotNodes, s.Count)
	}
	for _, s := range p.Services {
		r.Pods += mostReplicas(s.Replicas)
	}
	for _, e := range p.Timeline(true) {
		if e.Kind == NodeDown {
			r.Victims = append(r.Victims, e.Node.Name)
		}
	}
	return r
}

// PrepareFolder creates the output folder and checks that files can be written to it.
func PrepareFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	probe, err := os.CreateTemp(folder, ".probe-*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := probe.Close(); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return os.Remove(probe.Name())
}

// Write writes report.json, report.md and its plots to the folder. Each file is replaced at once.
func (r *Report) Write(folder string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("writing report.json: %w", err)
	}
	if err := replaceFile(filepath.Join(folder, "report.json"), append(data, '\n')); err != nil {
		return err
	}
	plots, err := writePlots(folder, "", r.plotFiles(r.Arms))
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(folder, "report.md"), []byte(r.Markdown(plots)))
}

// replaceFile writes a file at once: a reader observes the old or the new content.
func replaceFile(path string, content []byte) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	err := os.WriteFile(temporary, content, 0o644)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// ReadReport reads report.json, or the report.json in a folder.
func ReadReport(path string) (*Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "report.json")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if r.Dataset == "" {
		return nil, fmt.Errorf("reading %s: it has no dataset: expected a report.json of spot-lab replay", path)
	}
	for _, a := range r.Arms {
		if armIndex(a.Name) < 0 {
			return nil, fmt.Errorf("reading %s: unknown arm %q: expected an arm of spot-lab replay", path, a.Name)
		}
	}
	return &r, nil
}
