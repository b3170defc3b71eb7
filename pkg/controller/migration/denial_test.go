package migration_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// newInterrupted returns a world whose only pod, web, runs on an interrupted node.
func newInterrupted(t *testing.T) (*world, *bench) {
	w := newWorld(t)
	w.deployment("web", 1)
	w.pod("web", w.replicaSets["web-1"], "reclaimed")
	w.sync()
	return w, newBench(w, false)
}

// A pod whose release is denied is evicted at once. A temporary failure does not lead to an
// eviction.
func TestReleaseIsDenied(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	byWebhook := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest}}
	for name, test := range map[string]struct {
		err     error
		wantLog []string
	}{
		"403, at first":    {apierrors.NewForbidden(pods, "web", errors.New("no")), nil},
		"422":              {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), []string{"evict web"}},
		"400 of a webhook": {byWebhook, []string{"evict web"}},
		"409":              {apierrors.NewConflict(pods, "web", errors.New("version")), nil},
		"500":              {apierrors.NewInternalError(errors.New("webhook is unavailable")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := newInterrupted(t)
			w.fail = func(verb, _, _ string) (error, bool) {
				if verb == "patch" {
					return test.err, true
				}
				return nil, false
			}
			b.round(10*time.Minute, "web")
			b.round(10*time.Minute, "web")
			clustertest.Equal(t, "requests", test.wantLog, b.log)
		})
	}
}

// A starting API server forbids requests that it will allow later. The pod is evicted only if this
// continues, or if no time is left to wait.
func TestReleaseIsForbidden(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no"))
	away := errors.New("connection refused")
	for name, test := range map[string]struct {
		notice time.Duration // 0: none. The pod's grace period is 30 s.
		// answer returns the result of a release.
		answer func(at time.Duration) error
		want   []string // the requests, each with its time
	}{
		"always":                     {10 * time.Minute, func(time.Duration) error { return no }, []string{"10s: evict web"}},
		"always, without a deadline": {0, func(time.Duration) error { return no }, []string{"10s: evict web"}},
		"for less than 10 s": {10 * time.Minute, func(at time.Duration) error {
			if at < 9*time.Second {
				return no
			}
			return nil
		}, []string{"10s: patch web"}},
		"again, unavailable between": {10 * time.Minute, func(at time.Duration) error {
			switch {
			case at < 9*time.Second:
				return no
			case at < 19*time.Second:
				return away
			case at < 29*time.Second:
				return no
			}
			return nil
		}, []string{"33.5s: patch web"}},
		"time for another attempt":    {50 * time.Second, func(time.Duration) error { return no }, []string{"10s: evict web"}},
		"no time for another attempt": {50*time.Second - 1, func(time.Duration) error { return no }, []string{"0s: evict web"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := newInterrupted(t)
			w.fail = func(verb, _, _ string) (error, bool) {
				if verb == "patch" {
					return test.answer(w.now.Sub(start)), true
				}
				return nil, false
			}
			var got []string
			for ; w.now.Sub(start) < time.Minute; b.pass(250 * time.Millisecond) {
				for range 2 { // a denied pod is evicted in the next round
					before := len(w.log)
					b.round(test.notice, "web")
					for _, done := range w.log[before:] {
						got = append(got, fmt.Sprintf("%s: %s", w.now.Sub(start), done))
					}
				}
				if len(got) > 0 {
					break
				}
			}
			clustertest.Equal(t, "done", test.want, got)
		})
	}
}

// Two API servers that start an hour apart do not count as a permanent denial.
func TestForbiddenLongAgo(t *testing.T) {
	w, b := newInterrupted(t)
	forbids := true
	w.fail = func(verb, _, _ string) (error, bool) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no")), forbids && verb == "patch"
	}
	const notice = 2 * time.Hour
	b.round(notice, "web")
	b.pass(time.Hour)
	b.round(notice) // no move of the pod is requested meanwhile
	b.round(notice, "web")
	forbids = false
	b.pass(10 * time.Second)
	b.round(notice, "web")
	clustertest.Equal(t, "done", []string{"patch web"}, w.log)
}

// The cause of a denial may have been fixed, also if a PodDisruptionBudget refused the eviction
// since.
func TestDeniedReleaseIsTriedAgain(t *testing.T) {
	w, b := newInterrupted(t)
	var requested []string
	w.fail = func(verb, _, _ string) (error, bool) {
		switch requested = append(requested, verb); verb {
		case "patch":
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), true
		case "evict":
			return tooManyRequests(), true
		}
		return nil, false
	}
	for range 4 {
		b.round(0, "web")
		b.pass(5*time.Minute - 1)
	}
	want := []string{"patch", "get", "evict", "get", "evict", "patch"}
	clustertest.Equal(t, "requests", want, requested)
}

// An eviction without a deadline that is always denied is requested ever more rarely.
func TestDeniedEvictionBacksOff(t *testing.T) {
	w := newWorld(t)
	b, evictions := newBench(w, false), 0
	w.fail = func(verb, _, _ string) (error, bool) {
		evictions++
		return webhookDenies, verb == "evict"
	}
	for range 3600 {
		b.executor.Do(quiet, []migration.Action{actionOn(migration.EvictPod, namespace, "web")})
		b.executor.Wait()
		b.pass(time.Second)
	}
	if evictions < 20 || evictions > 45 {
		t.Errorf("%d evictions in an hour, want about 36", evictions)
	}
}

