package safety

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/informer"
)

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
