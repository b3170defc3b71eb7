package safety_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// watcher is a SwitchWatcher in an API server that may refuse its requests.
type watcher struct {
	*safety.SwitchWatcher
	t      *testing.T
	client *fake.Clientset
	clock  *clocktesting.FakePassiveClock
}

func newWatcher(t *testing.T, objects ...runtime.Object) *watcher {
	w := &watcher{t: t, client: fake.NewClientset(objects...), clock: clocktesting.NewFakePassiveClock(now)}
	var err error
	if w.SwitchWatcher, err = safety.NewSwitchWatcher(w.client, "spot", w.clock); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *watcher) start() {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error)
	go func() { ended <- w.Start(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
}

// startWatching returns when changes reach the watcher: the fake client loses earlier ones.
func (w *watcher) startWatching() {
	watching := make(chan struct{})
	began := sync.OnceFunc(func() { close(watching) })
	w.client.PrependWatchReactor("configmaps", func(action clienttesting.Action) (bool, watch.Interface, error) {
		defer began()
		configMaps, err := w.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		return true, configMaps, err
	})
	w.start()
	<-watching
}

// until waits until the causes of the function paused are paused, and these only.
func (w *watcher) until(want string) {
	w.t.Helper()
	got := ""
	if err := wait.PollUntilContextTimeout(w.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		got = paused(safety.Paused(w.Paused).Stops)
		return got == want, nil
	}); err != nil {
		w.t.Fatalf("paused %q, want %q", got, want)
	}
}

func configMapWith(pause string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "spot", Name: safety.SwitchesName}, Data: map[string]string{"pause": pause}}
}

const all = "reclaim deadline heal pending"

// Everything is paused until the switches are read. Then the ConfigMap decides.
func TestSwitchWatcher(t *testing.T) {
	w := newWatcher(t)
	w.until(all)
	if err := w.Unread(); err == nil || !strings.Contains(err.Error(), safety.SwitchesName) {
		t.Errorf("before the switches are read: %v", err)
	}
	w.startWatching()
	w.until("")
	if err := w.Unread(); err != nil {
		t.Error(err)
	}
	configMaps := w.client.CoreV1().ConfigMaps("spot")
	change := func(_ *v1.ConfigMap, err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	change(configMaps.Create(t.Context(), configMapWith("only: [heal]"), metav1.CreateOptions{}))
	w.until("heal")
	change(configMaps.Update(t.Context(), configMapWith("until: 2026-11-27T13:00:00Z\nby: jane\nmessage: wait"), metav1.UpdateOptions{}))
	w.until(all)
	if err := w.Paused(safety.Heal); err == nil || err.Error() != "paused (heal): everything until 2026-11-27T13:00:00Z, by jane: wait" {
		t.Errorf("message %q", err)
	}
	w.clock.SetTime(now.Add(time.Hour))
	w.until("")
	change(configMaps.Update(t.Context(), configMapWith("end: x"), metav1.UpdateOptions{}))
	w.until(all)
	if _, _, err := w.Breaker(); err == nil {
		t.Error("the invalid pause is not reported")
	}
	if err := configMaps.Delete(t.Context(), safety.SwitchesName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("")
	if _, _, err := w.Breaker(); err != nil {
		t.Errorf("after the deletion: %v", err)
	}
	open := configMapWith("")
	open.Data = map[string]string{"breaker": "state: Open"}
	change(configMaps.Create(t.Context(), open, metav1.CreateOptions{}))
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		forced, _, _ := w.Breaker()
		return forced != nil && forced.State == safety.BreakerOpen, nil
	}); err != nil {
		t.Error("the breaker is not open")
	}
	w.until("")
}

// Without the right to read the switches, everything is paused.
func TestSwitchesForbidden(t *testing.T) {
	w := newWatcher(t)
	asked := make(chan struct{}, 100)
	w.client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked <- struct{}{}
		return true, nil, apierrors.NewForbidden(v1.Resource("configmaps"), safety.SwitchesName, errors.New("no right"))
	})
	w.start()
	<-asked
	<-asked
	w.until(all)
}