// The answers of an API server to which admission webhooks or policies belong.
var (
	webhookDenies = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Message: `admission webhook "guard.example.com" denied the request: not today`, Reason: metav1.StatusReasonForbidden}}
	policyDenies = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Message: `pods "web" is forbidden: ValidatingAdmissionPolicy 'guard' with binding 'all' denied request: not today`, Reason: metav1.StatusReasonInvalid}}
	webhookFails = apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": connection refused`))
)

// A plan learns that the last eviction of a pod was refused or denied. A temporary failure is no
// refusal, and a refusal is not in flight: the eviction is tried again, ever more rarely.
func TestRefusedEviction(t *testing.T) {
	several := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no"))
	none, refused := migration.PodProgress{}, migration.PodProgress{Refused: true}
	both := migration.PodProgress{Unreleasable: true, Refused: true}
	for name, test := range map[string]struct {
		err      error
		patch    error // the answer to a release
		want     migration.PodProgress
		wantLate migration.PodProgress // after 11 s
	}{
		"budget":          {tooManyRequests(), nil, refused, refused},
		"several budgets": {several, nil, refused, refused},
		"webhook":         {webhookDenies, nil, refused, refused},
		"policy":          {policyDenies, nil, refused, refused},
		"failing webhook": {webhookFails, nil, refused, refused},
		"400":             {apierrors.NewBadRequest("no"), nil, refused, refused},
		"403":             {no, nil, none, refused},
		"busy":            {apierrors.NewTooManyRequests("busy", 1), nil, none, none},
		"500":             {apierrors.NewInternalError(errors.New("etcd")), nil, none, none},
		"everything":      {webhookDenies, webhookDenies, both, both},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pod := w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
			if test.patch != nil {
				w.deployment("web", 1)
				pod = w.pod("web", w.replicaSets["web-1"], "reclaimed")
			}
			w.sync()
			evictions := 0
			w.fail = func(verb, _, _ string) (error, bool) {
				switch verb {
				case "evict":
					evictions++
					return test.err, true
				case "patch":
					return test.patch, test.patch != nil
				}
				return nil, false
			}
			b := newBench(w, false)
			round := func() migration.PodProgress {
				b.round(10*time.Minute, pod.Name)
				return b.executor.Observe(w.snapshot())[pod.UID]
			}
			got := round()
			if test.patch != nil {
				got = round() // the first round tried to release it
			}
			if got != test.want {
				t.Errorf("progress after the first eviction %+v, want %+v", got, test.want)
			}
			for w.now.Sub(start) < 2*time.Minute {
				b.pass(250 * time.Millisecond)
				late := round()
				if at := w.now.Sub(start); at == 11*time.Second && late != test.wantLate {
					t.Errorf("progress after %s %+v, want %+v", at, late, test.wantLate)
				}
			}
			if evictions < 10 || evictions > 20 {
				t.Errorf("%d evictions in 2 min, want one per 10 s after the first", evictions)
			}
		})
	}
}

