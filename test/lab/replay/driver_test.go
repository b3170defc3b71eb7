package replay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// replayed replays a plan with an arm on a toy cluster and returns the result.
func replayed(t *testing.T, name string, p *Plan, change func(*toyCluster)) (Result, *driver) {
	t.Helper()
	arms, err := SelectArms([]string{name})
	must(t, err)
	c := newToyCluster(t, p)
	if change != nil {
		change(c)
	}
	d := newDriver(arms[0], p, Scales{Busy: 100, Calm: 1000}, newWaits(scaledTime{}, scaledTime{}), c.client)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.observe(ctx, d)
	must(t, d.place(ctx))
	must(t, d.replay(ctx))
	return d.recorder.Result(d.clock.At(time.Now())), d
}

// noNotice changes the world: all spot vanishes at 1:00 without notice.
func noNotice(in *Inputs, s *Settings) {
	s.Notice = 0
	in.Capacity.Pools[1].Steps[1].Count = 0
}

// TestFloorSurvives replays the loss of all spot without notice. With floors no service has an
// outage. Without floors the lab reports outages: the arm with the broken floor is broken.
func TestFloorSurvives(t *testing.T) {
	t.Parallel()
	p := newPlan(t, noNotice)
	r, d := replayed(t, "scheduler", p, nil)
	if broken := r.broken(); len(broken) != 0 {
		t.Errorf("with floors: %v", broken)
	}
	// Each of the replicas beyond floors was lost with its node, except if it ran on on-demand.
	if r.LostPods < 2 || r.LargestLoss < 1 || r.SpotShare < 0.2 || r.SpotShare > 0.8 {
		t.Errorf("with floors: %d pods lost, largest loss %d, %.0f %% on spot", r.LostPods, r.LargestLoss, 100*r.SpotShare)
	}
	near(t, "measured", r.MeasuredSeconds, 7200)
	if skipped := d.clock.Skipped(); skipped < time.Hour {
		t.Errorf("skipped %s of idle time, want more than an hour", skipped)
	}
	if r.ReadyShare < 0.9 || r.OnDemandNodeHours < 1 {
		t.Errorf("ready %.3f, %.1f on-demand node-hours", r.ReadyShare, r.OnDemandNodeHours)
	}

	r, _ = replayed(t, "broken-floor", p, nil)
	if broken := r.broken(); len(broken) == 0 || r.Outages < 2 {
		t.Errorf("without floors: %d outages, broken %v", r.Outages, broken)
	}
}

// TestDrainOnNotice replays a notice without the controller: the lab evicts the pods in time. If
// the budgets refuse, the pods are lost with their nodes.
func TestDrainOnNotice(t *testing.T) {
	t.Parallel()
	p := newPlan(t, func(_ *Inputs, s *Settings) { s.Notice = 10 * time.Minute })
	r, _ := replayed(t, "preferred", p, nil)
	if r.Evictions == 0 || r.LostPods != 0 {
		t.Errorf("%d evictions, %d pods lost", r.Evictions, r.LostPods)
	}
	var cluster *toyCluster
	r, _ = replayed(t, "preferred", p, func(c *toyCluster) { c.refuse, cluster = true, c })
	cluster.mu.Lock()
	defer cluster.mu.Unlock()
	if r.Evictions != 0 || r.LostPods == 0 || cluster.evicted <= r.LostPods {
		t.Errorf("refused: %d evictions, %d pods lost, %d attempts", r.Evictions, r.LostPods, cluster.evicted)
	}
}

func TestAllOnDemand(t *testing.T) {
	t.Parallel()
	p := newPlan(t, noNotice)
	r, _ := replayed(t, "on-demand", p, nil)
	if r.SpotShare != 0 || r.SpotNodeHours != 0 || r.LostPods != 0 || r.Outages != 0 {
		t.Errorf("on spot %.2f, %.1f spot node-hours, %d pods lost", r.SpotShare, r.SpotNodeHours, r.LostPods)
	}
	all := p.Bound(p.Window.Length).AllOnDemandPodHoursCost
	if r.PodHoursCost > all*1.001 || r.PodHoursCost < all*0.98 {
		t.Errorf("cost %.3f, want at most 2 %% below %.3f", r.PodHoursCost, all)
	}
	// The scale-up at 1:00 needs a node. After its start the clock must not jump to the time at
	// which it is removed if it is empty, ten minutes later.
	if r.PendingSeconds > 500 {
		t.Errorf("pending for %.0f s, want at most the minute until the node is ready and a little more", r.PendingSeconds)
	}
}

