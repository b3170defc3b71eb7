package controller

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/scalar"
)

// Settings are the converted values of a configuration. SpotControllerConfiguration documents them.
type Settings struct {
	DryRun                         bool
	RequestsPerSecond, Concurrency int
	LeaseDuration                  time.Duration
	MetricsAddress, HealthAddress  string

	Interruption                 bool
	DefaultNotice, NotReadyAfter time.Duration
	DeleteAtDeadline             bool
	Advisory                     bool
	AdvisoryLimit, AdvisoryPause time.Duration

	DrainAssist, DrainCordons, EvictionRequests bool

	SurgeTimeout    time.Duration
	EvictableOwners []schema.GroupKind

	Heal, MakeRoom, ReturnToSpot       bool
	MoveLocalStorage                   bool
	MaxMoves                           int
	PauseAfterInterruption, CalmPeriod time.Duration

	DeletionCosts bool

	Gating                    bool
	GatingLabels              []string
	GatingSpotLabel           string // empty: no pod requires spot
	NodeStartup               time.Duration
	BuyForReturn, HealRunning bool

	PriceFile string // empty: the built-in list prices

	// InterruptionNamespaces and RebalanceNamespaces select the namespaces whose pods may be moved;
	// nil selects all.
	InterruptionNamespaces, RebalanceNamespaces labels.Selector
}

// Read returns the settings of a configuration file (YAML or JSON), including defaults. It rejects
// other versions and unknown fields. Validation reports every error with its path, value and
// expected format; decoding stops at the first error.
func Read(data []byte) (*Settings, error) {
	if err := scalar.OneDocument(data); err != nil {
		return nil, err
	}
	if err := checkVersion(data); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(GroupVersion, &SpotControllerConfiguration{})
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(data, nil, nil)
	if runtime.IsStrictDecodingError(err) {
		return nil, fmt.Errorf("%w; expected each field of docs/reference/configuration.md at most once; "+
			"for a file of another release see docs/upgrading.md", err)
	}
	if err != nil {
		return nil, err
	}
	config := object.(*SpotControllerConfiguration) // the scheme contains no other kind
	config.SetDefaults()
	settings, errs := config.convert()
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return settings, nil
}

// checkVersion returns an error that names the fields kind and apiVersion if the file has another
// kind or version. The decoder's own error names neither field.
func checkVersion(data []byte) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(data, &meta); err != nil {
		return err
	}
	var errs field.ErrorList
	if meta.Kind != Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), meta.Kind, []string{Kind}))
	}
	if meta.APIVersion != GroupVersion.String() {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), meta.APIVersion, []string{GroupVersion.String()}))
	}
	return errs.ToAggregate()
}

