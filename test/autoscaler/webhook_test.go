package autoscaler

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// webhookScenario has the webhook instead of the admission policy.
type webhookScenario struct {
	*live.Scenario
	address string // of the webhook
}

// startWebhook applies the manifests of the webhook and starts kube-scheduler. It starts no
// controller.
//
// The API server of the lab runs on this machine and reaches no Service. So the configuration of
// the webhook has a URL, which differs from what ships: one process serves it, and its certificate
// has the address as a further name. The rights, the rules and the conditions are the shipped ones.
func startWebhook(t *testing.T, nodes ...lab.NodeSpec) *webhookScenario {
	t.Helper()
	s := &webhookScenario{Scenario: live.NewScenario(t, controlPlane, kube, nodes...)}
	s.CountSplits = splitsByName
	s.Watch()
	var err error
	s.address, err = controlPlane.FreeAddress()
	s.Must(err)
	s.ApplyWebhook(live.AnySchedulerWebhook, s.address)
	s.Scheduler, err = controlPlane.StartStockScheduler(s.Ctx)
	s.Must(err)
	return s
}

// at returns the settings of a controller that serves the webhook at the address.
func at(address string) live.Settings {
	return modeOn.With(live.Settings{"gating.webhook.bindAddress": address})
}

// create creates a pod with a dry run, and returns its gates. It fails the test if that takes as
// long as the timeout of the webhook, three times in a row because the machine may be busy.
func (s *webhookScenario) create(edit func(*v1.PodSpec)) []v1.PodSchedulingGate {
	s.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: live.PodTemplate("app").Spec}
	edit(&pod.Spec)
	for attempt := 1; ; attempt++ {
		began := time.Now()
		gates, err := admittedGates(s.Ctx, s.Namespace, pod)
		s.Must(err)
		took := time.Since(began)
		if took < 1500*time.Millisecond {
			return gates
		}
		if attempt == 3 {
			s.Fatalf("creating a pod took %s", took)
		}
	}
}

// TestGateWebhook shows which pods get the gate from the webhook, which a standby serves. A pod
// that the webhook cannot read is admitted without the gate, and so are all pods without a
// controller.
func TestGateWebhook(t *testing.T) {
	s := startWebhook(t)
	asIs := func(*v1.PodSpec) {}
	if gates := s.create(asIs); len(gates) > 0 {
		t.Errorf("gates %v without a controller", gates)
	}
	another, err := controlPlane.FreeAddress()
	s.Must(err)
	s.StartController(at(another))
	standby := s.StartAnotherController(at(s.address))
	s.WaitForGate()
	checkGates(s.Scenario)

	huge := s.create(func(spec *v1.PodSpec) {
		spec.Containers[0].Args = []string{strings.Repeat("<", 1<<20)} // 6 MiB in JSON
	})
	if len(huge) > 0 {
		t.Errorf("gates %v of a pod above the limit of the webhook", huge)
	}
	configuration, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(s.Ctx, "spot-aware-scheduler-capacity", metav1.GetOptions{})
	s.Must(err)
	for _, webhook := range configuration.Webhooks {
		if got := strings.Count(string(webhook.ClientConfig.CABundle), "BEGIN CERTIFICATE"); got != 2 {
			t.Errorf("the bundle of %s has %d authorities, want one for each replica", webhook.Name, got)
		}
	}
	s.requireRights()

	dry, err := controlPlane.FreeAddress()
	s.Must(err)
	s.StartAnotherController(at(dry), "--dry-run")
	if connection, err := net.Dial("tcp", dry); err == nil {
		connection.Close()
		t.Error("a dry run serves the webhook")
	}
	s.Must(standby.Kill())
	if gates := s.create(asIs); len(gates) > 0 {
		t.Errorf("gates %v after the controller was killed", gates)
	}
}

// requireRights fails unless the controller may only read and patch its own configuration.
func (s *webhookScenario) requireRights() {
	s.Helper()
	const own = "spot-aware-scheduler-capacity"
	for _, test := range []struct {
		verb, name string
		want       bool
	}{
		{"get", own, true}, {"patch", own, true}, {"update", own, false}, {"delete", own, false}, {"create", own, false},
		{"patch", "another", false}, {"get", "another", false}, {"list", "", false},
	} {
		review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(s.Ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:kube-system:spot-controller", ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: test.verb, Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: test.name,
			}},
		}, metav1.CreateOptions{})
		s.Must(err)
		if review.Status.Allowed != test.want {
			s.Errorf("the controller may %s configuration %q: %t, want %t", test.verb, test.name, review.Status.Allowed, test.want)
		}
	}
}

// TestWebhookOutage: while no controller runs, pods are created without a gate, and kube-scheduler
// places them at once. The next controller heals their floor.
func TestWebhookOutage(t *testing.T) {
	s := startWebhook(t, append(live.OnDemand(1, 10), live.Spot(2, 10)...)...)
	s.Must(labelNamespace(s.Ctx, s.Namespace, "keep-scheduler"))
	s.StartController(at(s.address))
	s.WaitForGate()
	s.Deploy("before", 3, kept)
	s.Eventually(soon, s.HasReadySplit("before", live.Split{OnDemand: 1, Spot: 2}))

	s.Must(s.Controller.Kill())
	s.EditNode("od-1", func(node *v1.Node) { node.Spec.Unschedulable = true })
	began := time.Now()
	s.Deploy("meanwhile", 3, kept)
	s.Eventually(soon, func() error {
		pods, err := live.Pods(s.Ctx, kube, s.Namespace, metav1.ListOptions{LabelSelector: "app=meanwhile"})
		if err == nil && len(pods) != 3 {
			err = fmt.Errorf("%d pods, want 3", len(pods))
		}
		for _, pod := range pods {
			if live.Gated(&pod) {
				s.Fatalf("pod %s has the gate although no controller runs", pod.Name)
			}
			if pod.Spec.NodeName == "" {
				err = errors.New("a pod waits")
			}
		}
		return err
	})
	t.Logf("placed without a controller after %s", time.Since(began).Round(100*time.Millisecond))

	s.EditNode("od-1", func(node *v1.Node) { node.Spec.Unschedulable = false })
	began = time.Now()
	s.StartController(at(s.address))
	s.Eventually(time.Minute, s.HasReadySplit("meanwhile", live.Split{OnDemand: 1, Spot: 2}))
	t.Logf("healed %s after the controller was started", time.Since(began).Round(100*time.Millisecond))
}
