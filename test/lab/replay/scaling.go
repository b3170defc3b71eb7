package replay

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ScaledSetting is a setting of a program that differs from the shipped configuration.
type ScaledSetting struct {
	Name string `json:"name"`
	// Trace is the value in trace time, and Real the value that the program gets.
	Trace string `json:"trace"`
	Real  string `json:"real"`
}

// Scales are the numbers of trace seconds per real second.
type Scales struct {
	// Busy applies while a notice, a start-up or a move is in progress.
	Busy float64
	// Calm applies while the cluster only waits for the calm period to end, if nothing else has
	// happened since its start.
	Calm float64
}

func (s Scales) validate() error {
	if !(s.Busy >= 1 && s.Busy <= 1000) {
		return fmt.Errorf("--scale: %g: must be between 1 and 1000", s.Busy)
	}
	if !(s.Calm >= s.Busy && s.Calm <= 100000) {
		return fmt.Errorf("--calm-scale: %g: must be between --scale and 100000", s.Calm)
	}
	return nil
}

// realTime returns a duration of the trace in real time.
func realTime(d time.Duration, scale float64) time.Duration { return time.Duration(float64(d) / scale) }

// realWait returns a wait of the controller in real time. After an event, the driver first gives
// the controller quietReaction at the busy rate, in case it can act at once. The rest of the wait
// elapses at the calm rate.
func (s Scales) realWait(d time.Duration) time.Duration {
	reaction := time.Duration(float64(quietReaction) * s.Busy)
	return min(realTime(d, s.Busy), quietReaction+realTime(max(0, d-reaction), s.Calm))
}

// timeSetting is a time in the configuration of a program.
type timeSetting struct {
	path string
	// shipped is the default, if the shipped file does not have the setting.
	shipped string
	// scaled returns the value in real time. Nil: it elapses at Scales.Busy.
	scaled func(s Scales, d time.Duration) time.Duration
	// least is the smallest value that the program accepts.
	least time.Duration
}

// The paths of the times for which the controller waits before it returns replicas to spot.
const pausePath, calmPeriodPath = "rebalance.pauseAfterInterruption", "rebalance.calmPeriod"

// controllerTimes are the scaled times of the controller. Times that only cover the latency of
// programs, such as the lease of the leader election, are not scaled, because the programs do not
// run faster.
var controllerTimes = []timeSetting{
	{path: "interruption.defaultNotice", shipped: "2m", least: 10 * time.Second},
	{path: "migration.surgeTimeout", shipped: "2m", least: 5 * time.Second},
	{path: pausePath, shipped: "5m", scaled: Scales.realWait},
	{path: calmPeriodPath, shipped: "10m", scaled: Scales.realWait},
	{path: "gating.nodeStartup", shipped: "3m", least: 10 * time.Second},
}

// schedulerTimes are the scaled times of the scheduler, as plugin and argument.
var schedulerTimes = []timeSetting{
	{path: "ReplicaSafety.fallbackAfter", shipped: "5m"},
	{path: "ReplicaSafety.rolloutRelief", shipped: "30s"},
	{path: "SpotPreference.riskHalfLife", shipped: "1h", scaled: func(s Scales, d time.Duration) time.Duration { return realTime(d, s.Calm) }},
}

// findTime returns the setting with this path; zero if it is not a duration.
func findTime(settings []ScaledSetting, path string) scaledTime {
	var t scaledTime
	for _, s := range settings {
		if s.Name == path {
			t.trace, _ = time.ParseDuration(s.Trace)
			t.real, _ = time.ParseDuration(s.Real)
		}
	}
	return t
}

// Overrides are settings by path, in trace time, that replace the shipped ones.
type Overrides map[string]string

// ParseOverrides parses arguments such as "rebalance.maxMoves=20".
func ParseOverrides(flag string, arguments []string) (Overrides, error) {
	overrides := Overrides{}
	for _, argument := range arguments {
		path, value, ok := strings.Cut(argument, "=")
		if !ok || !strings.Contains(path, ".") {
			return nil, fmt.Errorf("--%s: %q: expected SECTION.NAME=VALUE", flag, argument)
		}
		overrides[path] = value
	}
	return overrides, nil
}

