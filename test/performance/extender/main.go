// Command extender measures how long spot-extender takes to answer kube-scheduler in a large
// cluster. It runs the built binary with a real API server and thousands of nodes.
//
// Several clients send HTTPS requests at a time. Each client asks about pods of its own workloads,
// one after the other, like kube-scheduler (nodeCacheCapable): /filter with the names of all nodes,
// and /prioritize with the remaining nodes.
//
// The server uses one half of the machine's cores. The clients and the control plane use the other
// half, as on two machines. On shared cores the clients' threads would delay the server's threads,
// and the result would be a measurement of the kernel's scheduler.
//
// A server that makes no decisions (baseline) alternates with the extender. It shows how much of
// the time the clients and the network take. CPU time that the hypervisor takes from the cores
// would count as the server's time. Rounds with more than a little of it do not count, and are
// repeated.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/performance/frame"
)

type options struct {
	nodes, clients, pods, rounds int
	together                     bool
}

const (
	// stolenAtMost is the largest share of the time of all cores that the hypervisor may take in a
	// round that counts.
	maxStolen = 0.01
	// triesPerRound is the largest number of rounds for each round that counts.
	triesPerRound = 4
)

// verbs are the requests for each pod, in this order.
var verbs = []string{"filter", "prioritize"}

func main() {
	if len(os.Args) == 5 && os.Args[1] == serveBaselineVerb {
		if err := serveBaseline(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, "baseline:", err)
			os.Exit(1)
		}
		return
	}
	frame.Main("extender", func(ctx context.Context) error {
		o, err := parse()
		if err != nil {
			return frame.Usage{Err: err}
		}
		// If the clients' garbage were collected dozens of times per second, the result would
		// include their pauses.
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(1 << 30)
		return run(ctx, o)
	})
}

// parse parses the command line.
func parse() (o options, err error) {
	flag.IntVar(&o.nodes, "nodes", 5000, "number of nodes, 70 % spot")
	flag.IntVar(&o.clients, "clients", 16, "number of concurrent clients")
	flag.IntVar(&o.pods, "pods", 500, "number of pods for which each client sends a filter and a prioritize request in a round")
	flag.IntVar(&o.rounds, "rounds", 3, "number of rounds that count; each measures the extender and the baseline")
	flag.BoolVar(&o.together, "together", false, "run servers, clients and control plane on the same cores")
	flag.Parse()
	if flag.NArg() > 0 || o.nodes < 10 || o.clients < 1 || o.pods < podsPerWorkload || o.rounds < 1 {
		err = fmt.Errorf("expected flags only, at least 10 nodes, 1 client, %d pods and 1 round", podsPerWorkload)
	}
	return o, err
}

// arm is a measured server, with its rounds that count and the excluded rounds.
type arm struct {
	name              string
	counted, excluded []round
}

// round is the result of one round.
type round struct {
	latencies map[string][]float64 // durations of the requests in milliseconds, by verb
	took      time.Duration        // the whole round
	cpu       float64              // CPU time of the server, in seconds
	stolen    float64              // share of the time of all cores that the hypervisor took
}

