package replicasafety

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/placement"
)

// A pod whose constraints admit only existing nodes of one capacity type is treated like a pod that
// requires this type. Filter here is only that of the plugin.
func TestConstraintsAreJudgedByNodes(t *testing.T) {
	zone := func(value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelTopologyZone: value} }
	}
	claims := func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
	}
	both, never := []string{"od-a", "spot-b"}, map[string]string{spot.OverflowAnnotation: "Never", spot.MinOnDemandAnnotation: "0"}
	cases := map[string]struct {
		args        func(*config.ReplicaSafetyArgs)
		annotations map[string]string // of the Deployment "web", of 2 replicas
		pod         func(*v1.Pod)
		onSpot      int
		feasible    []string
		reason      string // for spot-b
		event       string
	}{
		"no constraints":           {pod: func(*v1.Pod) {}, onSpot: 1, feasible: []string{"od-a"}, reason: "waits for on-demand room"},
		"a zone of spot":           {pod: zone("b"), onSpot: 1, feasible: both, event: "Normal ExemptFromFloor"},
		"a zone of on-demand":      {pod: zone("a"), onSpot: 1, feasible: []string{"od-a"}, reason: "waits for on-demand room"},
		"a volume in a spot zone":  {pod: claims, onSpot: 1, feasible: both, event: "Normal ExemptFromFloor"},
		"exemptions are ignored":   {args: func(a *config.ReplicaSafetyArgs) { a.Exemptions = new(config.IgnoreExemptions) }, pod: zone("b"), onSpot: 1, feasible: []string{"od-a"}, reason: "own constraints admit only spot, but exemptions are ignored"},
		"overflow Never":           {annotations: never, pod: func(*v1.Pod) {}, feasible: []string{"spot-b"}},
		"overflow Never, only od":  {annotations: never, pod: zone("a"), feasible: both},
		"overflow Never, only sp":  {annotations: never, pod: zone("b"), feasible: []string{"spot-b"}},
		"overflow Never, two full": {annotations: never, pod: zone("a"), onSpot: 2, feasible: []string{"od-a"}, reason: "spot budget used up"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			objects := withAnnotations(test.annotations, deployment("web", 2, "1"))
			for _, object := range clustertest.Objects("statefulset db 1 spot-b volume=b") {
				switch object.(type) {
				case *v1.PersistentVolumeClaim, *v1.PersistentVolume:
					objects = append(objects, object)
				}
			}
			w := newWorld(t, test.args, objects...)
			w.factory.WaitForCacheSync(w.ctx.Done())
			w.nodes(clustertest.NewNode("od-a", "on-demand", "m/a"), clustertest.NewNode("spot-b", "spot", "m/b"))
			for _, name := range []string{"x", "y"}[:test.onSpot] {
				w.addPods("spot-b", web(name))
			}
			pod := changed(web("p"), test.pod)
			w.plugin.waiting.AddUnschedulable(pod, placement.Wait{})
			w.clock.Step(2 * decision.MaxOwnerDelay)
			o := w.try(pod)
			if diff := cmp.Diff(test.feasible, o.feasible); diff != "" {
				t.Errorf("feasible (-want +got):\n%s", diff)
			}
			if test.reason != "" && !strings.Contains(w.reasons(o)["spot-b"], test.reason) {
				t.Errorf("reasons %v, want %q for spot-b", w.reasons(o), test.reason)
			}
			if test.event != "" {
				w.bind(o, pod, "spot-b")
				if got := w.recorded(); !slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, test.event) }) {
					t.Errorf("events %q, want %q", got, test.event)
				}
			}
		})
	}
}
