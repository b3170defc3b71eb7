package audit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/audit"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestLive audits a real control plane on which the test itself binds pods, correctly and
// incorrectly.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cp, err := lab.Start(t.Context(), lab.Options{PodStartup: 100 * time.Millisecond})
	live.Must(t, err)
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(cp.Config())
	live.Must(t, err)
	nodes := []lab.NodeSpec{
		{Name: "spot-1", Capacity: lab.Spot}, {Name: "spot-2", Capacity: lab.Spot},
		{Name: "full", Capacity: lab.OnDemand, CPU: "1"},
	}
	live.Must(t, cp.CreateNodes(t.Context(), nodes...))

	t.Run("satisfies the policy", func(t *testing.T) {
		player := newPlayer(t, client, "good")
		a := audit.Watch(t, cp.Config(), audit.Options{})
		pods := player.deploy("web", 3, "500m")
		player.bind(pods[0], "spot-1")
		player.bind(pods[1], "spot-2")
		player.bind(pods[2], "full")
		eventually(t, "the floor to be met", func() bool { return len(a.Deficits()) == 0 })
		a.Require(t)
		player.clear()
	})

	t.Run("puts all replicas on spot", func(t *testing.T) {
		player := newPlayer(t, client, "broken")
		failing := &recorder{TB: t}
		a := audit.Watch(failing, cp.Config(), audit.Options{})
		pods := player.deploy("web", 3, "500m")
		for _, pod := range pods {
			player.bind(pod, "spot-1")
		}
		eventually(t, "the breach to be found", func() bool { return len(a.Breaches()) > 0 })
		failing.finish()

		breaches := a.Breaches()
		if len(breaches) != 1 || breaches[0].Kind != audit.OverBudget || breaches[0].Pod != "broken/"+pods[2] || breaches[0].Node != "spot-1" {
			t.Errorf("breaches %v, want one: pod broken/%s, the third on spot", breaches, pods[2])
		}
		if len(failing.errors) != 1 || !strings.Contains(failing.errors[0], "3 on spot with this pod, but the budget of Deployment broken/web (desired 3, floor 1) is 2") {
			t.Errorf("the test got the errors %q, want one with the numbers", failing.errors)
		}
		if deficits := a.Deficits(); len(deficits) != 1 || deficits[0].Floor != 1 || deficits[0].OnDemand != 0 {
			t.Errorf("deficits %v, want one replica missing on on-demand", deficits)
		}
		player.clear()
	})

	t.Run("puts the last replica on spot just before it is judged", func(t *testing.T) {
		player := newPlayer(t, client, "late")
		failing := &recorder{TB: t}
		audit.Watch(failing, cp.Config(), audit.Options{})
		player.bind(player.deploy("web", 1, "500m")[0], "spot-1")
		failing.finish()
		if len(failing.errors) != 1 {
			t.Errorf("the test got the errors %q, want the breach", failing.errors)
		}
		player.clear()
	})

	t.Run("misses an event", func(t *testing.T) {
		player := newPlayer(t, client, "deaf")
		a, err := audit.Start(t.Context(), cp.Config(), audit.Options{})
		live.Must(t, err)
		t.Cleanup(func() {
			if err := a.Stop(); err != nil {
				t.Error(err)
			}
		})
		pod := player.deploy("web", 1, "2")[0]
		player.refuse(pod)
		added := time.Now()
		live.Must(t, cp.CreateNodes(t.Context(), lab.NodeSpec{Name: "new", Capacity: lab.OnDemand}))
		eventually(t, "the lost wake-up to be found", func() bool { return len(a.LostWakeups()) > 0 })
		lost := a.LostWakeups()
		if len(lost) != 1 || lost[0].Pod != "deaf/"+pod || lost[0].Node != "new" || lost[0].Since.Before(added) || lost[0].At.Sub(lost[0].Since) <= audit.Patience {
			t.Errorf("lost wake-ups %v, want pod deaf/%s for node new, %s after it was added at %s", lost, pod, audit.Patience, added.Format(time.RFC3339Nano))
		}
		if breaches := a.Breaches(); len(breaches) > 0 {
			t.Errorf("breaches %v, want none", breaches)
		}
	})
}

// recorder is a test that records its errors instead of failing.
type recorder struct {
	testing.TB
	errors  []string
	cleanup []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }

func (r *recorder) finish() {
	for _, f := range r.cleanup {
		f()
	}
}

// player binds pods like a scheduler, in one namespace.
type player struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
}

func newPlayer(t *testing.T, client kubernetes.Interface, namespace string) *player {
	t.Helper()
	p := &player{t, client, namespace}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	live.Must(p.t, err)
	return p
}

// deploy creates a Deployment and returns the names of its pods when they exist.
func (p *player) deploy(name string, replicas int32, cpu string) (names []string) {
	p.t.Helper()
	template := live.PodTemplate(name)
	template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
	}}
	_, err := p.client.AppsV1().Deployments(p.namespace).Create(p.t.Context(), deployment, metav1.CreateOptions{})
	live.Must(p.t, err)
	eventually(p.t, "the pods of "+name, func() bool {
		pods, err := live.Pods(p.t.Context(), p.client, p.namespace, metav1.ListOptions{})
		live.Must(p.t, err)
		names = nil
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		return len(names) == int(replicas)
	})
	return names
}

func (p *player) bind(pod, node string) {
	p.t.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	live.Must(p.t, p.client.CoreV1().Pods(p.namespace).Bind(p.t.Context(), binding, metav1.CreateOptions{}))
}

func (p *player) refuse(name string) {
	p.t.Helper()
	pod, err := p.client.CoreV1().Pods(p.namespace).Get(p.t.Context(), name, metav1.GetOptions{})
	live.Must(p.t, err)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	_, err = p.client.CoreV1().Pods(p.namespace).UpdateStatus(p.t.Context(), pod, metav1.UpdateOptions{})
	live.Must(p.t, err)
}

// clear deletes the workloads and returns when their pods have been deleted.
func (p *player) clear() {
	p.t.Helper()
	live.Must(p.t, live.Clear(p.t.Context(), p.client, p.namespace))
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := live.Until(t.Context(), 30*time.Second, func() error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}