// convert validates and converts in one pass, so that both always cover the same fields.
func (c *SpotControllerConfiguration) convert() (*Settings, field.ErrorList) {
	var errs field.ErrorList
	var (
		interruption = field.NewPath("interruption")
		advisory     = interruption.Child("advisory")
		rebalance    = field.NewPath("rebalance")
		gating       = field.NewPath("gating")
	)
	s := &Settings{
		DryRun:            scalar.Parse(&errs, field.NewPath("dryRun"), c.DryRun, scalar.Bool),
		RequestsPerSecond: scalar.Parse(&errs, field.NewPath("requestsPerSecond"), c.RequestsPerSecond, count),
		Concurrency:       scalar.Parse(&errs, field.NewPath("concurrency"), c.Concurrency, count),
		LeaseDuration:     scalar.Parse(&errs, field.NewPath("leaderElection", "leaseDuration"), c.LeaderElection.LeaseDuration, leaseDuration),
		MetricsAddress:    scalar.Parse(&errs, field.NewPath("metrics", "bindAddress"), c.Metrics.BindAddress, address),
		HealthAddress:     scalar.Parse(&errs, field.NewPath("health", "bindAddress"), c.Health.BindAddress, address),

		Interruption:     scalar.Parse(&errs, interruption.Child("enabled"), c.Interruption.Enabled, scalar.Bool),
		DefaultNotice:    scalar.Parse(&errs, interruption.Child("defaultNotice"), c.Interruption.DefaultNotice, atLeast(10*time.Second)),
		NotReadyAfter:    scalar.Parse(&errs, interruption.Child("notReadyAfter"), c.Interruption.NotReadyAfter, atLeast(20*time.Second)),
		DeleteAtDeadline: scalar.Parse(&errs, interruption.Child("deleteAtDeadline"), c.Interruption.DeleteAtDeadline, scalar.Bool),
		Advisory:         scalar.Parse(&errs, advisory.Child("enabled"), c.Interruption.Advisory.Enabled, scalar.Bool),
		AdvisoryLimit:    scalar.Parse(&errs, advisory.Child("timeLimit"), c.Interruption.Advisory.TimeLimit, atLeast(10*time.Second)),
		AdvisoryPause:    scalar.Parse(&errs, advisory.Child("pause"), c.Interruption.Advisory.Pause, atLeast(time.Minute)),

		DrainAssist:  scalar.Parse(&errs, field.NewPath("drain", "assist"), c.Drain.Assist, scalar.Bool),
		DrainCordons: scalar.Parse(&errs, field.NewPath("drain", "cordons"), c.Drain.Cordons, scalar.Bool),

		EvictionRequests: scalar.Parse(&errs, field.NewPath("drain", "evictionRequests"), c.Drain.EvictionRequests, scalar.Bool),

		SurgeTimeout: scalar.Parse(&errs, field.NewPath("migration", "surgeTimeout"), c.Migration.SurgeTimeout, atLeast(5*time.Second)),

		Heal:         scalar.Parse(&errs, rebalance.Child("heal"), c.Rebalance.Heal, scalar.Bool),
		MakeRoom:     scalar.Parse(&errs, rebalance.Child("makeRoom"), c.Rebalance.MakeRoom, scalar.Bool),
		ReturnToSpot: scalar.Parse(&errs, rebalance.Child("returnToSpot"), c.Rebalance.ReturnToSpot, scalar.Bool),
		MoveLocalStorage: scalar.Parse(&errs, rebalance.Child("localStorage"), c.Rebalance.LocalStorage,
			scalar.OneOf([]string{"Keep", "Move"}, false, true)),
		MaxMoves: scalar.Parse(&errs, rebalance.Child("maxMoves"), c.Rebalance.MaxMoves, count),
		PauseAfterInterruption: scalar.Parse(&errs, rebalance.Child("pauseAfterInterruption"),
			c.Rebalance.PauseAfterInterruption, scalar.Duration),
		CalmPeriod: scalar.Parse(&errs, rebalance.Child("calmPeriod"), c.Rebalance.CalmPeriod, scalar.Duration),

		DeletionCosts: scalar.Parse(&errs, field.NewPath("deletionCosts", "enabled"), c.DeletionCosts.Enabled, scalar.Bool),

		Gating:       scalar.Parse(&errs, gating.Child("enabled"), c.Gating.Enabled, scalar.Bool),
		NodeStartup:  scalar.Parse(&errs, gating.Child("nodeStartup"), c.Gating.NodeStartup, atLeast(10*time.Second)),
		BuyForReturn: scalar.Parse(&errs, gating.Child("buyForReturn"), c.Gating.BuyForReturn, scalar.Bool),
		HealRunning:  scalar.Parse(&errs, gating.Child("healRunning"), c.Gating.HealRunning, scalar.Bool),

		InterruptionNamespaces: selector(&errs, interruption.Child("namespaceSelector"), c.Interruption.NamespaceSelector),
		RebalanceNamespaces:    selector(&errs, rebalance.Child("namespaceSelector"), c.Rebalance.NamespaceSelector),
	}
	c.convertLists(s, &errs)
	if s.Advisory && c.Interruption.Enabled == "false" {
		errs = append(errs, field.Invalid(advisory.Child("enabled"), true, "must be false if interruption.enabled is false"))
	}
	if s.MetricsAddress != "" && s.MetricsAddress == s.HealthAddress {
		errs = append(errs, field.Invalid(field.NewPath("health", "bindAddress"), s.HealthAddress, "must differ from metrics.bindAddress"))
	}
	return s, errs
}