// edit scales the times of a configuration and applies the overrides. section returns the object
// that contains the settings of a section. It returns the changed settings, in the order of times
// and then of overrides by path.
func edit(times []timeSetting, overrides Overrides, scales Scales, section func(name string) map[string]any) []ScaledSetting {
	var changed []ScaledSetting
	isTime := map[string]bool{}
	for _, t := range times {
		isTime[t.path] = true
		name, key, _ := strings.Cut(t.path, ".")
		object := section(name)
		text := t.shipped
		if value, ok := object[key].(string); ok {
			text = value
		}
		if value, ok := overrides[t.path]; ok {
			text = value
		}
		scaled := text
		if d, err := time.ParseDuration(text); err == nil { // otherwise "never" or an error of the program
			value := realTime(d, scales.Busy)
			if t.scaled != nil {
				value = t.scaled(scales, d)
			}
			scaled = max(value.Round(time.Millisecond), t.least).String()
		}
		object[key] = scaled
		changed = append(changed, ScaledSetting{Name: t.path, Trace: text, Real: scaled})
	}
	for _, path := range sortedKeys(overrides) {
		if !isTime[path] {
			name, key, _ := strings.Cut(path, ".")
			section(name)[key] = decode(overrides[path])
			changed = append(changed, ScaledSetting{Name: path, Trace: overrides[path], Real: overrides[path]})
		}
	}
	return changed
}

// decode returns the value of an override: a number, a boolean or a string.
func decode(text string) any {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	return value
}

// requestRate is the shipped requestsPerSecond of the controller.
const requestRate = 200

// editController scales the configuration of the controller. The rate of its requests is scaled,
// too: otherwise a mass reclaim would take longer in trace time than in a real cluster.
func editController(config map[string]any, overrides Overrides, scales Scales) []ScaledSetting {
	rate := int(requestRate * scales.Busy)
	config["requestsPerSecond"] = rate
	changed := edit(controllerTimes, overrides, scales, func(name string) map[string]any {
		object, ok := config[name].(map[string]any)
		if !ok {
			object = map[string]any{}
			config[name] = object
		}
		return object
	})
	return append(changed, ScaledSetting{Name: "requestsPerSecond", Trace: fmt.Sprint(requestRate), Real: fmt.Sprint(rate)})
}

// podBackoff is the longest wait of a scheduler before it retries a pod, in real seconds. The
// default of 10 s is a minute or more in trace time.
const podBackoff = 1

// editScheduler scales the configuration of this project's scheduler.
func editScheduler(config map[string]any, overrides Overrides, scales Scales) []ScaledSetting {
	config["podMaxBackoffSeconds"] = podBackoff
	profiles, _ := config["profiles"].([]any)
	first := map[string]any{}
	if len(profiles) > 0 {
		first, _ = profiles[0].(map[string]any)
	}
	return edit(schedulerTimes, overrides, scales, func(name string) map[string]any {
		plugins, _ := first["pluginConfig"].([]any)
		for _, p := range plugins {
			if plugin, _ := p.(map[string]any); plugin["name"] == name {
				args, ok := plugin["args"].(map[string]any)
				if !ok {
					args = map[string]any{}
					plugin["args"] = args
				}
				return args
			}
		}
		args := map[string]any{}
		first["pluginConfig"] = append(plugins, map[string]any{"name": name, "args": args})
		return args
	})
}

// gracePeriod is the grace period of pods in trace time: the default of Kubernetes.
const gracePeriod = 30 * time.Second

// evictionRetry is the trace time after which a refused eviction is retried, as kubectl drain does.
const evictionRetry = 5 * time.Second

// graceSeconds returns the scaled grace period of pods, in whole seconds.
func graceSeconds(scales Scales) int64 {
	return max(1, int64(realTime(gracePeriod, scales.Busy).Round(time.Second)/time.Second))
}

// commonSettings are the scaled settings that do not belong to a program of this project.
func commonSettings(p *Plan, scales Scales) []ScaledSetting {
	seconds := func(name string, trace time.Duration, real string) ScaledSetting {
		return ScaledSetting{Name: name, Trace: trace.String(), Real: real}
	}
	return []ScaledSetting{
		seconds("notice", p.Settings.Notice, realTime(p.Settings.Notice, scales.Busy).String()),
		seconds("start-up of a pod", p.Settings.Startup, realTime(p.Settings.Startup, scales.Busy).String()),
		seconds("provisioning of a node", p.Settings.Provisioning, "skipped if nothing else happens"),
		seconds("removal of an empty on-demand node", p.Settings.EmptyAfter, "skipped if nothing else happens"),
		seconds("terminationGracePeriodSeconds", gracePeriod, fmt.Sprintf("%ds; the simulated kubelets end a pod at once", graceSeconds(scales))),
		seconds("retry of a refused eviction", evictionRetry, realTime(evictionRetry, scales.Busy).String()),
		{Name: "podMaxBackoffSeconds of all schedulers", Trace: "10s, not scaled", Real: fmt.Sprintf("%ds", podBackoff)},
	}
}
