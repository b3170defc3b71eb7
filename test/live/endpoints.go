package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// Gap is a moment at which a Service had too few ready endpoints.
type Gap struct {
	Service      string
	Ready, Least int
	At           time.Time
}

func (g Gap) String() string {
	return fmt.Sprintf("Service %s has %d ready endpoints at %s, want at least %d", g.Service, g.Ready, g.At.Format("15:04:05.000"), g.Least)
}

// Serve creates a Service for the pods of an app and returns when at least `least` of its
// endpoints are ready. Until ctx is done, it then calls report for every change of the Service's
// EndpointSlices after which fewer endpoints are ready.
func Serve(ctx context.Context, client kubernetes.Interface, namespace, app string, least int, report func(Gap)) error {
	_, err := client.CoreV1().Services(namespace).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       v1.ServiceSpec{Selector: map[string]string{"app": app}, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	e := &endpoints{ctx: ctx, service: app, report: report, slices: map[string]map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=" + app }))
	if err := Observe(ctx, factory, factory.Discovery().V1().EndpointSlices().Informer(), e.observe); err != nil {
		return err
	}
	return Until(ctx, Soon, func() error { return e.require(least) })
}

// endpoints records the ready endpoints of a Service, from a watch.
type endpoints struct {
	ctx     context.Context // later changes belong to the cleanup and are ignored
	service string
	report  func(Gap)

	mu     sync.Mutex
	least  int
	slices map[string]map[types.UID]bool // the pods that are ready, by EndpointSlice
}

// require reports an error if fewer endpoints are ready now. Otherwise, every later moment with
// fewer ready endpoints is reported.
func (e *endpoints) require(least int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.ready(); n < least {
		return fmt.Errorf("%d endpoints of Service %s are ready, want %d", n, e.service, least)
	}
	e.least = least
	return nil
}

func (e *endpoints) observe(now time.Time, slice *discoveryv1.EndpointSlice, deleted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil {
		return
	}
	delete(e.slices, slice.Name)
	if !deleted {
		ready := map[types.UID]bool{}
		for _, endpoint := range slice.Endpoints {
			// nil means unknown, which consumers treat as ready.
			if endpoint.TargetRef != nil && (endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready) {
				ready[endpoint.TargetRef.UID] = true
			}
		}
		e.slices[slice.Name] = ready
	}
	if n := e.ready(); n < e.least {
		e.report(Gap{Service: e.service, Ready: n, Least: e.least, At: now})
	}
}

// ready returns the number of pods that are ready in at least one of the slices.
func (e *endpoints) ready() int {
	pods := map[types.UID]bool{}
	for _, ready := range e.slices {
		for pod := range ready {
			pods[pod] = true
		}
	}
	return len(pods)
}