// convertLists converts the lists, and strings that may be empty.
func (c *SpotControllerConfiguration) convertLists(s *Settings, errs *field.ErrorList) {
	gating := field.NewPath("gating")
	for i, owner := range c.Migration.EvictableOwners {
		path := field.NewPath("migration", "evictableOwners").Index(i)
		s.EvictableOwners = append(s.EvictableOwners, scalar.Parse(errs, path, owner, groupKind))
	}
	for i, label := range c.Gating.Labels {
		s.GatingLabels = append(s.GatingLabels, scalar.Parse(errs, gating.Child("labels").Index(i), label, labelKey))
	}
	if s.Gating && len(c.Gating.Labels) == 0 {
		*errs = append(*errs, field.Invalid(gating.Child("labels"), "[]", "expected a node label that marks spot nodes, such as karpenter.sh/capacity-type"))
	}
	s.GatingSpotLabel = scalar.Parse(errs, gating.Child("spotLabel"), c.Gating.SpotLabel, orEmpty(labelKey))
	if file := scalar.ParseOptional(errs, field.NewPath("costs", "priceFile"), c.Costs.PriceFile, orEmpty(priceFile)); file != nil {
		s.PriceFile = *file
	}
}

// selector returns nil for a selector that selects everything.
func selector(errs *field.ErrorList, path *field.Path, s *metav1.LabelSelector) labels.Selector {
	if selector := scalar.Selector(errs, path, s); selector != nil && !selector.Empty() {
		return selector
	}
	return nil
}

func count(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New("expected a whole number of 1 or more")
	}
	return int(n), nil
}

// leaseDuration parses the duration of a Lease, which is in whole seconds. The minimum leaves time
// for more than one renewal.
func leaseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 2*time.Second || d%time.Second != 0 {
		return 0, errors.New(`expected whole seconds, 2 or more, such as "15s"`)
	}
	return d, nil
}

// atLeast returns a function that parses a duration. The minimum prevents that a mistyped unit
// makes the controller delete pods, or move them back and forth.
func atLeast(least time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < least {
			return 0, fmt.Errorf("expected a duration of %s or more", least)
		}
		return d, nil
	}
}

// groupKind parses the kind and the group of a controller. It rejects the name of a resource, which
// is in lower case and would never match.
func groupKind(text string) (schema.GroupKind, error) {
	kind, group, _ := strings.Cut(text, ".")
	if lower := strings.ToLower(kind); lower == "" || kind[0] == lower[0] || len(validation.IsDNS1035Label(lower)) > 0 ||
		len(validation.IsDNS1123Subdomain(group)) > 0 {
		return schema.GroupKind{}, errors.New(`expected a kind and its group, such as "CloneSet.apps.kruise.io"`)
	}
	return schema.GroupKind{Group: group, Kind: kind}, nil
}

func labelKey(text string) (string, error) {
	if mistakes := validation.IsQualifiedName(text); len(mistakes) > 0 {
		return "", fmt.Errorf("expected the key of a node label, such as karpenter.sh/capacity-type: %s", strings.Join(mistakes, "; "))
	}
	return text, nil
}

// orEmpty returns a function that also accepts the empty string, which scalar.Value stores as JSON.
func orEmpty(parse func(string) (string, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		if text == `""` {
			return "", nil
		}
		return parse(text)
	}
}

func priceFile(text string) (string, error) {
	if slices.Contains([]string{".csv", ".yaml", ".yml"}, filepath.Ext(text)) {
		return text, nil
	}
	return "", errors.New(`expected the path of a file that ends in .csv, .yaml or .yml, or ""`)
}

func address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", errors.New(`expected a host, which may be empty, and a port, such as ":8443"`)
	}
	return text, nil
}
