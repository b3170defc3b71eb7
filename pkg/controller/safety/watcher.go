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

// SwitchWatcher knows the switches in the cluster. It implements Switches. It is safe for
// concurrent use. Until it has read the switches, everything is paused: a new leader must not
// remove a pod before it knows that no user forbids it.
type SwitchWatcher struct {
	clock    clock.PassiveClock
	informer cache.SharedIndexInformer
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
	w := &SwitchWatcher{clock: clock, informer: factory.Core().V1().ConfigMaps().Informer()}
	w.last.Store(&observedSwitches{})
	var err error
	w.handler, err = w.informer.AddEventHandler(informer.Changes(func(_, after *v1.ConfigMap) {
		w.observe(cmp.Or(after, &v1.ConfigMap{}))
	}))
	return w, err
}

// Start implements manager.Runnable.
func (w *SwitchWatcher) Start(ctx context.Context) error {
	w.informer.RunWithContext(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (w *SwitchWatcher) NeedLeaderElection() bool { return false }

// Informer returns the informer of the ConfigMap.
func (w *SwitchWatcher) Informer() cache.SharedIndexInformer { return w.informer }

func (w *SwitchWatcher) observe(configMap *v1.ConfigMap) {
	values, err := ReadSwitches(configMap)
	w.last.Store(&observedSwitches{configMap, values, err})
	klog.Background().Info("Read switches", "pause", values.Pause, "breaker", values.Breaker, "err", err)
}

// Unread returns an error until the switches are read.
func (w *SwitchWatcher) Unread() error {
	if !w.handler.HasSynced() {
		return fmt.Errorf("ConfigMap %s has not been read yet", SwitchesName)
	}
	return nil
}

// Invalid returns the ConfigMap and what is wrong with it; nil if nothing is.
func (w *SwitchWatcher) Invalid() (*v1.ConfigMap, error) {
	last := w.last.Load()
	return last.configMap, last.err
}

// Paused implements Switches.
func (w *SwitchWatcher) Paused(c Cause) (message string, paused bool) {
	if err := w.Unread(); err != nil {
		return err.Error(), true
	}
	if pause := w.last.Load().values.At(w.clock.Now()).Pause; pause.Stops(c) {
		return pause.String(), true
	}
	return "", false
}

// Breaker implements Switches.
func (w *SwitchWatcher) Breaker() (forced *bool) {
	return w.last.Load().values.At(w.clock.Now()).Breaker.Open()
}

// ReportPaused sets the metric of the causes that are paused. A leader calls it in every round.
func ReportPaused(switches Switches) {
	for cause := range Rules {
		value := 0.0
		if _, paused := switches.Paused(cause); paused {
			value = 1
		}
		pausedCauses.WithLabelValues(string(cause)).Set(value)
	}
}
