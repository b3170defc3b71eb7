package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// SchedulerName is the profile that the auditor checks.
const SchedulerName = "spot-aware-scheduler"

// args contains the fields of ReplicaSafetyArgs besides the settings. The scheduler rejects unknown
// fields; the auditor ignores them.
type args struct {
	UnlabeledNodes string            `json:"unlabeledNodes"`
	LabelGrace     *metav1.Duration  `json:"labelGrace"`
	Rules          []json.RawMessage `json:"rules"`
	CapacityLabels []capacityLabel   `json:"capacityLabels"`
	Signals        []signalArgs      `json:"signals"`
}

type signalArgs struct {
	Taint      string `json:"taint"`
	Condition  string `json:"condition"`
	Label      string `json:"label"`
	Annotation string `json:"annotation"`
	Mentions   string `json:"mentions"`
	Class      string `json:"class"`
	OnlySpot   bool   `json:"onlySpot"`
}

// PolicyFromSchedulerConfig reads the policy of profile SchedulerName from the
// KubeSchedulerConfiguration of the audited scheduler. A profile without ReplicaSafetyArgs has
// the defaults. A missing profile is an error.
func PolicyFromSchedulerConfig(data []byte) (*Policy, error) {
	var config struct {
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
			PluginConfig  []struct {
				Name string `json:"name"`
				Args any    `json:"args"`
			} `json:"pluginConfig"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	for _, profile := range config.Profiles {
		if profile.SchedulerName != SchedulerName {
			continue
		}
		for _, plugin := range profile.PluginConfig {
			if plugin.Name == "ReplicaSafety" {
				text, err := yaml.Marshal(plugin.Args)
				if err != nil {
					return nil, fmt.Errorf("ReplicaSafetyArgs: %w", err)
				}
				return PolicyFromArgs(text)
			}
		}
		return DefaultPolicy(), nil
	}
	return nil, fmt.Errorf("profiles: no profile has schedulerName %s", SchedulerName)
}

// DefaultPolicy returns the policy of a profile without ReplicaSafetyArgs.
func DefaultPolicy() *Policy {
	return &Policy{
		defaults: settings{
			minOnDemand: amount{n: 1}, fallbackAfter: 5 * time.Minute, rolloutRelief: 30 * time.Second,
			overflow: "Allow", exemptions: "Allow", annotations: "Allow", disruptionLimit: noLimit, onDisruptionLimit: "RequireOnDemand",
		},
		labelGrace:     30 * time.Second,
		capacityLabels: slices.Clone(builtinCapacityLabels),
		signals:        slices.Clone(builtinSignals),
	}
}

// PolicyFromArgs reads the policy from ReplicaSafetyArgs as YAML or JSON. Missing fields have
// their defaults.
func PolicyFromArgs(data []byte) (*Policy, error) {
	data, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, fmt.Errorf("ReplicaSafetyArgs: %w", err)
	}
	var in args
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("ReplicaSafetyArgs: %w", err)
	}
	policy := DefaultPolicy()
	policy.unlabeledSpot = in.UnlabeledNodes == "Spot"
	if in.LabelGrace != nil {
		policy.labelGrace = in.LabelGrace.Duration
	}
	over, err := textsIn(data)
	if err != nil {
		return nil, err
	}
	policy.defaults.override(over)
	for i, text := range in.Rules {
		r := rule{selector: labels.Everything()}
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
		if r.settings, err = textsIn(text); err != nil {
			return nil, fmt.Errorf("rules[%d].%w", i, err)
		}
		if r.PodSelector != nil {
			if r.selector, err = metav1.LabelSelectorAsSelector(r.PodSelector); err != nil {
				return nil, fmt.Errorf("rules[%d].podSelector: %w", i, err)
			}
		}
		policy.rules = append(policy.rules, r)
	}
	policy.capacityLabels = append(policy.capacityLabels, in.CapacityLabels...)
	for i, s := range in.Signals {
		out, err := s.signal()
		if err != nil {
			return nil, fmt.Errorf("signals[%d].%w", i, err)
		}
		policy.signals = append(policy.signals, out)
	}
	return policy, nil
}

// signal translates one entry. A key may have a value, as in "VMEventScheduled=True". Without a
// value, a condition must be True, and any other signal may have any value.
func (s signalArgs) signal() (signal, error) {
	for _, given := range []struct {
		kind        signalKind
		text, usual string // usual is the value if the entry has none
	}{{taint, s.Taint, anyValue}, {condition, s.Condition, "True"}, {label, s.Label, anyValue}, {annotation, s.Annotation, anyValue}} {
		if given.text == "" {
			continue
		}
		key, value, found := strings.Cut(given.text, "=")
		if !found {
			value = given.usual
		}
		return signal{kind: given.kind, key: key, value: value, mentions: s.Mentions, advisory: s.Class == "advisory", onlySpot: s.OnlySpot}, nil
	}
	return signal{}, fmt.Errorf("taint: expected one of taint, condition, label, annotation")
}