// TestSplit replays two Deployments per service. Replicas that require spot wait without spot.
func TestSplit(t *testing.T) {
	t.Parallel()
	r, _ := replayed(t, "split", newPlan(t, noNotice), nil)
	if r.Outages != 0 || r.PendingSeconds < 1800 {
		t.Errorf("%d outages, pending for %.0f s", r.Outages, r.PendingSeconds)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	p := newPlan(t, nil)
	arms, _ := SelectArms([]string{"on-demand"})
	c := newToyCluster(t, p)
	d := newDriver(arms[0], p, Scales{Busy: 1, Calm: 1}, newWaits(scaledTime{}, scaledTime{}), c.client)
	cause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	c.observe(ctx, d)
	must(t, d.place(ctx))
	d.report = func(time.Duration) { cancel(cause) }
	if err := d.replay(ctx); !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause", err)
	}
	if r := d.recorder.Result(d.clock.At(time.Now())); r.MeasuredSeconds >= 7200 {
		t.Errorf("measured %.0f s of an interrupted replay", r.MeasuredSeconds)
	}
}

// TestNotice checks what a notice writes: the taint of a cloud, and the deadline in real time.
func TestNotice(t *testing.T) {
	p := newPlan(t, nil)
	c := newToyCluster(t, p)
	d := newDriver(Arm{Name: "x", Spot: true, Controller: true}, p, Scales{Busy: 10, Calm: 300}, newWaits(scaledTime{}, scaledTime{}), c.client)
	node := SpotNode{Name: "n", Zone: "a", Notice: 0, Down: 2 * time.Minute}
	must(t, d.apply(t.Context(), []Event{{Kind: NodeUp, Node: node}, {Kind: NodeNotice, Node: node}}))
	object, err := c.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	must(t, err)
	deadline, err := time.Parse(time.RFC3339, object.Annotations[spot.InterruptionDeadlineAnnotation])
	if left := time.Until(deadline); err != nil || left > 12*time.Second || left < 5*time.Second {
		t.Errorf("the deadline is in %s, want 12 s; %v", left, err)
	}
	if len(object.Spec.Taints) != 1 || object.Spec.Taints[0].Key != noticeTaint {
		t.Errorf("taints %v", object.Spec.Taints)
	}
}

// TestScaleIsRecordedFirst: the watch may report the deleted pods before the request returns. They
// must not count as lost.
func TestScaleIsRecordedFirst(t *testing.T) {
	p := newPlan(t, nil)
	client := fake.NewClientset()
	d := newDriver(Arm{Name: "x"}, p, Scales{Busy: 10, Calm: 300}, newWaits(scaledTime{}, scaledTime{}), client)
	recorded := -1
	client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		recorded = d.observer.desired["svc-x"]
		return true, nil, nil
	})
	must(t, d.scale(t.Context(), "svc-x", 0))
	if recorded != 0 {
		t.Errorf("%d replicas are recorded during the request, want 0", recorded)
	}
}

// TestCreatedNodeIsStarting: a node that the watch has not reported is not overlooked. Otherwise
// the clock would jump before it is Ready.
func TestCreatedNodeIsStarting(t *testing.T) {
	p := newPlan(t, nil)
	d := newDriver(Arm{Name: "x", Spot: true}, p, Scales{Busy: 10, Calm: 300}, newWaits(scaledTime{}, scaledTime{}), fake.NewClientset())
	node := p.node("n", "a", lab.Spot)
	must(t, d.createNode(t.Context(), node))
	if s := d.observer.status(); s.startingNodes != 1 || !s.moving() {
		t.Errorf("%d starting nodes before the watch reports the node, want 1", s.startingNodes)
	}
	node.Spec.Taints = nil
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	d.observer.nodeEvent(time.Now(), node, false)
	if s := d.observer.status(); s.startingNodes != 0 {
		t.Errorf("%d starting nodes after the node is Ready, want 0", s.startingNodes)
	}
}