func run(ctx context.Context, o options) (err error) {
	var servers, others cores
	if !o.together {
		if servers, others, err = splitCores(); err != nil {
			return err
		}
		// Before anything starts: child processes count only these cores.
		if err := others.pin(os.Getpid()); err != nil {
			return err
		}
	}
	cp, err := lab.Start(ctx, lab.Options{NoControllers: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	fmt.Fprintf(os.Stderr, "creating %d nodes\n", o.nodes)
	nodes, err := createNodes(ctx, cp, o.nodes)
	if err != nil {
		return err
	}
	names, err := json.Marshal(nodes)
	if err != nil {
		return err
	}
	workloads, err := createWorkloads(ctx, cp, o.clients*((o.pods+podsPerWorkload-1)/podsPerWorkload))
	if err != nil {
		return err
	}
	files, err := cp.ExtenderCertificates()
	if err != nil {
		return err
	}
	b := &bench{options: o, cp: cp, serverCores: servers, otherCores: others, files: files, names: names, workloads: workloads}
	if b.tls, err = clientTLS(files); err != nil {
		return err
	}
	arms := []*arm{{name: "extender"}, {name: "baseline"}}
	for i := 0; len(arms[0].counted) < o.rounds && i < triesPerRound*o.rounds; i++ {
		fmt.Fprintf(os.Stderr, "round %d\n", i+1)
		rounds, err := b.round(ctx, i%2 == 1)
		if err != nil {
			return err
		}
		stolen := max(rounds[0].stolen, rounds[1].stolen)
		for j, a := range arms {
			if stolen <= maxStolen {
				a.counted = append(a.counted, rounds[j])
			} else {
				a.excluded = append(a.excluded, rounds[j])
			}
		}
	}
	return b.report(arms)
}

// bench is the shared state of all rounds.
type bench struct {
	options
	cp                      *lab.ControlPlane
	serverCores, otherCores cores // unless together
	files                   extendertest.Certificates
	tls                     *tls.Config // of clients
	names                   []byte      // of all nodes, as JSON
	workloads               []*appsv1.ReplicaSet
}

// round measures the extender and the baseline, in this order unless baselineFirst. Both are new
// processes, because an extender remembers requests for a while.
func (b *bench) round(ctx context.Context, baselineFirst bool) (rounds [2]round, err error) {
	e, err := b.cp.StartExtender(ctx, lab.ExtenderOptions{})
	if err != nil {
		return rounds, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	responses, err := b.firstResponses(ctx, e)
	if err != nil {
		return rounds, err
	}
	f, err := startBaseline(ctx, b.files, responses)
	if err != nil {
		return rounds, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	measurements := []func() error{
		func() (err error) { rounds[0], err = b.measure(e.PID, e.Address); return err },
		func() (err error) { rounds[1], err = b.measure(f.process.Process.Pid, f.address); return err },
	}
	if baselineFirst {
		slices.Reverse(measurements)
	}
	for _, measure := range measurements {
		if err := ctx.Err(); err != nil {
			return rounds, err
		}
		if err := measure(); err != nil {
			return rounds, err
		}
	}
	return rounds, nil
}

// measure has all clients send requests to a server at the same time, each for its part of the
// workloads.
func (b *bench) measure(pid int, address string) (r round, err error) {
	if !b.together {
		if err := b.serverCores.pin(pid); err != nil {
			return r, err
		}
	}
	clients := make([]*client, b.clients)
	for i := range clients {
		pods := podsOf(b.workloads[i*len(b.workloads)/b.clients:(i+1)*len(b.workloads)/b.clients], b.pods)
		if clients[i], err = b.newClient(address, pods); err != nil {
			return r, err
		}
		defer clients[i].conn.Close()
	}
	runtime.GC() // no collection is necessary before the end
	before, err := frame.ResourcesOf(pid)
	if err != nil {
		return r, err
	}
	machine, err := cpuTime()
	if err != nil {
		return r, err
	}
	began := time.Now()
	var group errgroup.Group
	for _, c := range clients {
		group.Go(c.sendAll)
	}
	if err := group.Wait(); err != nil {
		return r, err
	}
	r = round{latencies: map[string][]float64{}, took: time.Since(began)}
	after, err := frame.ResourcesOf(pid)
	if err != nil {
		return r, err
	}
	later, err := cpuTime()
	if err != nil {
		return r, err
	}
	r.cpu = after.CPU - before.CPU
	if all := later.all - machine.all; all > 0 { // in seconds: less than a tick may have passed
		r.stolen = (later.stolen - machine.stolen) / all
	}
	for _, verb := range verbs {
		for _, c := range clients {
			for _, took := range c.durations[verb] {
				r.latencies[verb] = append(r.latencies[verb], 1000*took.Seconds())
			}
		}
	}
	return r, nil
}

// firstResponses returns the extender's first response to each verb, after the extender has become
// ready to decide.
func (b *bench) firstResponses(ctx context.Context, e *lab.Extender) (responses map[string][]byte, err error) {
	responses = map[string][]byte{}
	pods := podsOf(b.workloads[:1], podsPerWorkload)
	attempts := 0
	err = b.cp.WaitFor(ctx, "the extender to lead", func(context.Context) error {
		// Each attempt uses another pod, because an earlier decision may change the response for
		// the same pod.
		c, err := b.newClient(e.Address, pods[attempts%len(pods):][:1])
		if err != nil {
			return err
		}
		attempts++
		defer c.conn.Close()
		if err := c.sendAll(); err != nil {
			return err
		}
		for _, verb := range verbs {
			responses[verb] = c.responses[verb].Bytes()
		}
		return nil
	})
	return responses, err
}
