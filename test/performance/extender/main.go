// Command extender measures how long spot-extender takes to answer kube-scheduler in a large cluster: the built binary, on a real API
// server with thousands of nodes, asked over HTTPS by several clients at a time, each for pods of its own workloads, one after the other,
// as kube-scheduler asks (nodeCacheCapable, the names of all nodes in every request). The clients run on the same machine.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// podsPerWorkload is how many pods each workload has.
const podsPerWorkload = 20

type options struct {
	nodes, clients, pods int
	limit                time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.nodes, "nodes", 5000, "number of nodes, 70 % of them spot")
	flag.IntVar(&o.clients, "clients", 16, "number of clients that ask at the same time")
	flag.IntVar(&o.pods, "pods", 500, "number of pods that each client asks about: a filter and a prioritize each")
	flag.DurationVar(&o.limit, "limit", 0, "fail when the 99th percentile of a verb is longer (0: do not)")
	flag.Parse()
	if flag.NArg() > 0 || o.nodes < 10 || o.clients < 1 || o.pods < podsPerWorkload {
		fmt.Fprintf(os.Stderr, "extender: expected flags only, at least 10 nodes, 1 client and %d pods\n", podsPerWorkload)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "extender:", err)
		os.Exit(1)
	}
}

// times are how long the answers to one verb took.
type times struct{ filter, prioritize []time.Duration }

func run(ctx context.Context, o options) (err error) {
	cp, err := lab.Start(ctx, lab.Options{NoControllers: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	fmt.Fprintf(os.Stderr, "creating %d nodes\n", o.nodes)
	names, err := createNodes(ctx, cp, o.nodes)
	if err != nil {
		return err
	}
	e, err := cp.StartExtender(ctx, lab.ExtenderOptions{})
	if err != nil {
		return err
	}
	workloads, err := createWorkloads(ctx, cp, o.clients*(o.pods+podsPerWorkload-1)/podsPerWorkload)
	if err != nil {
		return err
	}
	if err := untilLeading(ctx, cp, e, names, workloads[:1]); err != nil {
		return err
	}
	before, err := cpuSeconds(e.PID)
	if err != nil {
		return err
	}
	began := time.Now()
	all := make([]times, o.clients)
	var group errgroup.Group
	for i := range o.clients {
		mine := workloads[i*len(workloads)/o.clients : (i+1)*len(workloads)/o.clients]
		c, err := newClient(cp, e.Address, names)
		if err != nil {
			return err
		}
		group.Go(func() (err error) {
			all[i], err = c.ask(ctx, mine, o.pods)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := cpuSeconds(e.PID)
	if err != nil {
		return err
	}
	return report(o, all, took, after-before)
}

// untilLeading returns when the extender answers.
func untilLeading(ctx context.Context, cp *lab.ControlPlane, e *lab.Extender, names []string, workloads []*appsv1.ReplicaSet) error {
	c, err := newClient(cp, e.Address, names)
	if err != nil {
		return err
	}
	return cp.WaitFor(ctx, "the extender to lead", func(ctx context.Context) error {
		_, err := c.ask(ctx, workloads, 1)
		return err
	})
}

// report prints the figures.
func report(o options, all []times, took time.Duration, cpu float64) error {
	requests := 2 * o.clients * o.pods
	fmt.Printf("%d nodes, %d clients, %d requests, %d cores: %.0f requests/s, %.2f ms of the extender's CPU each\n\n",
		o.nodes, o.clients, requests, runtime.NumCPU(), float64(requests)/took.Seconds(), 1000*cpu/float64(requests))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "verb\tp50 ms\tp90 ms\tp99 ms\tmax ms")
	var slow error
	for _, verb := range []struct {
		name string
		of   func(times) []time.Duration
	}{{"filter", func(t times) []time.Duration { return t.filter }}, {"prioritize", func(t times) []time.Duration { return t.prioritize }}} {
		var took []time.Duration
		for _, t := range all {
			took = append(took, verb.of(t)...)
		}
		slices.Sort(took)
		quantile := func(q float64) time.Duration { return took[min(len(took)-1, int(q*float64(len(took))))] }
		fmt.Fprintf(table, "%s", verb.name)
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			fmt.Fprintf(table, "\t%.2f", float64(quantile(q).Microseconds())/1000)
		}
		fmt.Fprintln(table)
		if p99 := quantile(0.99); o.limit > 0 && p99 > o.limit {
			slow = errors.Join(slow, fmt.Errorf("%s: 99 of 100 answers took up to %s, want %s at most", verb.name, p99, o.limit))
		}
	}
	return errors.Join(table.Flush(), slow)
}

func cpuSeconds(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return stat.CPUTime(), err
}

func createNodes(ctx context.Context, cp *lab.ControlPlane, n int) ([]string, error) {
	specs := make([]lab.NodeSpec, n)
	names := make([]string, n)
	for i := range specs {
		capacity := lab.Spot
		if i%10 < 3 {
			capacity = lab.OnDemand
		}
		names[i] = fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/250, i%250)
		specs[i] = lab.NodeSpec{
			Name: names[i], Capacity: capacity, InstanceType: fmt.Sprintf("type-%d", i/3%4), Zone: fmt.Sprintf("zone-%c", 'a'+i%3),
			CPU: "32", Memory: "128Gi",
		}
	}
	return names, cp.CreateNodes(ctx, specs...)
}

// createWorkloads creates ReplicaSets, of which nobody makes pods.
func createWorkloads(ctx context.Context, cp *lab.ControlPlane, n int) ([]*appsv1.ReplicaSet, error) {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return nil, err
	}
	sets := make([]*appsv1.ReplicaSet, n)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range sets {
		group.Go(func() (err error) {
			replicas, labels := int32(podsPerWorkload), map[string]string{"app": fmt.Sprintf("app-%d", i)}
			sets[i], err = client.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Annotations: map[string]string{"spot-aware-scheduler.io/min-on-demand": "30%"}},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return sets, group.Wait()
}

// podSpec is that of an ordinary pod, as long as they are.
func podSpec() v1.PodSpec {
	spec := v1.PodSpec{SchedulerName: "spot-aware-scheduler", ServiceAccountName: "default"}
	for _, name := range []string{"app", "proxy"} {
		c := v1.Container{Name: name, Image: "registry.example/team/" + name + ":v1.2.3"}
		for i := range 12 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SOME_SETTING_%d", i), Value: "a value of some length, as they are"})
		}
		spec.Containers = append(spec.Containers, c)
	}
	return spec
}

// client asks as kube-scheduler does.
type client struct {
	http    *http.Client
	address string
	// rest is the request after its pod.
	rest []byte
	// body and answer are the memory of requests.
	body   []byte
	answer bytes.Buffer
}

func newClient(cp *lab.ControlPlane, address string, names []string) (*client, error) {
	files, err := cp.ExtenderCertificates()
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(files.ClientCert, files.ClientKey)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	return &client{
		http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: roots, ServerName: lab.ExtenderName, Certificates: []tls.Certificate{pair},
		}}},
		address: address, rest: slices.Concat([]byte(`,"Nodes":null,"NodeNames":`), list, []byte("}")),
	}, nil
}

