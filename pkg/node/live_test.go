package node

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// liveFixture is a LiveReader with an API server and a cache of Nodes, which may be late.
type liveFixture struct {
	*LiveReader
	*heartbeatsFixture
	api    *fake.Clientset
	cached []*v1.Node
	err    error // answers every read if it is not nil
}

// newLiveFixture returns a fixture with these spot nodes, in the API server and in the cache. All
// kubelets have renewed their Leases just now.
func newLiveFixture(names ...string) *liveFixture {
	f := &liveFixture{heartbeatsFixture: newHeartbeatsFixture(), api: fake.NewClientset()}
	f.LiveReader = &LiveReader{client: f.api, heartbeats: f.heartbeatsFixture.heartbeats}
	f.api.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return f.err != nil, nil, f.err
	})
	for _, name := range names {
		n := nodeWith(spotNodeLabels)
		withCondition(v1.NodeReady, v1.ConditionTrue, now)(n)
		n.Name, n.UID, n.ResourceVersion = name, "first", "1"
		f.cached = append(f.cached, n)
		f.renew(name)
		lease := f.leases[name].DeepCopy()
		lease.Namespace = v1.NamespaceNodeLease
		must(errors.Join(f.api.Tracker().Add(n.DeepCopy()), f.api.Tracker().Add(lease)))
	}
	return f
}

// must fails the test if the fake API server does.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

var (
	nodeResource  = v1.SchemeGroupVersion.WithResource("nodes")
	leaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// change changes a Node in the API server only.
func (f *liveFixture) change(name string, edit func(*v1.Node)) {
	object, err := f.api.Tracker().Get(nodeResource, "", name)
	must(err)
	n := object.DeepCopyObject().(*v1.Node)
	edit(n)
	version, _ := strconv.Atoi(n.ResourceVersion)
	n.ResourceVersion = strconv.Itoa(version + 1)
	must(f.api.Tracker().Update(nodeResource, n, ""))
}

// renewLive renews the Lease of a node in the API server only.
func (f *liveFixture) renewLive(name string) {
	lease := f.leases[name].DeepCopy()
	lease.Namespace, lease.Spec.RenewTime = v1.NamespaceNodeLease, &metav1.MicroTime{Time: f.clock.Now().Add(-24 * time.Hour)}
	must(f.api.Tracker().Update(leaseResource, lease, v1.NamespaceNodeLease))
}

// gets returns how many reads the API server has answered.
func (f *liveFixture) gets() (n int) {
	for _, a := range f.api.Actions() {
		if a.GetVerb() == "get" {
			n++
		}
	}
	return n
}

// round reads the cache as a Snapshot does, and returns the nodes that count as lost.
func (f *liveFixture) round() (lost []string) {
	at := f.clock.Now()
	reader := Reader{Policy: builtin, Signals: providers.Signals()}
	reader.Overdue, reader.Unconfirmed = f.Silent(&reader, f.cached, at)
	for _, n := range f.cached {
		if slices.ContainsFunc(reader.Announcements(n, reader.Capacity(n, at).Type, at), func(a Announcement) bool { return a.Name == UnreachableKubelet }) {
			lost = append(lost, n.Name)
		}
	}
	return lost
}

// A node whose Lease is overdue in the cache counts as lost only after a read has confirmed it.
func TestSilenceIsConfirmed(t *testing.T) {
	unknown := func(n *v1.Node) {
		n.Status.Conditions[0] = v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now)}
	}
	unreachableInCache := func(f *liveFixture) {
		f.cached[0] = f.cached[0].DeepCopy()
		unknown(f.cached[0])
		f.wait(NotReadyReclaimAfter, "a", "b")
	}
	unreachable := func(f *liveFixture) { // also in the API server, and the Lease is not renewed
		f.change("a", unknown)
		f.cached[0] = f.cached[0].DeepCopy()
		f.cached[0].ResourceVersion = "2"
		unknown(f.cached[0])
		f.wait(NotReadyReclaimAfter, "b")
	}
	overdue := func(f *liveFixture) { f.wait(NotReadyReclaimAfter, "b") }
	for name, test := range map[string]struct {
		play func(*liveFixture)
		want bool // whether a counts as lost
	}{
		"the Lease is overdue":              {play: overdue, want: true},
		"events of the Lease are late":      {play: func(f *liveFixture) { overdue(f); f.renewLive("a") }},
		"a new leader reads an old Lease":   {play: func(f *liveFixture) { f.unknownFor(time.Hour) }, want: true},
		"the read fails":                    {play: func(f *liveFixture) { overdue(f); f.err = errors.New("busy") }},
		"the Node does not exist any more":  {play: func(f *liveFixture) { overdue(f); f.deleteNode("a") }, want: true},
		"the Lease does not exist any more": {play: func(f *liveFixture) { overdue(f); f.deleteLease("a") }},
		"not overdue for long enough":       {play: func(f *liveFixture) { f.wait(NotReadyReclaimAfter-time.Second, "b") }},
		"marked by an earlier leader":       {play: func(f *liveFixture) { overdue(f); f.mark() }, want: true},
		"marked, but its Lease is renewed":  {play: func(f *liveFixture) { f.mark(); unreachableInCache(f) }},
		"Unknown in the cache only":         {play: func(f *liveFixture) { f.change("a", func(*v1.Node) {}); stopLeases(f, "a"); unreachableInCache(f) }},
		"Unknown, and the Lease is renewed": {play: unreachableInCache},
		"Unknown, the Lease is late":        {play: func(f *liveFixture) { unreachable(f); f.renewLive("a") }},
		"Unknown, and the Lease is not":     {play: unreachable, want: true},
		"Unknown, and it never had a Lease": {play: func(f *liveFixture) { stopLeases(f, "a"); unreachable(f) }, want: true},
		"a signal on an on-demand node":     {play: func(f *liveFixture) { f.cached[0].Labels = nil; overdue(f) }},
		"its Node was replaced, and is Ready": {play: func(f *liveFixture) {
			f.change("a", func(n *v1.Node) { n.UID = "second" })
			stopLeases(f, "a")
			unreachableInCache(f)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLiveFixture("a", "b")
			test.play(f)
			for range 2 {
				if got := slices.Contains(f.round(), "a"); got != test.want {
					t.Errorf("lost: %t, want %t", got, test.want)
				}
			}
		})
	}
}

