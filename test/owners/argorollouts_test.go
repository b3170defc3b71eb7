//go:build long

package owners

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

const (
	// canaryStart is the most time from the creation of a canary's pod to its readiness. One second
	// of it is the startup of every pod in these tests.
	canaryStart = 5 * time.Second
	// rolloutRelief is more than the shipped time that a new pod waits for on-demand room in a
	// rollout.
	rolloutRelief = time.Minute
	shop          = "shop"
)

// startRollouts installs the CRDs of Argo Rollouts and starts the real controller. It listens on
// all addresses of the machine, because it has no flag for the address.
func startRollouts(t *testing.T) {
	t.Helper()
	install(t, manifests(t, "argo-rollouts"))
	metrics, err := lab.PortOnAllAddresses()
	if err != nil {
		t.Fatal(err)
	}
	health, err := lab.PortOnAllAddresses()
	if err != nil {
		t.Fatal(err)
	}
	startProgram(t, "http://127.0.0.1:"+health+"/healthz", "rollouts-controller",
		"--kubeconfig="+controlPlane.Kubeconfig, "--metricsPort="+metrics, "--healthzPort="+health, "--leader-elect=false", "--loglevel=warn")
}

// rollout creates a Rollout with pauses at 10 % and 50 %, and a floor of 2 replicas. The annotation
// is set on the Rollout or in its pod template.
func (s *scenario) rollout(replicas int, onTemplate bool) *unstructured.Unstructured {
	s.Helper()
	template := live.PodTemplate(shop)
	object := decode(s.T, fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  strategy:
    canary:
      maxSurge: 1
      maxUnavailable: 0
      steps: [{setWeight: 10}, {pause: {}}, {setWeight: 50}, {pause: {}}]
`, shop, replicas))[0]
	annotations := map[string]string{minOnDemand: "2"}
	if onTemplate {
		template.Annotations = annotations
	} else {
		object.SetAnnotations(annotations)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
	s.Must(err)
	object.Object["spec"].(map[string]any)["template"] = content
	s.create(object)
	return object
}

// setImage begins a rollout of a new revision.
func (s *scenario) setImage(rollout *unstructured.Unstructured, image string) {
	s.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	s.Must(objects.Patch(s.Ctx, rollout.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch))))
}

// isAt returns a check that the Rollout has this phase, and that this step is the next.
func (s *scenario) isAt(rollout *unstructured.Unstructured, phase string, step int64) func() error {
	return func() error {
		current := rollout.DeepCopy()
		if err := objects.Get(s.Ctx, client.ObjectKeyFromObject(rollout), current); err != nil {
			return err
		}
		gotPhase, _, _ := unstructured.NestedString(current.Object, "status", "phase")
		observed, _, _ := unstructured.NestedString(current.Object, "status", "observedGeneration")
		gotStep, _, _ := unstructured.NestedInt64(current.Object, "status", "currentStepIndex")
		if observed != fmt.Sprint(current.GetGeneration()) || gotPhase != phase || gotStep != step {
			return fmt.Errorf("the Rollout is %s at step %d (generation %s of %d), want %s at step %d",
				gotPhase, gotStep, observed, current.GetGeneration(), phase, step)
		}
		return nil
	}
}

// promote ends a pause of the Rollout, like kubectl argo rollouts promote.
func (s *scenario) promote(rollout *unstructured.Unstructured) {
	s.Helper()
	s.patch(rollout, `{"status":{"pauseConditions":null}}`, "status")
}

// startCanary begins a rollout and checks that the first pod of the new revision starts at once.
func (s *scenario) startCanary(rollout *unstructured.Unstructured, image string) {
	s.Helper()
	began := time.Now()
	s.setImage(rollout, image)
	var canary live.PodRecord
	s.Eventually(soon+rolloutRelief, func() error {
		created := since(s.Seen, began)
		i := slices.IndexFunc(created, func(r live.PodRecord) bool { return !r.Ready.IsZero() })
		if i < 0 {
			return fmt.Errorf("no new pod is ready; new pods: %d", len(created))
		}
		canary = created[i]
		return nil
	})
	took := canary.Ready.Sub(canary.Created).Round(10 * time.Millisecond)
	s.Logf("canary %s of 10 %%: ready %s after its creation", canary.Name, took)
	if took > canaryStart {
		s.Errorf("the canary was ready %s after its creation, want at most %s", took, canaryStart)
	}
}

// keepsFloor checks that at least `want` pods on on-demand were ready at every moment since
// resetLeast.
func (s *scenario) keepsFloor(want int, during string) {
	s.Helper()
	got := s.Seen.FewestOnDemand()
	s.Logf("%s: at least %d pods on on-demand were ready at every moment", during, got)
	if got < want {
		s.Errorf("%s: only %d pods on on-demand were ready, want %d", during, got, want)
	}
}

// TestLongArgoRollouts runs a canary, an abort, a promotion and scale-downs of a Rollout of 10
// replicas with a floor of 2, while on-demand has room for exactly the floor or for one more pod.
func TestLongArgoRollouts(t *testing.T) {
	startRollouts(t)
	for name, test := range map[string]struct {
		onTemplate  bool
		slots       int // on on-demand
		inPromotion int // the least number of ready pods on on-demand while the old revision ends
	}{
		// The old revision uses all room on on-demand until it ends, so its last pods end before
		// pods of the new revision start there. The same is true of a Deployment.
		"exactly the floor": {slots: 2, inPromotion: 1},
		"one more pod":      {slots: 3, onTemplate: true, inPromotion: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "", append(live.OnDemand(1, test.slots), live.Spot(2, 8)...)...)
			rollout := s.rollout(10, test.onTemplate)
			full := split{OnDemand: 2, Spot: 8}
			ok := status{Kind: "Rollout", Name: shop, State: "OK", Desired: 10, Floor: 2}
			s.Eventually(time.Minute, s.HasReadySplit(shop, full))
			s.Eventually(soon, s.isAt(rollout, "Healthy", 4))
			s.Eventually(soon, s.hasStatus(ok))

			s.Seen.ResetFewest()
			s.startCanary(rollout, "registry.invalid/app:2")
			s.Eventually(soon, s.isAt(rollout, "Paused", 1))
			s.Eventually(soon, s.hasFloor(shop, 10, 2))
			rolling := ok
			rolling.State = "RollingOut"
			s.Eventually(soon, s.hasStatus(rolling))
			s.promote(rollout)
			s.Eventually(time.Minute, s.isAt(rollout, "Paused", 3))
			s.Eventually(soon, s.hasFloor(shop, 10, 2))
			s.keepsFloor(2, "from 0 % to 50 %")

			s.patch(rollout, `{"status":{"abort":true}}`, "status")
			s.Eventually(time.Minute, s.isAt(rollout, "Degraded", 0))
			s.Eventually(time.Minute, s.HasReadySplit(shop, full))
			s.keepsFloor(2, "after an abort at 50 %")

			s.startCanary(rollout, "registry.invalid/app:3")
			s.Eventually(soon, s.isAt(rollout, "Paused", 1))
			s.promote(rollout)
			s.Eventually(time.Minute, s.isAt(rollout, "Paused", 3))
			for _, replicas := range []int{6, 10} {
				s.patch(rollout, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), "")
				s.Eventually(time.Minute, s.hasFloor(shop, replicas, 2))
			}
			s.Eventually(soon, s.isAt(rollout, "Paused", 3))
			s.keepsFloor(2, "a second canary to 50 %, scaled to 6 and back to 10")
			began := time.Now()
			s.promote(rollout)
			s.Eventually(2*rolloutRelief, s.isAt(rollout, "Healthy", 4))
			t.Logf("promotion from 50 %% to 100 %% took %s", time.Since(began).Round(time.Second))
			s.keepsFloor(test.inPromotion, "promotion from 50 % to 100 %")
			s.Eventually(time.Minute, s.HasReadySplit(shop, full))
			s.Eventually(soon, s.hasStatus(ok))

			s.Seen.ResetFewest()
			for _, replicas := range []int{5, 2} {
				s.patch(rollout, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), "")
				s.Eventually(soon, s.HasReadySplit(shop, split{OnDemand: 2, Spot: replicas - 2}))
				s.keepsFloor(2, fmt.Sprintf("scale-down to %d", replicas))
			}
		})
	}
}
