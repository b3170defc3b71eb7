// Command extender measures how long spot-extender takes to answer kube-scheduler in a large cluster: the built binary, on a real API
// server with thousands of nodes, asked over HTTPS by several clients at a time, each for pods of its own workloads, one after the other,
// as kube-scheduler asks (nodeCacheCapable; /filter with the names of all nodes, /prioritize with those that are left). The server has one
// half of the machine's cores, and clients and control plane the other, as if on two machines: on the same ones the clients' threads keep
// those of the server waiting, and it is the kernel's scheduling that is measured. A server that decides nothing (floor), asked in turns with
// the extender, shows how much of the time is the clients' and the network's. What the hypervisor takes of the cores meanwhile would count as
// the server's time: rounds in which that is more than a little do not count, and are made again.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

type options struct {
	nodes, clients, pods, rounds int
	together                     bool
}

const (
	// stolenAtMost is the part of the time of all cores that the hypervisor may take in a round that counts.
	stolenAtMost = 0.01
	// triesPerRound is how many rounds are made at most for each that is to count.
	triesPerRound = 4
)

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
	flag.IntVar(&o.rounds, "rounds", 3, "number of rounds that count, in each of which the extender and the floor are asked")
	flag.BoolVar(&o.together, "together", false, "run servers, clients and control plane on the same cores")
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

// arm is a server that is asked, and what came of it in the rounds that count and in those that are left out.
type arm struct {
	name             string
	counted, leftOut []round
}

// round is what one round came to.
type round struct {
	answers map[string][]time.Duration // how long each took, by verb; sorted
	took    time.Duration              // the whole round
	cpu     float64                    // CPU time of the server, in seconds
	stolen  float64                    // what part of the time of all cores the hypervisor took
}

func run(ctx context.Context, o options) (err error) {
	var servers, others cores
	if !o.together {
		if servers, others, err = halves(); err != nil {
			return err
		}
		// Before anything is started: what is started counts these cores only.
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
	b := &bench{options: o, cp: cp, servers: servers, others: others, files: files, names: names, workloads: workloads}
	if b.tls, err = trust(files); err != nil {
		return err
	}
	arms := []*arm{{name: "extender"}, {name: "floor"}}
	for i := 0; len(arms[0].counted) < o.rounds && i < triesPerRound*o.rounds; i++ {
		fmt.Fprintf(os.Stderr, "round %d\n", i+1)
		rounds, err := b.round(ctx, i%2 == 1)
		if err != nil {
			return err
		}
		stolen := max(rounds[0].stolen, rounds[1].stolen)
		for j, a := range arms {
			if stolen <= stolenAtMost {
				a.counted = append(a.counted, rounds[j])
			} else {
				a.leftOut = append(a.leftOut, rounds[j])
			}
		}
	}
	return b.report(arms)
}

// bench is what all rounds share.
type bench struct {
	options
	cp              *lab.ControlPlane
	servers, others cores // unless together
	files           lab.Certificates
	tls             *tls.Config // of clients
	names           []byte      // of all nodes, as JSON
	workloads       []*appsv1.ReplicaSet
}

// round asks the extender and the floor, in this order unless floorFirst. They are new processes: an extender remembers for a while what it
// was asked about.
func (b *bench) round(ctx context.Context, floorFirst bool) (rounds [2]round, err error) {
	e, err := b.cp.StartExtender(ctx, lab.ExtenderOptions{})
	if err != nil {
		return rounds, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	answers, err := b.firstAnswers(ctx, e)
	if err != nil {
		return rounds, err
	}
	f, err := startFloor(ctx, b.files, answers)
	if err != nil {
		return rounds, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	ask := []func() error{
		func() (err error) { rounds[0], err = b.ask(e.PID, e.Address); return err },
		func() (err error) { rounds[1], err = b.ask(f.process.Process.Pid, f.address); return err },
	}
	if floorFirst {
		slices.Reverse(ask)
	}
	for _, ask := range ask {
		if err := ctx.Err(); err != nil {
			return rounds, err
		}
		if err := ask(); err != nil {
			return rounds, err
		}
	}
	return rounds, nil
}

// ask has a server asked by all clients at a time, each for its part of the workloads.
func (b *bench) ask(pid int, address string) (r round, err error) {
	if !b.together {
		if err := b.servers.keep(pid); err != nil {
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
	runtime.GC() // which will not be needed before the end
	before, err := readUsage(pid)
	if err != nil {
		return r, err
	}
	began := time.Now()
	var group errgroup.Group
	for _, c := range clients {
		group.Go(c.ask)
	}
	if err := group.Wait(); err != nil {
		return r, err
	}
	r = round{answers: map[string][]time.Duration{}, took: time.Since(began)}
	after, err := readUsage(pid)
	if err != nil {
		return r, err
	}
	r.cpu = after.process - before.process
	if all := after.all - before.all; all > 0 { // in seconds: less than a tick may have passed
		r.stolen = (after.stolen - before.stolen) / all
	}
	for _, verb := range verbs {
		for _, c := range clients {
			r.answers[verb] = append(r.answers[verb], c.took[verb]...)
		}
		slices.Sort(r.answers[verb])
	}
	return r, nil
}

// firstAnswers returns what the extender answers to each verb, when it has begun to decide.
func (b *bench) firstAnswers(ctx context.Context, e *lab.Extender) (answers map[string][]byte, err error) {
	answers = map[string][]byte{}
	pods := podsOf(b.workloads[:1], podsPerWorkload)
	asked := 0
	err = b.cp.WaitFor(ctx, "the extender to lead", func(context.Context) error {
		// Each time about another pod: one that was let go somewhere before may get another answer.
		c, err := b.newClient(e.Address, pods[asked%len(pods):][:1])
		if err != nil {
			return err
		}
		asked++
		defer c.conn.Close()
		if err := c.ask(); err != nil {
			return err
		}
		for _, verb := range verbs {
			answers[verb] = c.answers[verb].Bytes()
		}
		return nil
	})
	return answers, err
}
