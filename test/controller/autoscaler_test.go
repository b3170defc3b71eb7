package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// target is the target CPU utilization of the autoscalers, in percent. Kubernetes tolerates a
// deviation of a tenth.
const target = 50

// TestSurgeWithHorizontalPodAutoscaler: a HorizontalPodAutoscaler gets metrics every second. It
// also counts a released pod beside its replacement.
func TestSurgeWithHorizontalPodAutoscaler(t *testing.T) {
	s := start(t, live.Spot(1, 40)...)
	// A long surge continues for many periods of the autoscaler after the replacement is counted.
	long := func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 }
	tests := map[string]struct {
		replicas    int
		utilisation int
		edit        func(*appsv1.Deployment)
		want        int
	}{
		"at":         {2, 50, nil, 2},
		"above":      {2, 54, nil, 2},
		"below":      {2, 46, nil, 2},
		"single":     {1, 54, nil, 1},
		"at-long":    {2, 50, long, 2},
		"below-long": {2, 46, long, 2},
		// Two pods at 54 % are three pods at 36 %. That is outside the tolerance of the target.
		// 2.16 pods would run at 50 %, so the autoscaler scales to three.
		"above-long": {2, 54, long, 3},
	}
	// A pod counts when it has been ready for a window. With the window of metrics-server, a
	// short surge ends many seconds before its replacement counts. For a long surge, the window
	// is a quarter, so that the replacement counts soon.
	metrics := s.serveMetrics(func(app string) time.Duration {
		if tests[app].edit == nil {
			return 15 * time.Second
		}
		return 4 * time.Second
	})
	for app, test := range tests {
		metrics.load(app, float64(test.replicas*test.utilisation)/100)
		edits := []func(*appsv1.Deployment){live.Annotated(minOnDemand, "0")}
		if test.edit != nil {
			edits = append(edits, test.edit)
		}
		s.Deploy(app, test.replicas, edits...)
	}
	for app, test := range tests {
		s.Eventually(2*soon, s.complete(app, test.replicas))
		s.autoscale(app)
	}
	for app, test := range tests {
		s.Eventually(2*soon, s.readsUtilization(app, test.utilisation))
		if d := s.Deployment(app); d.Generation != 1 {
			t.Fatalf("%s was scaled before the first move: it has %d desired replicas", app, *d.Spec.Replicas)
		}
	}
	s.AddNodes(live.OnDemand(1, 40)...)
	s.StartController(interruptionsOnly())
	s.notice("spot-1", 2*time.Minute)
	s.Eventually(2*soon, s.empty("spot-1"))
	s.Eventually(soon, s.noPodReleased)
	for app, test := range tests {
		s.Eventually(soon, s.complete(app, test.want))
		s.Eventually(soon, s.readsUtilization(app, int(math.Floor(float64(test.replicas*test.utilisation)/float64(test.want)))))
		generation := int64(1) // incremented by each change of the replica count
		if test.want != test.replicas {
			generation = 2
		}
		if d := s.Deployment(app); d.Generation != generation {
			t.Errorf("the replicas of %s were changed %d times and are %d now; want %d times", app, d.Generation-1, *d.Spec.Replicas, generation-1)
		}
		for _, record := range s.Seen.Removed(app) {
			if method := record.Method(); method != "surged" {
				t.Errorf("%s was %s, want it surged", record.Name, method)
			}
		}
	}

	// The autoscaler must react to a load that requires a change. Otherwise this test could not
	// fail.
	metrics.load("at", 2)
	s.Eventually(soon, s.complete("at", 4))
}

// autoscale creates a HorizontalPodAutoscaler of a Deployment for CPU utilization.
func (s *scenario) autoscale(app string) {
	s.Helper()
	_, err := client.AutoscalingV2().HorizontalPodAutoscalers(s.Namespace).Create(s.Ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: app},
			MinReplicas:    ptr.To[int32](1), MaxReplicas: 10,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: v1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](target)},
			}}},
		},
	}, metav1.CreateOptions{})
	s.Must(err)
}