// ask asks about so many pods of the workloads.
func (c *client) ask(ctx context.Context, workloads []*appsv1.ReplicaSet, pods int) (took times, err error) {
	for n := range pods {
		set := workloads[n/podsPerWorkload]
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, n), UID: types.UID(fmt.Sprintf("%s-%d", set.UID, n)),
				Labels:          set.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			},
			Spec: set.Spec.Template.Spec,
		}
		data, err := json.Marshal(pod)
		if err != nil {
			return took, err
		}
		c.body = append(append(append(c.body[:0], `{"Pod":`...), data...), c.rest...)
		answer, filtered, err := c.post(ctx, "filter")
		if err != nil {
			return took, err
		}
		if n%50 == 0 {
			var result extenderv1.ExtenderFilterResult
			if err := json.Unmarshal(answer, &result); err != nil || result.Error != "" || len(*result.NodeNames) == 0 {
				return took, fmt.Errorf("/filter answered %.200s, %w", answer, err)
			}
		}
		answer, prioritized, err := c.post(ctx, "prioritize")
		if err != nil {
			return took, err
		}
		if !bytes.HasPrefix(answer, []byte(`[{"Host":`)) {
			return took, fmt.Errorf("/prioritize answered %.200s", answer)
		}
		took.filter, took.prioritize = append(took.filter, filtered), append(took.prioritize, prioritized)
	}
	return took, nil
}

// post sends the body, and returns the answer and how long it took until all of it was there.
func (c *client) post(ctx context.Context, verb string) ([]byte, time.Duration, error) {
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.address+"/"+verb, bytes.NewReader(c.body))
	if err != nil {
		return nil, 0, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	c.answer.Reset()
	if _, err := c.answer.ReadFrom(response.Body); err != nil {
		return nil, 0, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("/%s answered with status %d: %.200s", verb, response.StatusCode, c.answer.Bytes())
	}
	return c.answer.Bytes(), time.Since(began), nil
}
