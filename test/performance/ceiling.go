package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

// took is a histogram of kube-scheduler, which the bench reads.
var took = promauto.NewHistogramVec(prometheus.HistogramOpts{
	Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Time of a binding.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
}, []string{"result"}).WithLabelValues("scheduled")

// ceilingFlag is the first flag of the program that binds pods without a decision: this program is
// also that one.
const ceilingFlag = "--ceiling"

// isCeiling reports whether this process was started to bind pods without a decision.
func isCeiling() bool { return slices.Contains(os.Args, ceilingFlag) }

// runCeiling is the least that a scheduler does. It binds every pod to the next node, and decides
// nothing. It has the flags and the server of kube-scheduler that the lab needs, the informers of
// spot-aware-scheduler, and no limit of its requests per second.
func runCeiling() {
	flags := flag.NewFlagSet("ceiling", flag.ExitOnError)
	flags.Bool(strings.TrimLeft(ceilingFlag, "-"), true, "be this program")
	config := flags.String("config", "", "KubeSchedulerConfiguration; the program reads only clientConnection.kubeconfig")
	address := flags.String("bind-address", "127.0.0.1", "address of the server")
	port := flags.String("secure-port", "", "port of the server")
	inFlight := flags.Int("in-flight", 50, "number of concurrent bindings")
	withEvents := flags.Bool("events", false, "create an event for each binding, as kube-scheduler does")
	for _, unused := range []string{"authentication-kubeconfig", "authorization-kubeconfig"} {
		flags.String(unused, "", "not used")
	}
	frame.Main("ceiling", func(ctx context.Context) error {
		if err := flags.Parse(os.Args[1:]); err != nil {
			return err
		}
		b, err := newBinder(*config, *inFlight, *withEvents)
		if err != nil {
			return err
		}
		failed := make(chan error, 2)
		go func() { failed <- b.serve(net.JoinHostPort(*address, *port)) }()
		go func() { failed <- b.run(ctx) }()
		return <-failed
	})
}

// binder binds pods.
type binder struct {
	client   kubernetes.Interface
	inFlight int
	events   bool
	// ready is closed when the caches have synced, and asked when a client knows it.
	ready, asked chan struct{}

	nodes []string
	next  atomic.Int64
}

func newBinder(config string, inFlight int, events bool) (*binder, error) {
	data, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	var c struct {
		ClientConnection struct{ Kubeconfig string }
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("reading %s: %w", config, err)
	}
	connection, err := clientcmd.BuildConfigFromFlags("", c.ClientConnection.Kubeconfig)
	if err != nil {
		return nil, err
	}
	connection.QPS = -1
	connection.ContentType = runtime.ContentTypeProtobuf
	connection.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(connection)
	return &binder{client: client, inFlight: inFlight, events: events, ready: make(chan struct{}), asked: make(chan struct{})}, err
}

// run binds pods until ctx is done.
func (b *binder) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(b.client, 0)
	core, apps, storage := factory.Core().V1(), factory.Apps().V1(), factory.Storage().V1()
	for _, informer := range []cache.SharedIndexInformer{
		core.Namespaces().Informer(), core.Services().Informer(), core.ReplicationControllers().Informer(),
		core.PersistentVolumes().Informer(), core.PersistentVolumeClaims().Informer(),
		apps.Deployments().Informer(), apps.ReplicaSets().Informer(), apps.StatefulSets().Informer(), storage.StorageClasses().Informer(),
		storage.CSINodes().Informer(), storage.CSIDrivers().Informer(), storage.CSIStorageCapacities().Informer(),
		factory.Policy().V1().PodDisruptionBudgets().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
			return err
		}
	}
	nodes := core.Nodes().Lister()
	pending := make(chan *v1.Pod, 1<<20)
	if _, err := core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if pod := object.(*v1.Pod); pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0 {
			pending <- pod
		}
	}}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	all, err := nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, node := range all {
		b.nodes = append(b.nodes, node.Name)
	}
	close(b.ready)
	select { // the bench reads the CPU time when it knows that the program is ready
	case <-b.asked:
	case <-ctx.Done():
		return ctx.Err()
	}
	failed := make(chan error, b.inFlight)
	for range b.inFlight {
		go func() {
			for pod := range pending {
				if err := b.bind(ctx, pod); err != nil {
					failed <- err
				}
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bind binds a pod to the next node, and creates the event that kube-scheduler emits.
func (b *binder) bind(ctx context.Context, pod *v1.Pod) error {
	began := time.Now()
	node := b.nodes[int(b.next.Add(1))%len(b.nodes)]
	err := b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("binding %s: %w", pod.Name, err)
	}
	took.Observe(time.Since(began).Seconds())
	if !b.events {
		return nil
	}
	_, err = b.client.EventsV1().Events(pod.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("%s.%x", pod.Name, began.UnixNano())},
		EventTime:           metav1.NowMicro(),
		ReportingController: "ceiling", ReportingInstance: "ceiling-bench",
		Action: "Binding", Reason: "Scheduled", Type: v1.EventTypeNormal,
		Regarding: v1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Note: fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node),
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the event of %s: %w", pod.Name, err)
	}
	return nil
}

// serve serves what the lab reads of a scheduler.
func (b *binder) serve(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	mux, asked := http.NewServeMux(), sync.Once{}
	mux.Handle("/metrics", promhttp.Handler())
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/readyz", func(response http.ResponseWriter, _ *http.Request) {
		select {
		case <-b.ready:
			asked.Do(func() { close(b.asked) })
		default:
			http.Error(response, "the caches have not synced", http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{
		Addr: address, Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ReadHeaderTimeout: time.Minute,
	}
	return server.ListenAndServeTLS("", "")
}

// checkCeiling returns an error unless each pod was bound to the next node, without an event if the
// arm creates none.
func (b *bench) checkCeiling(ctx context.Context, a arm, m *Measurement) error {
	if m.Spread.Node.Max > 1+b.options.pods/len(b.nodes) {
		return fmt.Errorf("a node has %d pods of a workload more than another one: expected that all nodes take turns", m.Spread.Node.Max)
	}
	if a.hasEvents() {
		return nil
	}
	events, err := b.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: bindingEvents, Limit: 1})
	if err == nil && len(events.Items) > 0 {
		err = fmt.Errorf("event %s: expected none", events.Items[0].Name)
	}
	return err
}