// unknownFor makes the condition Ready of the node a Unknown since long ago.
func (f *liveFixture) unknownFor(long time.Duration) {
	unknown := func(n *v1.Node) {
		n.Status.Conditions[0] = v1.NodeCondition{
			Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.NewTime(f.clock.Now().Add(-long)),
		}
	}
	f.change("a", unknown)
	f.cached[0] = f.cached[0].DeepCopy()
	unknown(f.cached[0])
}

// stopLeases deletes the Lease of a node.
func stopLeases(f *liveFixture, name string) {
	f.deleteLease(name)
	f.handler().OnDelete(f.leases[name])
}

// forget replaces the cached Node a by a Node that has only a name.
func (f *liveFixture) forget(name string) {
	f.cached[0] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// deleteNode and deleteLease change the API server only.
func (f *liveFixture) deleteNode(name string) { must(f.api.Tracker().Delete(nodeResource, "", name)) }

func (f *liveFixture) deleteLease(name string) {
	must(f.api.Tracker().Delete(leaseResource, v1.NamespaceNodeLease, name))
}

// mark adds the controller's mark to the node a.
func (f *liveFixture) mark() {
	mark := func(n *v1.Node) {
		n.Annotations = map[string]string{spot.InterruptionStateAnnotation: `{"class":"reclaim","taint":"not-ready"}`}
		n.Spec.Taints = []v1.Taint{{Key: spot.InterruptionTaint, Value: UnreachableReason, Effect: v1.TaintEffectNoSchedule}}
	}
	f.change("a", mark)
	f.cached[0] = f.cached[0].DeepCopy()
	mark(f.cached[0])
}

// A silence is confirmed once. If the kubelet returns and is silent again, it is read again.
func TestSilenceIsReadOnce(t *testing.T) {
	f, reads := newLiveFixture("a", "b"), 0
	for range 2 {
		f.wait(NotReadyReclaimAfter, "b")
		for range 3 {
			if lost := f.round(); !slices.Equal(lost, []string{"a"}) || f.gets() != reads+2 {
				t.Errorf("lost: %v, after %d reads", lost, f.gets())
			}
		}
		f.renew("a")
		f.renewLive("a")
		f.unknownFor(NotReadyReclaimAfter) // not updated yet
		if lost := f.round(); len(lost) > 0 {
			t.Errorf("lost after a renewal: %v", lost)
		}
		f.cached[0].Status.Conditions[0].Status = v1.ConditionTrue
		reads = f.gets()
	}
}

// A live kubelet whose events are late for long is never lost, and costs few reads.
func TestLateEventsOfALiveKubelet(t *testing.T) {
	f := newLiveFixture("a", "b")
	for range 400 {
		f.wait(time.Second, "b")
		f.renewLive("a")
		if lost := f.round(); len(lost) > 0 {
			t.Fatalf("lost at %s: %v", f.clock.Now(), lost)
		}
	}
	if got := f.gets(); got > 2*400/int(NotReadyReclaimAfter/time.Second) {
		t.Errorf("%d reads, want at most two for each %s", got, NotReadyReclaimAfter)
	}
}

// A deletion is sent only if the Node is as it was planned for.
func TestUnchanged(t *testing.T) {
	tainted := func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "reclaimed"}} }
	for name, test := range map[string]struct {
		play    func(*liveFixture)
		silence bool
		want    bool
		wantErr bool
	}{
		"the same version":    {play: func(*liveFixture) {}, want: true},
		"a heartbeat":         {play: func(f *liveFixture) { f.change("a", func(n *v1.Node) { n.Status.Images = nil }) }, want: true},
		"a taint was removed": {play: func(f *liveFixture) { tainted(f.cached[0]); f.change("a", func(*v1.Node) {}) }},
		"replaced":            {play: func(f *liveFixture) { f.change("a", func(n *v1.Node) { n.UID = "second" }) }},
		"replaced, silence": {play: func(f *liveFixture) {
			f.wait(time.Minute, "b")
			f.change("a", func(n *v1.Node) { n.UID = "second" })
		}, silence: true},
		"gone":                        {play: func(f *liveFixture) { f.deleteNode("a") }, want: true},
		"gone, silence":               {play: func(f *liveFixture) { f.deleteNode("a") }, silence: true, want: true},
		"deleted in the plan":         {play: func(f *liveFixture) { f.forget("a"); f.deleteNode("a") }, want: true},
		"deleted only in the cache":   {play: func(f *liveFixture) { f.forget("a") }},
		"the read fails":              {play: func(f *liveFixture) { f.err = errors.New("busy") }, wantErr: true},
		"silence is confirmed":        {play: func(f *liveFixture) { f.wait(time.Minute, "b") }, silence: true, want: true},
		"silence, but events late":    {play: func(f *liveFixture) { f.wait(time.Minute, "b"); f.renewLive("a") }, silence: true},
		"silence, renewed since":      {play: func(f *liveFixture) { f.wait(time.Minute, "b"); f.renew("a") }, silence: true},
		"the Lease is not the reason": {play: func(f *liveFixture) { f.wait(time.Minute, "b"); f.renewLive("a") }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLiveFixture("a", "b")
			test.play(f)
			got, err := f.Unchanged(t.Context(), f.cached[0], test.silence)
			if got != test.want || (err != nil) != test.wantErr {
				t.Errorf("%t, %v, want %t, error: %t", got, err, test.want, test.wantErr)
			}
		})
	}
}

