package controller

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/decoding"
)

// Read returns the configuration in a file (YAML or JSON), including defaults. It rejects other
// versions and unknown fields. The error contains every error with its path, value and expected
// format.
func Read(data []byte) (*SpotControllerConfiguration, error) {
	if err := decoding.OneDocument(data); err != nil {
		return nil, err
	}
	json, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	c := Default()
	decoded, err := decoding.Unmarshal(json, c)
	if err != nil {
		return nil, err
	}
	if err := c.checkVersion().ToAggregate(); err != nil {
		return nil, err
	}
	if err := decoding.Join(nil, decoded, c.validate()).ToAggregate(); err != nil {
		return nil, err
	}
	return c, nil
}

// checkVersion returns errors if the file has another kind or version. Other errors then mean
// nothing.
func (c *SpotControllerConfiguration) checkVersion() (errs field.ErrorList) {
	if c.Kind != Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), c.Kind, []string{Kind}))
	}
	if c.APIVersion != GroupVersion.String() {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), c.APIVersion, []string{GroupVersion.String()}))
	}
	return errs
}

// validate returns every invalid value.
func (c *SpotControllerConfiguration) validate() (errs field.ErrorList) {
	interruption, rebalance, gating := field.NewPath("interruption"), field.NewPath("rebalance"), field.NewPath("gating")
	positive(&errs, field.NewPath("requestsPerSecond"), c.RequestsPerSecond)
	positive(&errs, field.NewPath("concurrency"), c.Concurrency)
	positive(&errs, rebalance.Child("maxMoves"), c.Rebalance.MaxMoves)
	positive(&errs, interruption.Child("breaker", "minNodes"), c.Interruption.Breaker.MinNodes)
	if percent := c.Interruption.Breaker.MaxPercent; percent < 1 || percent > 100 {
		errs = append(errs, field.Invalid(interruption.Child("breaker", "maxPercent"), percent,
			"expected a whole number from 1 to 100; with 100 the breaker never opens"))
	}

	// A Lease is in whole seconds. The minimum leaves time for more than one renewal.
	if d := c.LeaderElection.LeaseDuration.Duration; d < 2*time.Second || d%time.Second != 0 {
		errs = append(errs, field.Invalid(field.NewPath("leaderElection", "leaseDuration"), d.String(),
			`expected whole seconds, 2 or more, such as "15s"`))
	}
	// The minimums prevent that a mistyped unit makes the controller delete pods, or move them back
	// and forth.
	for _, d := range []struct {
		path  *field.Path
		value metav1.Duration
		least time.Duration
	}{
		{interruption.Child("defaultNotice"), c.Interruption.DefaultNotice, 10 * time.Second},
		{interruption.Child("notReadyAfter"), c.Interruption.NotReadyAfter, 20 * time.Second},
		{interruption.Child("advisory", "timeLimit"), c.Interruption.Advisory.TimeLimit, 10 * time.Second},
		{interruption.Child("advisory", "pause"), c.Interruption.Advisory.Pause, time.Minute},
		{field.NewPath("migration", "surgeTimeout"), c.Migration.SurgeTimeout, 5 * time.Second},
		{rebalance.Child("pauseAfterInterruption"), c.Rebalance.PauseAfterInterruption, 0},
		{rebalance.Child("calmPeriod"), c.Rebalance.CalmPeriod, 0},
		{gating.Child("nodeStartup"), c.Gating.NodeStartup, 10 * time.Second},
	} {
		decoding.AtLeast(&errs, d.path, d.value, d.least)
	}
	decoding.Selector(&errs, interruption.Child("namespaceSelector"), c.Interruption.NamespaceSelector)
	decoding.Selector(&errs, rebalance.Child("namespaceSelector"), c.Rebalance.NamespaceSelector)
	words := []LocalStorage{KeepLocalStorage, MoveLocalStorage}
	decoding.OneOf(&errs, rebalance.Child("localStorage"), c.Rebalance.LocalStorage, words, words...)
	if c.Interruption.Advisory.Enabled && !c.Interruption.Enabled {
		errs = append(errs, field.Invalid(interruption.Child("advisory", "enabled"), true, "must be false if interruption.enabled is false"))
	}
	return append(append(errs, c.Limits.validate(field.NewPath("limits"))...), c.validateStrings()...)
}

func (c *SpotControllerConfiguration) validateStrings() (errs field.ErrorList) {
	metrics, health, gating := field.NewPath("metrics", "bindAddress"), field.NewPath("health", "bindAddress"), field.NewPath("gating")
	address(&errs, metrics, c.Metrics.BindAddress)
	address(&errs, health, c.Health.BindAddress)
	if c.Metrics == c.Health {
		errs = append(errs, field.Invalid(health, c.Health.BindAddress, "must differ from metrics.bindAddress"))
	}
	if webhook := c.Gating.Webhook.BindAddress; webhook != "" {
		path := gating.Child("webhook", "bindAddress")
		address(&errs, path, webhook)
		if webhook == c.Metrics.BindAddress || webhook == c.Health.BindAddress {
			errs = append(errs, field.Invalid(path, webhook, "must differ from metrics.bindAddress and health.bindAddress"))
		}
	}
	for i, owner := range c.Migration.EvictableOwners {
		groupKind(&errs, field.NewPath("migration", "evictableOwners").Index(i), owner)
	}
	for i, label := range c.Gating.Labels {
		labelKey(&errs, gating.Child("labels").Index(i), label)
	}
	if c.Gating.Enabled && len(c.Gating.Labels) == 0 {
		errs = append(errs, field.Invalid(gating.Child("labels"), "[]",
			"expected a node label that marks spot nodes, such as karpenter.sh/capacity-type"))
	}
	if c.Gating.SpotLabel != "" {
		labelKey(&errs, gating.Child("spotLabel"), c.Gating.SpotLabel)
	}
	if !slices.Contains([]string{".csv", ".yaml", ".yml"}, filepath.Ext(c.Costs.PriceFile)) && c.Costs.PriceFile != "" {
		errs = append(errs, field.Invalid(field.NewPath("costs", "priceFile"), c.Costs.PriceFile,
			`expected the path of a file that ends in .csv, .yaml or .yml, or ""`))
	}
	return errs
}

