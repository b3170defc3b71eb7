package controller

import (
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// endpoints is what a watch has seen of the ready endpoints of a Service. It fails the test at once when there are too few.
type endpoints struct {
	t       testing.TB
	service string

	mu     sync.Mutex
	over   bool // the test has ended
	least  int
	slices map[string]map[types.UID]bool // the pods that are ready, by EndpointSlice
}

// serve makes a Service of the app, returns when so many endpoints are ready, and has the test fail at every later moment at which fewer
// are.
func (s *scenario) serve(app string, least int) {
	s.Helper()
	s.serveFor(s.T, app, least)
}

// serveFor is serve for another test than the scenario's.
func (s *scenario) serveFor(t testing.TB, app string, least int) {
	s.Helper()
	_, err := client.CoreV1().Services(s.namespace).Create(s.ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": app}, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	s.must(err)
	e := &endpoints{t: t, service: app, slices: map[string]map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=" + app }))
	_, err = factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { e.take(object.(*discoveryv1.EndpointSlice), false) },
		UpdateFunc: func(_, object any) { e.take(object.(*discoveryv1.EndpointSlice), false) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			e.take(object.(*discoveryv1.EndpointSlice), true)
		},
	})
	s.must(err)
	factory.Start(s.ctx.Done())
	s.Cleanup(func() { // before what the scenario made is removed
		e.mu.Lock()
		defer e.mu.Unlock()
		e.over = true
	})
	s.eventually(soon, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if n := e.ready(); n < least {
			return fmt.Errorf("Service %s has %d ready endpoints, want %d", app, n, least)
		}
		e.least = least
		return nil
	})
}

func (e *endpoints) take(slice *discoveryv1.EndpointSlice, deleted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	delete(e.slices, slice.Name)
	if !deleted {
		ready := map[types.UID]bool{}
		for _, endpoint := range slice.Endpoints {
			// nil means unknown, which consumers take as ready.
			if endpoint.TargetRef != nil && (endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready) {
				ready[endpoint.TargetRef.UID] = true
			}
		}
		e.slices[slice.Name] = ready
	}
	if n := e.ready(); n < e.least {
		e.t.Errorf("Service %s has %d ready endpoints at %s, and must have at least %d", e.service, n, time.Now().Format("15:04:05.000"), e.least)
	}
}

// ready counts the pods that are ready in any of the slices.
func (e *endpoints) ready() int {
	pods := map[types.UID]bool{}
	for _, ready := range e.slices {
		for pod := range ready {
			pods[pod] = true
		}
	}
	return len(pods)
}