// If the API server does not answer, a round waits for silenceTimeout, and no node counts as lost.
func TestHangingReads(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() }))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := newLiveFixture("a", "b", "z")
	f.wait(NotReadyReclaimAfter, "z")
	f.client = client
	if lost := f.round(); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

func TestSignalsDiffer(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1.Node)
		want   bool
	}{
		"a heartbeat": {func(n *v1.Node) {
			n.ResourceVersion, n.Status.Conditions[0].LastHeartbeatTime = "2", metav1.NewTime(time.Unix(60, 0))
			n.Status.Images = []v1.ContainerImage{{SizeBytes: 1}}
		}, false},
		"a taint":      {func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "reclaimed"}) }, true},
		"a condition":  {func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionUnknown }, true},
		"a reason":     {func(n *v1.Node) { n.Status.Conditions[0].Reason = "Preempt" }, true},
		"a message":    {func(n *v1.Node) { n.Status.Conditions[0].Message = "Preempt Scheduled" }, true},
		"a label":      {func(n *v1.Node) { n.Labels["reclaimed"] = "yes" }, true},
		"a deadline":   {func(n *v1.Node) { n.Annotations[spot.InterruptionDeadlineAnnotation] = "now" }, true},
		"a cordon":     {func(n *v1.Node) { n.Spec.Unschedulable = true }, true},
		"a new status": {func(n *v1.Node) { n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "Going"}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}}
			before.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
			after := before.DeepCopy()
			test.change(after)
			if got := SignalsDiffer(before, after); got != test.want {
				t.Errorf("signals differ: %t, want %t", got, test.want)
			}
		})
	}
}