func positive(errs *field.ErrorList, path *field.Path, n int32) {
	if n < 1 {
		*errs = append(*errs, field.Invalid(path, n, "expected a whole number of 1 or more"))
	}
}

// groupKind checks the kind and the group of a controller. It rejects the name of a resource, which
// is in lower case and would never match.
func groupKind(errs *field.ErrorList, path *field.Path, text string) {
	kind, group, _ := strings.Cut(text, ".")
	if lower := strings.ToLower(kind); lower == "" || kind[0] == lower[0] || len(validation.IsDNS1035Label(lower)) > 0 ||
		len(validation.IsDNS1123Subdomain(group)) > 0 {
		*errs = append(*errs, field.Invalid(path, text, `expected a kind and its group, such as "CloneSet.apps.kruise.io"`))
	}
}

func labelKey(errs *field.ErrorList, path *field.Path, text string) {
	if fieldErrs := validation.IsQualifiedName(text); len(fieldErrs) > 0 {
		*errs = append(*errs, field.Invalid(path, text,
			fmt.Sprintf("expected the key of a node label, such as karpenter.sh/capacity-type: %s", strings.Join(fieldErrs, "; "))))
	}
}

func address(errs *field.ErrorList, path *field.Path, text string) {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		*errs = append(*errs, field.Invalid(path, text, `expected a host, which may be empty, and a port, such as ":8443"`))
	}
}

// MaxMovesPerHour bounds the size of the ledger of moves, which must be smaller than 1 MiB.
const MaxMovesPerHour = 2000

// maxStarts is how many starts of a period are examined for an end of the period: one per minute
// for more than a month.
const maxStarts = 50000

func (l *Limits) validate(path *field.Path) (errs field.ErrorList) {
	limit := func(path *field.Path, n int32) {
		if n < 0 || n > MaxMovesPerHour {
			errs = append(errs, field.Invalid(path, n, fmt.Sprintf("expected a whole number from 0 to %d; 0 forbids these moves", MaxMovesPerHour)))
		}
	}
	limit(path.Child("movesPerHour"), l.MovesPerHour)
	limit(path.Child("movesPerHourPerNamespace"), l.MovesPerHourPerNamespace)
	limit(path.Child("movesPerHourPerWorkload"), l.MovesPerHourPerWorkload)
	for _, reason := range slices.Sorted(maps.Keys(l.Reasons)) {
		key := path.Child("reasons").Key(reason)
		if !slices.Contains(LimitedReasons, reason) {
			errs = append(errs, field.Invalid(key, reason, "expected one of "+strings.Join(LimitedReasons, ", ")))
		}
		limit(key, l.Reasons[reason])
	}
	for i := range l.Schedules {
		errs = append(errs, l.Schedules[i].validate(path.Child("schedules").Index(i))...)
	}
	return errs
}

func (s *Schedule) validate(path *field.Path) (errs field.ErrorList) {
	duration := s.Duration.Duration
	if duration < time.Minute {
		errs = append(errs, field.Invalid(path.Child("duration"), duration.String(), `expected 1m or more, such as "8h"`))
	}
	starts, err := s.starts()
	if err != nil {
		return append(errs, field.Invalid(path.Child("schedule"), s.Schedule,
			`expected five fields of cron in UTC, such as "0 9 * * mon-fri": `+err.Error()))
	}
	start := starts.Next(time.Now().UTC())
	if start.IsZero() {
		return append(errs, field.Invalid(path.Child("schedule"), s.Schedule, "no date matches it"))
	}
	for range maxStarts {
		next := starts.Next(start)
		if next.IsZero() || next.Sub(start) > duration {
			return errs
		}
		start = next
	}
	return append(errs, field.Invalid(path.Child("duration"), duration.String(),
		"the period begins again before it ends, so it never ends: to stop these moves, set rebalance.returnToSpot to false"))
}

// starts returns the starts of the period.
func (s *Schedule) starts() (cron.Schedule, error) {
	if strings.HasPrefix(s.Schedule, "@every") { // from the time of the question
		return nil, errors.New("an interval has no fixed start")
	}
	return cron.ParseStandard("TZ=UTC " + s.Schedule)
}

// Until returns when the current period ends; zero if there is none at now. The Schedule must be
// valid.
func (s *Schedule) Until(now time.Time) (until time.Time) {
	starts, err := s.starts()
	if err != nil {
		return until
	}
	for start := starts.Next(now.UTC().Add(-s.Duration.Duration)); !start.IsZero() && !start.After(now); start = starts.Next(start) {
		until = start.Add(s.Duration.Duration)
	}
	return until
}
