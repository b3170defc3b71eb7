package migration_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// newLeaving returns a world whose only pod, web, is on a node that it is to leave.
func newLeaving() (*world, *bench) {
	w := newWorld()
	w.deployment("web", 1)
	w.pod("web", w.replicaSets["web-1"], "going")
	w.sync()
	return w, newBench(w, false)
}

// A pod that may not be released is evicted, without waiting; one that cannot now is not.
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
		"500":              {apierrors.NewInternalError(errors.New("webhook is away")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := newLeaving()
			w.fail = func(verb, _, _ string) (error, bool) {
				if verb == "patch" {
					return test.err, true
				}
				return nil, false
			}
			b.round(10*time.Minute, "web")
			b.round(10*time.Minute, "web")
			if diff := cmp.Diff(test.wantLog, b.log); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// An API server that starts forbids what it will grant: only where that goes on, or there is no time to see, is the pod evicted instead.
func TestReleaseIsForbidden(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no"))
	away := errors.New("connection refused")
	for name, test := range map[string]struct {
		notice time.Duration // 0: none. The pod's grace period is 30 s.
		// answer says what comes of a release.
		answer func(at time.Duration) error
		want   []string // what is done, and when
	}{
		"always":                  {10 * time.Minute, func(time.Duration) error { return no }, []string{"10s: evict web"}},
		"always, and no deadline": {0, func(time.Duration) error { return no }, []string{"10s: evict web"}},
		"for less than 10 s": {10 * time.Minute, func(at time.Duration) error {
			if at < 9*time.Second {
				return no
			}
			return nil
		}, []string{"10s: patch web"}},
		"again, and away between": {10 * time.Minute, func(at time.Duration) error {
			switch {
			case at < 9*time.Second:
				return no
			case at < 19*time.Second:
				return away
			case at < 29*time.Second:
				return no
			}
			return nil
		}, []string{"30s: patch web"}},
		"there is time to see":    {50 * time.Second, func(time.Duration) error { return no }, []string{"10s: evict web"}},
		"there is no time to see": {50*time.Second - 1, func(time.Duration) error { return no }, []string{"0s: evict web"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := newLeaving()
			w.fail = func(verb, _, _ string) (error, bool) {
				if verb == "patch" {
					return test.answer(w.now.Sub(start)), true
				}
				return nil, false
			}
			var got []string
			for ; w.now.Sub(start) < time.Minute; b.pass(250 * time.Millisecond) {
				for range 2 { // what is denied now is evicted in the next round
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
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		})
	}
}

// Two API servers that start, an hour apart, are not one that forbids the release for good.
func TestForbiddenLongAgo(t *testing.T) {
	w, b := newLeaving()
	forbids := true
	w.fail = func(verb, _, _ string) (error, bool) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no")), forbids && verb == "patch"
	}
	const notice = 2 * time.Hour
	b.round(notice, "web")
	b.pass(time.Hour)
	b.round(notice) // nobody asks for it meanwhile
	b.round(notice, "web")
	forbids = false
	b.pass(10 * time.Second)
	b.round(notice, "web")
	if diff := cmp.Diff([]string{"patch web"}, w.log); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
}

// Whoever denied a release may have been mended later, also when a budget refused the eviction since.
func TestDeniedReleaseIsTriedAgain(t *testing.T) {
	w, b := newLeaving()
	var asked []string
	w.fail = func(verb, _, _ string) (error, bool) {
		switch asked = append(asked, verb); verb {
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
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