// readsUtilization returns a check that the app's autoscaler has last read this utilization, in
// percent.
func (s *scenario) readsUtilization(app string, want int) func() error {
	return func() error {
		hpa, err := client.AutoscalingV2().HorizontalPodAutoscalers(s.Namespace).Get(s.Ctx, app, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if current := hpa.Status.CurrentMetrics; len(current) != 1 || current[0].Resource == nil || ptr.Deref(current[0].Resource.Current.AverageUtilization, -1) != int32(want) {
			return fmt.Errorf("the autoscaler of %s has read %v, want %d %%; conditions %v", app, current, want, hpa.Status.Conditions)
		}
		return nil
	}
}

// metricsAPI is a mock of metrics-server. It serves the part of metrics.k8s.io that autoscalers
// request, with invented metrics. The load of an app is set in total, and its ready pods share it
// evenly.
type metricsAPI struct {
	// window returns the period that the metrics of an app cover.
	window func(app string) time.Duration

	mu    sync.Mutex
	loads map[string]float64
}

// load sets the number of CPUs that all pods of an app use together.
func (m *metricsAPI) load(app string, cpus float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads[app] = cpus
}

// serveMetrics makes the API server forward metrics.k8s.io to a metricsAPI until the test ends.
// window returns the period that the metrics of an app cover.
func (s *scenario) serveMetrics(window func(app string) time.Duration) *metricsAPI {
	s.Helper()
	m := &metricsAPI{window: window, loads: map[string]float64{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "metrics.k8s.io/v1beta1",
			APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: metav1.Verbs{"get", "list"}}},
		})
	})
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", m.list)
	server := httptest.NewTLSServer(mux)
	s.Cleanup(server.Close)

	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	s.Must(err)
	number, err := strconv.Atoi(port)
	s.Must(err)
	_, err = client.CoreV1().Services(s.Namespace).Create(s.Ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	s.Must(err)
	const name, services = "v1beta1.metrics.k8s.io", "/apis/apiregistration.k8s.io/v1/apiservices"
	spec, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": s.Namespace, "name": "metrics", "port": number},
		},
	})
	s.Must(err)
	rest := client.Discovery().RESTClient()
	s.Must(rest.Post().AbsPath(services).SetHeader("Content-Type", "application/json").Body(spec).Do(s.Ctx).Error())
	s.Cleanup(func() { // before the namespace is deleted: Kubernetes would list this API's objects in it
		if err := rest.Delete().AbsPath(services, name).Do(context.Background()).Error(); err != nil {
			s.Error(err)
		}
	})
	s.Eventually(soon, func() error { return rest.Get().AbsPath("/apis/metrics.k8s.io/v1beta1").Do(s.Ctx).Error() })
	return m
}

// list returns the metrics of the ready pods that the request selects.
func (m *metricsAPI) list(w http.ResponseWriter, r *http.Request) {
	pods, err := live.Pods(r.Context(), client, r.PathValue("namespace"), metav1.ListOptions{LabelSelector: r.URL.Query().Get("labelSelector")})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	ready := map[string]int{}
	for i := range pods {
		if live.IsReady(&pods[i]) {
			ready[pods[i].Labels["app"]]++
		}
	}
	list := metricsv1beta1.PodMetricsList{TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/v1beta1"}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range pods {
		pod := &pods[i]
		app := pod.Labels["app"]
		if !live.IsReady(pod) {
			continue
		}
		used := resource.NewMilliQuantity(int64(1000*m.loads[app])/int64(ready[app]), resource.DecimalSI)
		list.Items = append(list.Items, metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels},
			Timestamp:  metav1.Now(), Window: metav1.Duration{Duration: m.window(app)},
			Containers: []metricsv1beta1.ContainerMetrics{{Name: pod.Spec.Containers[0].Name, Usage: v1.ResourceList{v1.ResourceCPU: *used}}},
		})
	}
	answer(w, list)
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(object); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
