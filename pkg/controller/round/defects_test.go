package round

import (
	"bytes"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

func TestDefects(t *testing.T) {
	var log bytes.Buffer
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	t.Cleanup(klog.ClearLogger)
	invalidPods.Create(nil)
	of := func(uid string, kind snapshot.DefectKind) snapshot.Defect {
		return snapshot.Defect{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: uid, UID: types.UID(uid)}}, Kind: kind, Why: "no such owner"}
	}
	d := defects{recorder: events.NewFakeRecorder(0)}
	for i, step := range []struct {
		defects                     []snapshot.Defect
		wantOwners, wantReleases    float64
		wantLogged, wantRemembering int
	}{
		{[]snapshot.Defect{of("a", snapshot.WrongOwner), of("b", snapshot.WrongRelease), of("c", snapshot.WrongRelease)}, 1, 2, 3, 3},
		{[]snapshot.Defect{of("a", snapshot.WrongOwner), of("b", snapshot.WrongRelease)}, 1, 1, 0, 2},
		{[]snapshot.Defect{of("a", snapshot.WrongRelease)}, 0, 1, 1, 1},
		{nil, 0, 0, 0, 0},
		{[]snapshot.Defect{of("a", snapshot.WrongOwner)}, 1, 0, 1, 1},
	} {
		log.Reset()
		d.observe(&snapshot.Snapshot{Defects: step.defects}, nil, nil)
		for kind, want := range map[snapshot.DefectKind]float64{snapshot.WrongOwner: step.wantOwners, snapshot.WrongRelease: step.wantReleases} {
			if got, err := testutil.GetGaugeMetricValue(invalidPods.WithLabelValues(string(kind))); err != nil || got != want {
				t.Errorf("step %d: %g pods with claim %s (%v), want %g", i, got, kind, err, want)
			}
		}
		if got := strings.Count(log.String(), "Ignored invalid claim of pod"); got != step.wantLogged || len(d.observed) != step.wantRemembering {
			t.Errorf("step %d: %d lines, remembering %d; want %d and %d:\n%s", i, got, len(d.observed), step.wantLogged, step.wantRemembering, log.String())
		}
	}
}
