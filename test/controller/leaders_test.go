package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLeaderStoppedDuringMoves: the leader gets SIGTERM during surges and evictions, as in a
// rollout of the controller. The standby continues the moves and repeats no action.
func TestLeaderStoppedDuringMoves(t *testing.T) {
	s := start(t, live.Spot(2, 20)...)
	replicas := s.deployMovingApps()
	s.AddNodes(live.Nodes("next", lab.Spot, "m5.xlarge", 2, 20)...)
	both := []*lab.Process{s.StartAnotherController(interruptionsOnly()), s.StartAnotherController(interruptionsOnly())}
	var leader, standby *lab.Process
	s.Eventually(soon, func() error {
		var err error
		leader, standby, err = s.findLeader(both)
		return err
	})
	s.Controller = standby
	nodes := []string{"spot-1", "spot-2"}
	began := time.Now()
	for _, node := range nodes {
		s.EditNode(node, tainted(reclaimed))
	}
	s.Eventually(soon, s.someMovesDone)

	signalled := time.Now()
	s.Must(leader.Stop())
	ended := time.Now()
	// The lease lasts 15 s, so the leader must have released it.
	s.Eventually(10*time.Second, func() error {
		_, _, err := s.findLeader([]*lab.Process{standby})
		return err
	})
	t.Logf("it ended within %.1f s, and another leader started %.1f s later", ended.Sub(signalled).Seconds(), time.Since(ended).Seconds())
	for _, node := range nodes {
		s.Eventually(time.Minute, s.empty(node))
	}
	t.Logf("all pods had left %.1f s after the leader got SIGTERM", time.Since(signalled).Seconds())
	for _, node := range nodes {
		s.EditNode(node, untainted(reclaimed))
		s.Eventually(soon, s.marked(node, false))
	}
	for app, n := range replicas {
		s.Eventually(soon, s.HasReadySplit(app, split{Spot: n}))
		s.Eventually(soon, s.complete(app, n))
	}
	s.Eventually(soon, s.noPodReleased)
	s.requireMovedOnce(began, replicas)
}

// findLeader returns the leader of the controllers and a standby, if there is one. It returns an
// error if no controller or more than one leads.
func (s *scenario) findLeader(controllers []*lab.Process) (leader, standby *lab.Process, err error) {
	for _, p := range controllers {
		leads, err := live.Metric(s.Ctx, p, "leader_election_master_status", nil)
		switch {
		case err != nil:
			return nil, nil, err
		case leads == 1 && leader != nil:
			return nil, nil, fmt.Errorf("%s and another controller lead", p.Name)
		case leads == 1:
			leader = p
		default:
			standby = p
		}
	}
	if leader == nil {
		err = errors.New("no controller leads")
	}
	return leader, standby, err
}
