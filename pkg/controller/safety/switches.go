package safety

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
)

// SwitchesName is the name of the ConfigMap with the switches, in the namespace of the
// installation. Users create it with kubectl spot; no manifest contains it.
const SwitchesName = "spot-controller-switches"

// The keys of a Pause and a ForcedBreaker in the ConfigMap. Their values are YAML.
const pauseKey, breakerKey = "pause", "breaker"

// Switch is what all switches contain.
type Switch struct {
	// Until is when the switch ends; nil means that only a user ends it.
	Until *metav1.Time `json:"until,omitempty"`
	// By is the name of the user who set the switch, and Since is when. Both may be missing.
	By    string       `json:"by,omitempty"`
	Since *metav1.Time `json:"since,omitempty"`
}

func (s *Switch) ended(now time.Time) bool { return s.Until != nil && !now.Before(s.Until.Time) }

// String returns until when the switch is in effect, and who set it when.
func (s *Switch) String() string {
	text := "without an end"
	if s.Until != nil {
		text = "until " + s.Until.UTC().Format(time.RFC3339)
	}
	if s.Since != nil {
		text += ", since " + s.Since.UTC().Format(time.RFC3339)
	}
	if s.By != "" {
		text += ", by " + s.By
	}
	return text
}

// Pause stops removals, releases and new taints.
type Pause struct {
	Switch `json:",inline"`
	// Only contains the causes that are paused. Empty means all.
	Only []Cause `json:"only,omitempty"`
	// Message is for other users.
	Message string `json:"message,omitempty"`
}

// Stops reports whether a cause is paused; a nil Pause stops none. A pause of Reclaim includes
// Deadline: otherwise the pods would be deleted that could not be evicted in time.
func (p *Pause) Stops(c Cause) bool {
	return p != nil && (len(p.Only) == 0 || slices.Contains(p.Only, c) || c == Deadline && slices.Contains(p.Only, Reclaim))
}

func (p *Pause) String() string {
	text := "everything"
	if len(p.Only) > 0 {
		text = joined(p.Only)
	}
	text += " " + p.Switch.String()
	if p.Message != "" {
		text += ": " + refusal.Short(p.Message)
	}
	return text
}

// ForcedBreaker replaces the decision of the breaker. State is BreakerOpen or BreakerClosed.
type ForcedBreaker struct {
	Switch `json:",inline"`
	State  string `json:"state"`
}

// All values of ForcedBreaker.State.
const (
	BreakerOpen   = "Open"
	BreakerClosed = "Closed"
)

func (b *ForcedBreaker) String() string { return b.State + " " + b.Switch.String() }

// Open reports whether the breaker is open; nil if b is nil, and the controller decides.
func (b *ForcedBreaker) Open() *bool {
	if b == nil {
		return nil
	}
	return ptr.To(b.State == BreakerOpen)
}

// SwitchValues are the switches that are set.
type SwitchValues struct {
	Pause   *Pause
	Breaker *ForcedBreaker
}

// At returns the switches that have not ended.
func (v SwitchValues) At(now time.Time) SwitchValues {
	if v.Pause != nil && v.Pause.ended(now) {
		v.Pause = nil
	}
	if v.Breaker != nil && v.Breaker.ended(now) {
		v.Breaker = nil
	}
	return v
}

// ReadSwitches returns the switches in a ConfigMap. An invalid pause is a pause of everything, and
// an invalid breaker is open, without an end: a user may have meant any. In both cases the error
// names the key and what is wrong.
func ReadSwitches(configMap *v1.ConfigMap) (values SwitchValues, err error) {
	if text, ok := configMap.Data[breakerKey]; ok {
		b := &ForcedBreaker{}
		invalid := yaml.UnmarshalStrict([]byte(text), b)
		values.Breaker = b
		if invalid == nil && b.State != BreakerOpen && b.State != BreakerClosed {
			invalid = fmt.Errorf("state: invalid value %q: expected %s or %s", b.State, BreakerOpen, BreakerClosed)
		}
		if invalid != nil {
			values.Breaker = &ForcedBreaker{State: BreakerOpen}
			err = fmt.Errorf("key %s is invalid, so the breaker is open: %w", breakerKey, invalid)
		}
	}
	if text, ok := configMap.Data[pauseKey]; ok {
		p := &Pause{}
		invalid := yaml.UnmarshalStrict([]byte(text), p)
		if invalid == nil {
			invalid = CheckCauses(p.Only)
		}
		if invalid != nil {
			p = &Pause{Message: "key " + pauseKey + " is invalid, so everything is paused"}
			err = errors.Join(fmt.Errorf("%s: %w", p.Message, invalid), err)
		}
		values.Pause = p
	}
	return values, err
}

