// Command extender measures how long spot-extender takes to answer kube-scheduler in a large cluster: the built binary, on a real API
// server with thousands of nodes, asked over HTTPS by several clients at a time, each for pods of its own workloads, one after the other,
// as kube-scheduler asks (nodeCacheCapable; /filter with the names of all nodes, /prioritize with those that are left). The server has one
// half of the machine's cores, and clients and control plane the other, as if on two machines: on the same ones the clients' threads keep
// those of the server waiting, and it is the kernel's scheduling that is measured. What of the time is the clients' and the network's, shows a
// server that decides nothing (floor), asked in turns with the extender. What the hypervisor takes of the cores meanwhile counts as the
// server's time: rounds in which that is more than a little are left out, and others made in their place.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// podsPerWorkload is how many pods each workload has.
const podsPerWorkload = 20

type options struct {
	nodes, clients, pods, rounds int
	together                     bool
}

const (
	// stolenAtMost is the part of the time of all cores that the hypervisor may take in a round that counts.
	stolenAtMost = 0.01
	// roundsPerRound is how many rounds are made at most for each that is to count.
	roundsPerRound = 4
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
	flag.IntVar(&o.rounds, "rounds", 3, "number of rounds that count, in each of which the extender is asked, and then the floor")
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

// arm is a server that is asked.
type arm struct {
	name, address string
	pid           int
	rounds        []round // those that count
}

// round is what one round came to: how long the answers took, by verb and sorted, all of it, the CPU time of the server in seconds, and what
// part of the time of all cores the hypervisor took.
type round struct {
	answers map[string][]time.Duration
	took    time.Duration
	cpu     float64
	stolen  float64
}

func run(ctx context.Context, o options) (err error) {
	var servers, others cores
	if !o.together {
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
	workloads, err := createWorkloads(ctx, cp, 1+roundsPerRound*o.rounds*perRound)
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
		if !o.together {
			if err := servers.keep(a.pid); err != nil {
				return err
			}
		}
	}
	var noisy []float64 // what was stolen in rounds that do not count
	for i := 0; len(arms[0].rounds) < o.rounds && i < roundsPerRound*o.rounds; i++ {
		rounds, stolen := make([]round, len(arms)), 0.0
		for j, a := range arms {
			if err := ctx.Err(); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "round %d: %s\n", i+1, a.name)
			if rounds[j], err = a.ask(o, cp, names, workloads[1+i*perRound:1+(i+1)*perRound]); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			stolen = max(stolen, rounds[j].stolen)
		}
		if stolen > stolenAtMost {
			fmt.Fprintf(os.Stderr, "round %d does not count: the hypervisor took %.1f %% of the cores' time\n", i+1, 100*stolen)
			noisy = append(noisy, stolen)
			continue
		}
		for j, a := range arms {
			a.rounds = append(a.rounds, rounds[j])
		}
	}
	return report(o, arms, noisy)
}

// ask has the arm asked by all clients at a time, each for its part of the workloads.
func (a *arm) ask(o options, cp *lab.ControlPlane, names []string, workloads []*appsv1.ReplicaSet) (round, error) {
	clients := make([]*client, o.clients)
	for i := range clients {
		var err error
		pods := podsOf(workloads[i*len(workloads)/o.clients:(i+1)*len(workloads)/o.clients], o.pods)
		if clients[i], err = newClient(cp, a.address, names, pods); err != nil {
			return round{}, err
		}
		defer clients[i].conn.Close()
	}
	before, err := readUsage(a.pid)
	if err != nil {
		return round{}, err
	}
	began := time.Now()
	var group errgroup.Group
	for _, c := range clients {
		group.Go(c.ask)
	}
	if err := group.Wait(); err != nil {
		return round{}, err
	}
	r := round{answers: map[string][]time.Duration{}, took: time.Since(began)}
	after, err := readUsage(a.pid)
	r.cpu = after.process - before.process
	r.stolen = (after.stolen - before.stolen) / (after.all - before.all)
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
		c, err := newClient(cp, e.Address, names, podsOf(workloads, 1))
		if err != nil {
			return err
		}
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

// usage is CPU time, in seconds since a process or the machine began: of a process, what the hypervisor took of all cores, and all their time.
type usage struct{ process, stolen, all float64 }

func readUsage(pid int) (u usage, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	ofProcess, err := process.Stat()
	if err != nil {
		return u, err
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return u, err
	}
	t := stat.CPUTotal
	return usage{
		process: ofProcess.CPUTime(), stolen: t.Steal,
		all: t.User + t.Nice + t.System + t.Idle + t.Iowait + t.IRQ + t.SoftIRQ + t.Steal,
	}, nil
}
