package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLeaderStopsWhileMoving: the leader is asked to end in the middle of surges and evictions, as at a rollout of its own. The stand-by
// goes on where it stopped, and does nothing again. (Row 6.)
func TestLeaderStopsWhileMoving(t *testing.T) {
	s := start(t, live.Spot(2, 20)...)
	replicas := s.deployMovers()
	s.addNodes(live.Nodes("next", lab.Spot, "m5.xlarge", 2, 20)...)
	both := []*lab.Process{s.another(interruptionsOnly()), s.another(interruptionsOnly())}
	var leader, standby *lab.Process
	s.eventually(soon, func() error {
		var err error
		leader, standby, err = s.leads(both)
		return err
	})
	s.controller = standby
	nodes := []string{"spot-1", "spot-2"}
	began := time.Now()
	for _, node := range nodes {
		s.editNode(node, tainted(reclaimed))
	}
	s.eventually(soon, s.inTheMiddle)

	asked := time.Now()
	s.must(leader.Stop())
	ended := time.Now()
	// The lease lasts 15 s: it was given back.
	s.eventually(10*time.Second, func() error {
		_, _, err := s.leads([]*lab.Process{standby})
		return err
	})
	t.Logf("it ended within %.1f s, and another led %.1f s later", ended.Sub(asked).Seconds(), time.Since(ended).Seconds())
	for _, node := range nodes {
		s.eventually(time.Minute, s.empty(node))
	}
	t.Logf("all were gone %.1f s after the leader was asked to end", time.Since(asked).Seconds())
	for _, node := range nodes {
		s.editNode(node, untainted(reclaimed))
		s.eventually(soon, s.marked(node, false))
	}
	for app, n := range replicas {
		s.eventually(soon, s.is(app, split{Spot: n}))
		s.eventually(soon, s.whole(app, n))
	}
	s.eventually(soon, s.nothingReleased)
	s.movedOnce(began, replicas)
}

// leads returns the one of these controllers that leads, and one that does not, if there is any. The error says that none does.
func (s *scenario) leads(controllers []*lab.Process) (leader, standby *lab.Process, err error) {
	for _, p := range controllers {
		leads, err := live.Metric(s.ctx, p, "leader_election_master_status", nil)
		switch {
		case err != nil:
			return nil, nil, err
		case leads == 1 && leader != nil:
			return nil, nil, fmt.Errorf("%s and another lead", p.Name)
		case leads == 1:
			leader = p
		default:
			standby = p
		}
	}
	if leader == nil {
		err = errors.New("none leads")
	}
	return leader, standby, err
}
