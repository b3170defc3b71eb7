package simulation_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// reclaim sets a reclaim signal on some spot nodes, spread over the cluster.
func reclaim(s *snapshot.Snapshot, nodes int) {
	for i := 0; nodes > 0; i++ {
		n := s.Nodes[i*17%len(s.Nodes)]
		if n.Facts.Capacity.Type == decision.Spot && n.Facts.Signal != decision.Reclaim {
			n.Facts.Signal = decision.Reclaim
			nodes--
		}
	}
}

// replaceReclaimed searches for replacements of all pods on reclaimed nodes in a new Room.
func replaceReclaimed(s *snapshot.Snapshot) (room *simulation.Room, reclaimed, found int) {
	room = simulation.NewRoom(s)
	for _, p := range s.Pods {
		if p.Node.Facts.Signal == decision.Reclaim {
			reclaimed++
			if to, _ := room.Replace(p, decision.Unassigned); to != nil {
				found++
			}
		}
	}
	return room, reclaimed, found
}

// unconstrained and constrained are options of pods: none, and hard spread over zones and nodes.
const (
	unconstrained = ""
	constrained   = "spread=" + v1.LabelTopologyZone + "," + v1.LabelHostname + " skew=2"
)

// BenchmarkReplace measures the replacement of the 3,000 pods on 300 spot nodes, on 5,000 nodes
// with 50,000 pods and on one processor: with room for all or none, and with or without topology
// constraints.
func BenchmarkReplace(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for room, cpu := range map[string]int{"room": 20, "full": 10} {
		for name, o := range map[string]string{"unconstrained": unconstrained, "constrained": constrained} {
			b.Run(room+"/"+name, func(b *testing.B) {
				w := clustertest.NewWorld(b)
				w.AddFleet(5000, cpu, 50000, strings.Fields(o)...)
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					s := w.Snapshot() // the first Room of a Snapshot reads the labels of all nodes and pods
					reclaim(s, 300)
					b.StartTimer()
					_, reclaimed, found := replaceReclaimed(s)
					b.ReportMetric(float64(reclaimed), "reclaimed")
					b.ReportMetric(float64(found), "found")
				}
			})
		}
	}
}

// BenchmarkPreemption is like BenchmarkReplace for pods of a higher priority, which have room only
// where one or two other pods are preempted, or nowhere because they are larger than a node.
func BenchmarkPreemption(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for victims, cpu := range map[string]int{"one": 10, "several": 5, "too few": 10} {
		b.Run(victims, func(b *testing.B) {
			w := clustertest.NewWorld(b)
			w.AddFleet(5000, cpu, 50000)
			for b.Loop() {
				b.StopTimer()
				s := w.Snapshot()
				reclaim(s, 300)
				for _, p := range s.Pods {
					p.Spec.Priority = new(int32(0))
					if p.Node.Facts.Signal == decision.Reclaim {
						*p.Spec.Priority = 10
						if victims == "too few" {
							p.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("11")}
						}
					}
				}
				b.StartTimer()
				_, reclaimed, found := replaceReclaimed(s)
				b.ReportMetric(float64(reclaimed), "reclaimed")
				b.ReportMetric(float64(found), "found")
			}
		})
	}
}

// The test limits the time and memory that topology constraints add to a Room. Measured on
// 2026-11-22 on an AMD EPYC: factors 2.9 and 2.0 (38 ms and 11 MiB), and up to 5.5 in time on a
// busy machine. With a set of eligible nodes and a list of domains for each workload, the factors
// were 546 and 104.
func TestRoomThresholds(t *testing.T) {
	const atMostTime, atMostMemory = 20, 4
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	measure := func(o string) (fastest time.Duration, bytes uint64) {
		w := clustertest.NewWorld(t)
		w.AddFleet(2000, 20, 20000, strings.Fields(o)...)
		fastest = time.Hour // other work on the machine only adds to it
		for range 7 {
			s := w.Snapshot() // the first Room of a Snapshot reads the labels of all nodes and pods
			reclaim(s, 120)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			room, reclaimed, found := replaceReclaimed(s)
			fastest = min(fastest, time.Since(began))
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(room)
			bytes = after.TotalAlloc - before.TotalAlloc
			if reclaimed != 1200 || found != reclaimed {
				t.Fatalf("%d of %d pods found room, want 1200", found, reclaimed)
			}
		}
		return fastest, bytes
	}
	without, bytesWithout := measure(unconstrained)
	with, bytesWith := measure(constrained)
	inTime, inMemory := float64(with)/float64(without), float64(bytesWith)/float64(bytesWithout)
	t.Logf("with constraints %s and %d KiB, %.1f and %.1f times the %s and %d KiB without", with, bytesWith>>10, inTime, inMemory, without, bytesWithout>>10)
	if inTime > atMostTime || inMemory > atMostMemory {
		t.Errorf("constraints cost %.1f times the time and %.1f times the memory, want at most %d and %d times", inTime, inMemory, atMostTime, atMostMemory)
	}
}
