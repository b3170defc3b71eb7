// Command extender measures how long spot-extender takes to answer kube-scheduler in a large cluster: the built binary, on a real API
// server with thousands of nodes, asked over HTTPS by several clients at a time, each for pods of its own workloads, one after the other,
// as kube-scheduler asks (nodeCacheCapable; /filter with the names of all nodes, /prioritize with those that are left). The clients run on the same machine and take their part
// of its cores: what of the time is theirs, and the network's, shows a server that decides nothing (floor), asked in turns with the extender.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
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

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// podsPerWorkload is how many pods each workload has.
const podsPerWorkload = 20

type options struct {
	nodes, clients, pods, rounds int
	apart                        bool
}

// verbs are what is asked about each pod, in this order.
var verbs = []string{"filter", "prioritize"}

func main() {
	if len(os.Args) == 5 && os.Args[1] == serveFloorVerb {
		if err := serveFloor(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, "floor:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.IntVar(&o.nodes, "nodes", 5000, "number of nodes, 70 % of them spot")
	flag.IntVar(&o.clients, "clients", 16, "number of clients that ask at the same time")
	flag.IntVar(&o.pods, "pods", 500, "number of pods that each client asks about in a round: a filter and a prioritize each")
	flag.IntVar(&o.rounds, "rounds", 3, "number of rounds, in each of which the extender is asked, and then the floor")
	flag.BoolVar(&o.apart, "apart", false, "run the servers on one half of the cores and all else on the other, as if on two machines")
	flag.Parse()
	if flag.NArg() > 0 || o.nodes < 10 || o.clients < 1 || o.pods < podsPerWorkload || o.rounds < 1 {
		fmt.Fprintf(os.Stderr, "extender: expected flags only, at least 10 nodes, 1 client, %d pods and 1 round\n", podsPerWorkload)
		os.Exit(2)
	}
	// With the clients' garbage collected dozens of times a second, it would be their pauses that are measured.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "extender:", err)
		os.Exit(1)
	}
}

// arm is a server that is asked.
type arm struct {
	name, address string
	pid           int
	rounds        []round
}

// round is what one round came to: how long the answers took, by verb and sorted, all of it, and the CPU time of the server.
type round struct {
	answers map[string][]time.Duration
	took    time.Duration
	cpu     float64
}

func run(ctx context.Context, o options) (err error) {
	var servers, others cores
	if o.apart {
		if servers, others, err = halves(); err != nil {
			return err
		}
		// Before anything is started, so that it takes the number of these cores for that of the machine.
		if err := others.keep(os.Getpid()); err != nil {
			return err
		}
	}
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
	perRound := o.clients * ((o.pods + podsPerWorkload - 1) / podsPerWorkload)
	workloads, err := createWorkloads(ctx, cp, 1+o.rounds*perRound)
	if err != nil {
		return err
	}
	answers, err := firstAnswers(ctx, cp, e, names, workloads[:1])
	if err != nil {
		return err
	}
	files, err := cp.ExtenderCertificates()
	if err != nil {
		return err
	}
	f, err := startFloor(ctx, files, answers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	arms := []*arm{{name: "extender", address: e.Address, pid: e.PID}, {name: "floor", address: f.address, pid: f.process.Process.Pid}}
	for _, a := range arms {
		if o.apart {
			if err := servers.keep(a.pid); err != nil {
				return err
			}
		}
	}
	for i := range o.rounds {
		for _, a := range arms {
			if err := ctx.Err(); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "round %d: %s\n", i+1, a.name)
			r, err := a.ask(o, cp, names, workloads[1+i*perRound:1+(i+1)*perRound])
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			a.rounds = append(a.rounds, r)
		}
	}
	return report(o, arms)
}

// ask has the arm asked by all clients at a time, each for its part of the workloads.
func (a *arm) ask(o options, cp *lab.ControlPlane, names []string, workloads []*appsv1.ReplicaSet) (round, error) {
	clients := make([]*client, o.clients)
	for i := range clients {
		var err error
		if clients[i], err = newClient(cp, a.address, names); err != nil {
			return round{}, err
		}
		defer clients[i].conn.Close()
	}
	before, err := cpuSeconds(a.pid)
	if err != nil {
		return round{}, err
	}
	began := time.Now()
	var group errgroup.Group
	for i, c := range clients {
		group.Go(func() error {
			return c.ask(workloads[i*len(workloads)/o.clients:(i+1)*len(workloads)/o.clients], o.pods)
		})
	}
	if err := group.Wait(); err != nil {
		return round{}, err
	}
	r := round{answers: map[string][]time.Duration{}, took: time.Since(began)}
	after, err := cpuSeconds(a.pid)
	r.cpu = after - before
	for _, verb := range verbs {
		for _, c := range clients {
			r.answers[verb] = append(r.answers[verb], c.took[verb]...)
		}
		slices.Sort(r.answers[verb])
	}
	return r, err
}

// firstAnswers returns what the extender answers to each verb, when it has begun to decide.
func firstAnswers(
	ctx context.Context, cp *lab.ControlPlane, e *lab.Extender, names []string, workloads []*appsv1.ReplicaSet,
) (answers map[string][]byte, err error) {
	answers = map[string][]byte{}
	err = cp.WaitFor(ctx, "the extender to lead", func(context.Context) error {
		c, err := newClient(cp, e.Address, names)
		if err != nil {
			return err
		}
		defer c.conn.Close()
		if err := c.ask(workloads, 1); err != nil {
			return err
		}
		for _, verb := range verbs {
			answers[verb] = c.answers[verb].Bytes()
		}
		return nil
	})
	return answers, err
}

// report prints the figures: each the median of the rounds, and the least and the most.
func report(o options, arms []*arm) error {
	requests := len(verbs) * o.clients * o.pods
	on := fmt.Sprintf("%d cores with clients and servers on them", runtime.NumCPU())
	if servers, others, _ := halves(); o.apart {
		on = fmt.Sprintf("servers on %d core(s), clients and control plane on %d others", servers.to-servers.from, others.to-others.from)
	}
	fmt.Printf("%d nodes, %d clients, %d requests in each of %d rounds, %s; median (least-most) of the rounds\n\n",
		o.nodes, o.clients, requests, o.rounds, on)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\tverb\tp50 ms\tp90 ms\tp99 ms\tmax ms\trequests/s\tserver's CPU ms/request")
	for _, a := range arms {
		for _, verb := range verbs {
			fmt.Fprintf(table, "%s\t%s", a.name, verb)
			for _, q := range []float64{0.5, 0.9, 0.99, 1} {
				fmt.Fprintf(table, "\t%s", a.figure(func(r round) float64 { return quantile(r.answers[verb], q) }))
			}
			fmt.Fprintf(table, "\t%s\t%s\n", a.figure(func(r round) float64 { return float64(requests) / r.took.Seconds() }),
				a.figure(func(r round) float64 { return 1000 * r.cpu / float64(requests) }))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, verb := range verbs {
		ratios := make([]float64, o.rounds)
		for i := range ratios {
			ratios[i] = quantile(arms[0].rounds[i].answers[verb], 0.99) / quantile(arms[1].rounds[i].answers[verb], 0.99)
		}
		fmt.Printf("\n%s: the p99 of %s is %s times that of %s", verb, arms[0].name, spread(ratios), arms[1].name)
	}
	fmt.Println()
	return nil
}

// figure prints what of gives for each round.
func (a *arm) figure(of func(round) float64) string {
	values := make([]float64, len(a.rounds))
	for i, r := range a.rounds {
		values[i] = of(r)
	}
	return spread(values)
}

// spread prints the median of values, and the least and the most.
func spread(values []float64) string {
	slices.Sort(values)
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return fmt.Sprintf("%.4g (%.4g-%.4g)", median, values[0], values[len(values)-1])
}

// quantile returns a quantile of what is sorted, in milliseconds.
func quantile(took []time.Duration, q float64) float64 {
	return float64(took[min(len(took)-1, int(q*float64(len(took))))].Microseconds()) / 1000
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
	// Asked about in no order: each of kube-scheduler's workers finds a part of the nodes.
	rand.New(rand.NewPCG(0, 0)).Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
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

// client asks as kube-scheduler does, over a connection of its own. It writes and reads that itself: with the client of net/http three
// goroutines have a part in each request, and how long they wait for the cores is no time of the server.
type client struct {
	conn   *tls.Conn
	reader *bufio.Reader
	// names are those of all nodes, as JSON.
	names []byte
	// request is the memory of requests. answers are the last ones, by verb, and took is how long each took.
	request []byte
	answers map[string]*bytes.Buffer
	took    map[string][]time.Duration
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
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: lab.ExtenderName, Certificates: []tls.Certificate{pair}})
	if err != nil {
		return nil, err
	}
	return &client{
		conn: conn, reader: bufio.NewReader(conn), names: list,
		answers: map[string]*bytes.Buffer{verbs[0]: {}, verbs[1]: {}}, took: map[string][]time.Duration{},
	}, nil
}

// ask asks about so many pods of the workloads.
func (c *client) ask(workloads []*appsv1.ReplicaSet, pods int) error {
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
			return err
		}
		answer, err := c.post("filter", data, c.names)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, []byte(`{"NodeNames":["`)) || !bytes.HasSuffix(answer, []byte(`"]}`)) {
			return fmt.Errorf("/filter answered %.200s", answer)
		}
		names := bytes.TrimSuffix(bytes.TrimPrefix(answer, []byte(`{"NodeNames":`)), []byte("}"))
		if answer, err = c.post("prioritize", data, names); err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, []byte(`[{"Host":`)) {
			return fmt.Errorf("/prioritize answered %.200s", answer)
		}
	}
	return nil
}

// post asks about a pod and nodes, and returns the answer, which is good until the next.
func (c *client) post(verb string, pod, names []byte) ([]byte, error) {
	const before, between, after = `{"Pod":`, `,"Nodes":null,"NodeNames":`, `}`
	c.request = fmt.Appendf(c.request[:0], "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		verb, lab.ExtenderName, len(before)+len(pod)+len(between)+len(names)+len(after))
	c.request = append(append(append(append(append(c.request, before...), pod...), between...), names...), after...)
	began := time.Now()
	if err := c.conn.SetDeadline(began.Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer := c.answers[verb]
	answer.Reset()
	if _, err := answer.ReadFrom(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/%s answered with status %d: %.200s", verb, response.StatusCode, answer.Bytes())
	}
	c.took[verb] = append(c.took[verb], time.Since(began))
	return answer.Bytes(), nil
}
