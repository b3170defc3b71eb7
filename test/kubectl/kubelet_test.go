package kubectl

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// kubelet runs the controller in each pod of the Deployment spot-controller, and serves the logs of
// these pods. KWOK does the other work of kubelets.
type kubelet struct {
	*live.Scenario
	start func() (*lab.Process, error)

	mu        sync.Mutex
	processes map[string]*lab.Process // by the names of pods
}

// runKubelet runs a kubelet until the test ends.
func runKubelet(s *live.Scenario, start func() (*lab.Process, error)) *kubelet {
	s.Helper()
	k := &kubelet{Scenario: s, start: start, processes: map[string]*lab.Process{}}
	logs := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		p := k.processes[path.Base(path.Dir(r.URL.Path))] // /containerLogs/NAMESPACE/POD/CONTAINER
		k.mu.Unlock()
		if p == nil {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, p.Log)
	}))
	s.Cleanup(logs.Close)
	host, port, err := net.SplitHostPort(logs.Listener.Addr().String())
	s.Must(err)
	number, err := strconv.ParseInt(port, 10, 32)
	s.Must(err)
	nodes, err := s.Client.CoreV1().Nodes().List(s.Ctx, metav1.ListOptions{})
	s.Must(err)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: host}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
		_, err := s.Client.CoreV1().Nodes().UpdateStatus(s.Ctx, node, metav1.UpdateOptions{})
		s.Must(err)
	}
	ctx, end := context.WithCancel(s.Ctx)
	var running sync.WaitGroup
	running.Go(func() { k.run(ctx) })
	s.Cleanup(func() {
		end()
		running.Wait()
	})
	return k
}

func (k *kubelet) run(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		pods, err := k.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, controllers)
		if err != nil {
			continue
		}
		live := map[string]bool{}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.DeletionTimestamp == nil && pod.Status.Phase == v1.PodRunning {
				live[pod.Name] = true
			}
		}
		if err := k.sync(live); err != nil && ctx.Err() == nil {
			k.Errorf("running the controller in a pod: %v", err)
		}
	}
}

// controllers selects the pods of the Deployment spot-controller.
var controllers = metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=spot-controller"}

// sync stops the processes of pods that do not live, and starts a process in each other pod.
func (k *kubelet) sync(live map[string]bool) error {
	for name, p := range k.running() {
		if !live[name] {
			_ = p.Stop()
			k.mu.Lock()
			delete(k.processes, name)
			k.mu.Unlock()
		}
	}
	for name := range live {
		if k.running()[name] == nil {
			p, err := k.start()
			if err != nil {
				return err
			}
			k.mu.Lock()
			k.processes[name] = p
			k.mu.Unlock()
		}
	}
	return nil
}

// running returns the processes by the names of their pods.
func (k *kubelet) running() map[string]*lab.Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.processes)
}
