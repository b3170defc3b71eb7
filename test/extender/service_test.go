package extender

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// container returns the extender's container in the manifest.
func container(t *testing.T) v1.Container {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(controlPlane.Root, "manifests/components/extender/deployment.yaml"))
	live.Must(t, err)
	var deployment appsv1.Deployment
	live.Must(t, yaml.UnmarshalStrict(data, &deployment))
	return deployment.Spec.Template.Spec.Containers[0]
}

// service simulates the Service spot-extender as implemented by kube-proxy. It forwards new
// connections to the ready endpoints in turn, and refuses them if no process listens there. Open
// connections stay with their endpoint.
type service struct {
	listener net.Listener

	mu    sync.Mutex
	ready []*lab.Extender
	// deleted are the replicas whose pods were deleted. They are not ready, even if their probes
	// succeed.
	deleted map[*lab.Extender]bool
	turn    int
}

// newService returns the Service of replicas that are ready. From then on the probe of the manifest
// determines their readiness. A kubelet reacts faster when a process has exited.
func newService(t *testing.T, replicas ...*lab.Extender) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	live.Must(t, err)
	s := &service{listener: listener, deleted: map[*lab.Extender]bool{}}
	t.Cleanup(func() { listener.Close() })
	for _, e := range replicas {
		s.add(t, e)
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go s.connect(from.(*net.TCPConn))
		}
	}()
	return s
}

// add adds a replica that is ready. From then on the probe of the manifest determines its
// readiness.
func (s *service) add(t *testing.T, e *lab.Extender) {
	t.Helper()
	readiness := container(t).ReadinessProbe
	if readiness.PeriodSeconds == 0 || readiness.TimeoutSeconds == 0 || readiness.FailureThreshold == 0 {
		t.Fatalf("the manifest does not set all fields of the probe, and this test does not know the defaults: %+v", readiness)
	}
	s.set(e, true)
	go s.probe(t.Context(), e, readiness)
}

func (s *service) address() string { return s.listener.Addr().String() }

// probe updates the readiness of a replica like a kubelet, until ctx is done.
func (s *service) probe(ctx context.Context, e *lab.Extender, p *v1.Probe) {
	ticker := time.NewTicker(time.Duration(p.PeriodSeconds) * time.Second)
	defer ticker.Stop()
	for failures := int32(0); ; {
		probing, cancel := context.WithTimeout(ctx, time.Duration(p.TimeoutSeconds)*time.Second)
		_, err := e.Get(probing, p.HTTPGet.Path)
		cancel()
		if err == nil {
			failures = 0
		} else {
			failures++
		}
		switch {
		case failures == 0:
			s.set(e, true)
		case failures >= p.FailureThreshold:
			s.set(e, false)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// set sets the readiness of a replica.
func (s *service) set(e *lab.Extender, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch i := slices.Index(s.ready, e); {
	case i < 0 && ready && !s.deleted[e]:
		s.ready = append(s.ready, e)
	case i >= 0 && !ready:
		s.ready = slices.Delete(s.ready, i, i+1)
	}
}

// delete removes a replica from the Service, like the deletion of its pod.
func (s *service) delete(e *lab.Extender) {
	s.mu.Lock()
	s.deleted[e] = true
	s.mu.Unlock()
	s.set(e, false)
}

// next returns the replica for the next connection; nil if none is ready.
func (s *service) next() *lab.Extender {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return nil
	}
	s.turn++
	return s.ready[s.turn%len(s.ready)]
}

func (s *service) connect(from *net.TCPConn) {
	defer from.Close()
	refuse := func() { _ = from.SetLinger(0) } // the connection was accepted, so it can only be reset, which the client also sees as an error
	replica := s.next()
	if replica == nil {
		refuse()
		return
	}
	to, err := net.Dial("tcp", replica.Address)
	if err != nil {
		refuse()
		return
	}
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
	_ = to.Close()
}