// TestDrainDoesNotWait: the API server may delay an eviction by seconds. Meanwhile the driver works
// on, and does not request the eviction again. A timeout is no error.
func TestDrainDoesNotWait(t *testing.T) {
	p := newPlan(t, nil)
	client := fake.NewClientset()
	d := newDriver(Arm{Name: "x", Spot: true}, p, Scales{Busy: 1000, Calm: 1000}, newWaits(scaledTime{}, scaledTime{}), client)
	began, end := make(chan struct{}, 10), make(chan struct{})
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		began <- struct{}{}
		<-end
		return true, nil, apierrors.NewTimeoutError("conflicts", 10)
	})
	d.observer.notice("n")
	d.observer.podEvent(time.Now(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, UID: "p", Labels: map[string]string{serviceLabel: "svc-x"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}, false)
	for range 3 {
		must(t, d.drainer.drain(t.Context(), d.observer))
		time.Sleep(2 * d.drainer.again)
	}
	<-began
	close(end)
	d.drainer.wait()
	if len(began) != 0 {
		t.Errorf("%d further requests during the first one", len(began))
	}
	time.Sleep(2 * d.drainer.again)
	if err := d.drainer.drain(t.Context(), d.observer); err != nil {
		t.Errorf("a timeout is an error: %v", err)
	}
	d.drainer.wait()
	if len(began) != 1 {
		t.Errorf("%d further requests after the first one, want 1", len(began))
	}
}

// TestTrigger: the controller gets events only while the driver waits for its next step.
func TestTrigger(t *testing.T) {
	for name, test := range map[string]struct {
		status status
		want   int
	}{
		"settled":    {status{}, 0},
		"returnable": {status{returnable: true}, 1},
		"unhealed":   {status{unhealed: true}, 1},
		"moving":     {status{returnable: true, released: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			d := newDriver(Arm{Controller: true}, newPlan(t, nil), Scales{Busy: 10, Calm: 300}, newWaits(scaledTime{}, scaledTime{}), client)
			for range 3 { // at most one each second
				must(t, d.trigger(t.Context(), test.status))
			}
			if got := len(client.Actions()); got != test.want {
				t.Errorf("%d requests, want %d", got, test.want)
			}
		})
	}
}

// TestRate checks when time is skipped.
func TestRate(t *testing.T) {
	const long, short = time.Minute, time.Millisecond
	stock, ours := Arm{}, Arm{Controller: true}
	for name, test := range map[string]struct {
		arm              Arm
		status           status
		quiet, sinceRoom time.Duration
		want             float64
	}{
		"settled":                       {stock, status{}, long, long, 0},
		"an event":                      {stock, status{}, short, long, 10},
		"starting":                      {stock, status{starting: 1}, long, long, 10},
		"terminating":                   {stock, status{terminating: 1}, long, long, 10},
		"not deleted":                   {stock, status{surplus: 1}, long, long, 10},
		"released":                      {ours, status{released: 1}, long, long, 10},
		"not seen by a scheduler":       {stock, status{unassigned: 1}, long, long, 10},
		"not created":                   {stock, status{missing: 1}, long, long, 10},
		"notice, controller":            {ours, status{onNoticed: 1}, long, long, 10},
		"notice, drain":                 {stock, status{onNoticed: 1}, quietBlocked + time.Second - 1, long, 10},
		"notice, a request is running":  {stock, status{onNoticed: 1}, long, long, 10},
		"notice, all refused":           {stock, status{onNoticed: 1}, long, long, 0},
		"unschedulable":                 {stock, status{unschedulable: 1}, long, long, 0},
		"unschedulable, new room":       {stock, status{unschedulable: 1}, time.Second, time.Second, 10},
		"returnable, round":             {ours, status{returnable: true}, quietReaction - 1, long, 10},
		"returnable, back-off":          {ours, status{returnable: true}, quietBackOff - 1, long, 10},
		"returnable, no wait":           {ours, status{returnable: true}, quietBackOff, long, 0},
		"returnable, no controller":     {stock, status{returnable: true}, time.Second, long, 0},
		"over the spot budget":          {ours, status{unhealed: true}, time.Second, long, 10},
		"over the spot budget, forever": {ours, status{unhealed: true}, long, long, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			test.status.changed, test.status.roomAdded = now.Add(-test.quiet), now.Add(-test.sinceRoom)
			d := &driver{
				arm: test.arm, scales: Scales{Busy: 10, Calm: 300}, waits: newWaits(scaledTime{}, scaledTime{}), drainer: &drainer{again: time.Second / 2},
			}
			if strings.Contains(name, "request is running") {
				d.drainer.running.Add(1)
			}
			if got := d.rate(test.status, moment{real: now}); got != test.want {
				t.Errorf("rate %g, want %g", got, test.want)
			}
		})
	}
}