// A request that a webhook or a policy refuses is reported once for each cause, within 10 s, on the
// pod with the answer of the API server, and on the workload without the name of the pod.
func TestRefusalsAreReported(t *testing.T) {
	long := &apierrors.StatusError{ErrStatus: webhookDenies.ErrStatus}
	long.ErrStatus.Message += strings.Repeat("ä", 5000)
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no"))
	for name, test := range map[string]struct {
		verb     string
		errs     []error // one after the other
		move     bool    // else the pod is already released, and its move has failed
		deadline time.Duration
		want     []string
		notes    []string // a part of each note
	}{
		"eviction, webhook": {"evict", []error{webhookDenies}, false, 10 * time.Minute,
			[]string{"EvictionBlocked Pod", "EvictionBlocked Deployment"},
			[]string{`refused: admission webhook "guard.example.com" denied the request: not today`, `refused by admission webhook "guard.example.com"`}},
		"eviction, policy": {"evict", []error{policyDenies}, false, 10 * time.Minute,
			[]string{"EvictionBlocked Pod", "EvictionBlocked Deployment"}, []string{"'guard' with binding", "by ValidatingAdmissionPolicy 'guard'"}},
		"eviction, a long answer": {"evict", []error{long}, false, 10 * time.Minute,
			[]string{"EvictionBlocked Pod", "EvictionBlocked Deployment"}, []string{"ä…. The controller retries", "guard.example.com"}},
		"eviction, one cause after another": {"evict", []error{webhookDenies, policyDenies}, false, 10 * time.Minute,
			[]string{"EvictionBlocked Pod", "EvictionBlocked Deployment", "EvictionBlocked Pod", "EvictionBlocked Deployment"},
			[]string{"guard.example.com", "guard.example.com", "'guard'", "'guard'"}},
		"eviction, budget": {"evict", []error{tooManyRequests()}, false, 10 * time.Minute, []string{"EvictionBlocked Pod"}, []string{"PodDisruptionBudget"}},
		"release, webhook": {"patch", []error{webhookDenies}, true, 0,
			[]string{"ChangeRefused Pod", "ChangeRefused Deployment", "EvictedToMove Pod", "MovingPods Deployment"},
			[]string{"release the pod refused: admission webhook", "guard.example.com", "", ""}},
		"release, failing webhook": {"patch", []error{webhookFails}, true, 0, []string{"ChangeRefused Pod", "ChangeRefused Deployment"},
			[]string{`failed calling webhook "guard.example.com"`, `the failing webhook "guard.example.com"`}},
		"release, 403": {"patch", []error{no}, true, 0,
			[]string{"ChangeRefused Pod", "ChangeRefused Deployment", "EvictedToMove Pod", "MovingPods Deployment"}, []string{"forbidden: no", "by the API server", "", ""}},
		"restore":  {"patch", []error{policyDenies}, false, 0, []string{"ChangeRefused Pod", "ChangeRefused Deployment"}, []string{"restore the pod", "'guard'"}},
		"deletion": {"delete", []error{webhookDenies}, false, time.Second, []string{"ChangeRefused Pod", "ChangeRefused Deployment"}, []string{"delete the pod", "guard"}},
		"busy":     {"evict", []error{apierrors.NewTooManyRequests("busy", 1), apierrors.NewInternalError(errors.New("etcd"))}, false, time.Hour, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deployment("web", 1)
			pod := w.pod("web", w.replicaSets["web-1"], "reclaimed")
			if !test.move {
				w.released(pod, 2*time.Minute)
				if test.verb == "evict" {
					w.pod("new", w.replicaSets["web-1"], "remaining")
				}
			}
			w.sync()
			tries := 0
			w.fail = func(verb, _, _ string) (error, bool) {
				if verb != test.verb {
					return nil, false
				}
				tries++
				return test.errs[min(tries, len(test.errs))-1], true
			}
			b := newBench(w, false)
			for range 50 {
				b.round(test.deadline, "web")
				b.pass(250 * time.Millisecond)
			}
			clustertest.Equal(t, "events", test.want, b.reported)
			for i, want := range test.notes {
				note := b.notes[min(i, len(b.notes)-1)]
				if !strings.Contains(note, want) || len(note) > 1024 || strings.HasSuffix(test.want[i], "Deployment") && strings.Contains(note, `"web"`) {
					t.Errorf("note %d of %d bytes %q, want %q in it, at most 1,024 bytes, and no name of a pod on a workload", i, len(note), note, want)
				}
			}
		})
	}
}

// A budget whose pods Kubernetes cannot count never allows an eviction. It is reported with the
// first action for the pod, before the eviction is requested.
func TestBudgetThatNeverAllows(t *testing.T) {
	w := newWorld(t)
	w.pod("db-0", w.statefulSet("db", 1), "reclaimed")
	w.budget("db", 1)
	w.budgets[0].Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.SyncFailedReason, Message: "found no controllers for pod"}}
	w.sync()
	b := newBench(w, false)
	for range 3 {
		b.round(10*time.Minute, "db-0")
	}
	if len(b.notes) != 1 || !strings.Contains(b.notes[0], "PodDisruptionBudget db: found no controllers for pod") || b.reported[0] != "EvictionBlocked Pod" {
		t.Errorf("events %v %q, want one EvictionBlocked with the name of the budget and the error", b.reported, b.notes)
	}
}

// minReadySeconds that exceed the notice are reported once, on the pod and on its workload.
func TestNoticeTooShort(t *testing.T) {
	for seconds, want := range map[int32][]string{
		0: {"ReleasedToMove Pod", "MovingPods Deployment"}, 80: {"ReleasedToMove Pod", "MovingPods Deployment"},
		100: {"NoticeTooShort Pod", "NoticeTooShort Deployment", "ReleasedToMove Pod", "MovingPods Deployment"},
	} {
		w := newWorld(t)
		w.deployment("web", 1)
		w.replicaSets["web-1"].Spec.MinReadySeconds = seconds
		w.pod("web", w.replicaSets["web-1"], "reclaimed")
		w.sync()
		b := newBench(w, false)
		for range 3 {
			b.round(2*time.Minute, "web") // the grace period takes 30 s
		}
		clustertest.Equal(t, fmt.Sprintf("minReadySeconds %d: events", seconds), want, b.reported)
	}
}

// A release that a failing webhook refuses is planned again and again. The plan learns that no
// replacement starts for now.
func TestReleaseOfAFailingWebhook(t *testing.T) {
	w, b := newInterrupted(t)
	w.fail = func(verb, _, _ string) (error, bool) { return webhookFails, verb == "patch" }
	for range 3 {
		b.round(10*time.Minute, "web")
		if got := b.executor.Observe(w.snapshot())[w.pods["web"].UID]; got != (migration.PodProgress{Refused: true}) {
			t.Errorf("progress %+v, want only a refusal", got)
		}
		b.pass(time.Second)
	}
}
