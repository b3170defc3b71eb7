package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// SchedulerName is the profile that the auditor checks.
const SchedulerName = "spot-aware-scheduler"

// args contains the fields of ReplicaSafetyArgs. The scheduler rejects unknown fields; the
// auditor ignores them.
type args struct {
	overrides
	UnlabeledNodes string             `json:"unlabeledNodes"`
	LabelGrace     *metav1.Duration   `json:"labelGrace"`
	Rules          []ruleArgs         `json:"rules"`
	CapacityLabels []capacityLabelArg `json:"capacityLabels"`
	Signals        []signalArgs       `json:"signals"`
}

type overrides struct {
	MinOnDemand       *intstr.IntOrString `json:"minOnDemand"`
	MaxPerPool        *intstr.IntOrString `json:"maxPerPool"`
	WhenUnsatisfiable string              `json:"whenUnsatisfiable"`
	FallbackAfter     string              `json:"fallbackAfter"`
	RolloutRelief     string              `json:"rolloutRelief"`
	Overflow          string              `json:"overflow"`
	Exemptions        string              `json:"exemptions"`
	DisruptionLimit   *intstr.IntOrString `json:"disruptionLimit"`
	OnDisruptionLimit string              `json:"onDisruptionLimit"`
	AnnotationPolicy  string              `json:"annotationPolicy"`
}

type ruleArgs struct {
	overrides
	Name            string                `json:"name"`
	Namespaces      []string              `json:"namespaces"`
	PodSelector     *metav1.LabelSelector `json:"podSelector"`
	PriorityClasses []string              `json:"priorityClasses"`
	MinPriority     *int32                `json:"minPriority"`
	QOSClasses      []string              `json:"qosClasses"`
	OwnerKinds      []string              `json:"ownerKinds"`
}

type capacityLabelArg struct {
	Key      string   `json:"key"`
	Spot     []string `json:"spot"`
	OnDemand []string `json:"onDemand"`
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
		defaults:       settings{minOnDemand: amount{n: 1}, fallbackAfter: 5 * time.Minute, rolloutRelief: 30 * time.Second, overflow: "Allow", exemptions: "Allow", annotations: "Allow", disruptionLimit: noLimit, onDisruptionLimit: "RequireOnDemand"},
		labelGrace:     30 * time.Second,
		capacityLabels: slices.Clone(builtinCapacityLabels),
		signals:        slices.Clone(builtinSignals),
	}
}

// PolicyFromArgs reads the policy from ReplicaSafetyArgs as YAML or JSON. Missing fields have
// their defaults.
func PolicyFromArgs(data []byte) (*Policy, error) {
	var in args
	if err := yaml.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("ReplicaSafetyArgs: %w", err)
	}
	policy := DefaultPolicy()
	policy.unlabeledSpot = in.UnlabeledNodes == "Spot"
	if in.LabelGrace != nil {
		policy.labelGrace = in.LabelGrace.Duration
	}
	over, err := in.rule()
	if err != nil {
		return nil, err
	}
	over.override(&policy.defaults)
	for i, r := range in.Rules {
		out, err := r.rule()
		if err != nil {
			return nil, fmt.Errorf("rules[%d].%w", i, err)
		}
		out.selector = labels.Everything()
		if r.PodSelector != nil {
			if out.selector, err = metav1.LabelSelectorAsSelector(r.PodSelector); err != nil {
				return nil, fmt.Errorf("rules[%d].podSelector: %w", i, err)
			}
		}
		out.namespaces, out.priorityClasses, out.minPriority = r.Namespaces, r.PriorityClasses, r.MinPriority
		out.qosClasses, out.ownerKinds = r.QOSClasses, r.OwnerKinds
		policy.rules = append(policy.rules, out)
	}
	for _, label := range in.CapacityLabels {
		policy.capacityLabels = append(policy.capacityLabels, capacityLabel{key: label.Key, spot: label.Spot, onDemand: label.OnDemand})
	}
	for i, s := range in.Signals {
		out, err := s.signal()
		if err != nil {
			return nil, fmt.Errorf("signals[%d].%w", i, err)
		}
		policy.signals = append(policy.signals, out)
	}
	return policy, nil
}

func (o overrides) rule() (rule, error) {
	r := rule{overflow: o.Overflow, exemptions: o.Exemptions, annotations: o.AnnotationPolicy, onDisruptionLimit: o.OnDisruptionLimit}
	if o.DisruptionLimit != nil {
		limit, err := parseLimit(o.DisruptionLimit.String())
		if err != nil {
			return rule{}, fmt.Errorf("disruptionLimit: %w", err)
		}
		r.disruptionLimit = &limit
	}
	if o.MinOnDemand != nil {
		a, err := parseAmount(o.MinOnDemand.String())
		if err != nil {
			return rule{}, fmt.Errorf("minOnDemand: %w", err)
		}
		r.minOnDemand = &a
	}
	if o.MaxPerPool != nil {
		a, err := parsePoolCap(o.MaxPerPool.String())
		if err != nil {
			return rule{}, fmt.Errorf("maxPerPool: %w", err)
		}
		r.maxPerPool = &a
	}
	if o.WhenUnsatisfiable != "" {
		anyway, err := parseAnyway(o.WhenUnsatisfiable)
		if err != nil {
			return rule{}, fmt.Errorf("whenUnsatisfiable: %w", err)
		}
		r.anyway = &anyway
	}
	if o.FallbackAfter != "" {
		after, err := parseFallback(o.FallbackAfter)
		if err != nil {
			return rule{}, fmt.Errorf("fallbackAfter: %w", err)
		}
		r.fallbackAfter = &after
	}
	if o.RolloutRelief != "" {
		after, err := parseFallback(o.RolloutRelief)
		if err != nil {
			return rule{}, fmt.Errorf("rolloutRelief: %w", err)
		}
		r.rolloutRelief = &after
	}
	return r, nil
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