// CheckCauses returns an error that lists all causes if one is unknown.
func CheckCauses(causes []Cause) error {
	for _, c := range causes {
		if _, known := Rules[c]; !known {
			return fmt.Errorf("unknown reason %q: expected %s", c, joined(slices.Sorted(maps.Keys(Rules))))
		}
	}
	return nil
}

// Store replaces the content of a ConfigMap. A switch that is nil is removed.
func (v SwitchValues) Store(configMap *v1.ConfigMap) error {
	configMap.Data = map[string]string{}
	for key, value := range map[string]any{pauseKey: v.Pause, breakerKey: v.Breaker} {
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		if string(text) != "null\n" {
			configMap.Data[key] = string(text)
		}
	}
	return nil
}

// joined returns causes separated by commas.
func joined(causes []Cause) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(causes), " ", ", "), "[]")
}

// Paused returns why removals with the cause are paused; nil if they are not. A nil Paused pauses
// nothing.
type Paused func(Cause) error

// Stops reports whether removals with the cause are paused.
func (p Paused) Stops(c Cause) bool { return p != nil && p(c) != nil }

// Report sets the metric of the causes that are paused. A leader calls it in every round.
func (p Paused) Report() {
	for cause := range Rules {
		pausedCauses.WithLabelValues(string(cause)).Set(map[bool]float64{true: 1}[p.Stops(cause)])
	}
}

// SwitchWatcher knows the switches in the cluster. It is safe for concurrent use. Until it has read
// the switches, everything is paused: a new leader must not remove a pod before it knows that no
// user forbids it. Without a SwitchWatcher (nil), nothing is paused.
type SwitchWatcher struct {
	// Informer is the informer of the ConfigMap.
	Informer cache.SharedIndexInformer
	clock    clock.PassiveClock
	handler  cache.ResourceEventHandlerRegistration
	last     atomic.Pointer[observedSwitches] // never nil
}

// observedSwitches is a ConfigMap, empty if it does not exist, with what ReadSwitches returns.
type observedSwitches struct {
	configMap *v1.ConfigMap
	values    SwitchValues
	err       error
}

// NewSwitchWatcher returns a SwitchWatcher that has not started, for the ConfigMap in a namespace.
func NewSwitchWatcher(client kubernetes.Interface, namespace string, clock clock.PassiveClock) (*SwitchWatcher, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, SwitchesName).String()
		}))
	w := &SwitchWatcher{clock: clock, Informer: factory.Core().V1().ConfigMaps().Informer()}
	w.last.Store(&observedSwitches{})
	var err error
	w.handler, err = w.Informer.AddEventHandler(informer.Changes(func(_, after *v1.ConfigMap) {
		configMap := cmp.Or(after, &v1.ConfigMap{})
		values, err := ReadSwitches(configMap)
		w.last.Store(&observedSwitches{configMap, values, err})
		klog.Background().Info("Read switches", "data", configMap.Data, "err", err)
	}))
	return w, err
}

// Start implements manager.Runnable.
func (w *SwitchWatcher) Start(ctx context.Context) error {
	w.Informer.RunWithContext(ctx)
	return nil
}

// Unread returns an error until the switches are read.
func (w *SwitchWatcher) Unread() error {
	if w != nil && !w.handler.HasSynced() {
		return fmt.Errorf("ConfigMap %s has not been read yet", SwitchesName)
	}
	return nil
}

// Paused implements Paused.
func (w *SwitchWatcher) Paused(c Cause) error {
	if err := w.Unread(); err != nil || w == nil {
		return err
	}
	if pause := w.last.Load().values.At(w.clock.Now()).Pause; pause.Stops(c) {
		return fmt.Errorf("paused (%s): %s", c, pause)
	}
	return nil
}

// Breaker returns what a user has set the breaker to, nil if the breaker decides, and what is wrong
// with the ConfigMap.
func (w *SwitchWatcher) Breaker() (forced *ForcedBreaker, configMap *v1.ConfigMap, invalid error) {
	if w == nil {
		return nil, nil, nil
	}
	last := w.last.Load()
	return last.values.At(w.clock.Now()).Breaker, last.configMap, last.err
}
