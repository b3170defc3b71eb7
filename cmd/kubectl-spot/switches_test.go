package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// switchServer is an API server with one ConfigMap and the user jane.
type switchServer struct {
	t         *testing.T
	configMap *v1.ConfigMap // nil if it does not exist
	denied    bool
	// beforeUpdate, if set, is called once before the next update.
	beforeUpdate func()
}

func (s *switchServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := v1.Resource("configmaps")
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"}}
		review.Status.UserInfo.Username = "jane"
		s.respond(w, http.StatusCreated, review)
	case !strings.Contains(r.URL.Path, "/namespaces/kube-system/configmaps"):
		s.fail(w, apierrors.NewNotFound(resource, r.URL.Path))
	case s.denied:
		s.fail(w, apierrors.NewForbidden(resource, safety.SwitchesName, fmt.Errorf("no right to %s", r.Method)))
	case r.Method == http.MethodGet && s.configMap == nil:
		s.fail(w, apierrors.NewNotFound(resource, safety.SwitchesName))
	case r.Method == http.MethodGet:
		s.respond(w, http.StatusOK, s.configMap)
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			s.t.Error(err)
		}
		if s.beforeUpdate != nil {
			s.beforeUpdate()
			s.beforeUpdate = nil
		}
		switch sent := object.(*v1.ConfigMap); {
		case s.configMap != nil && r.Method == http.MethodPost:
			s.fail(w, apierrors.NewAlreadyExists(resource, safety.SwitchesName))
		case s.configMap != nil && sent.ResourceVersion != s.configMap.ResourceVersion:
			s.fail(w, apierrors.NewConflict(resource, safety.SwitchesName, fmt.Errorf("another version")))
		default:
			s.set(sent.Data)
			s.respond(w, http.StatusOK, s.configMap)
		}
	}
}

// set replaces the ConfigMap.
func (s *switchServer) set(data map[string]string) {
	version := 1
	if s.configMap != nil {
		if _, err := fmt.Sscan(s.configMap.ResourceVersion, &version); err != nil {
			s.t.Error(err)
		}
	}
	s.configMap = &v1.ConfigMap{Data: data, ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: safety.SwitchesName, UID: "uid", ResourceVersion: fmt.Sprint(version + 1)}}
	s.configMap.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
}

func (s *switchServer) fail(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	s.respond(w, int(err.ErrStatus.Code), &err.ErrStatus)
}

func (s *switchServer) respond(w http.ResponseWriter, status int, object runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		s.t.Error(err)
	}
}

// values returns the switches in the server.
func (s *switchServer) values() safety.SwitchValues {
	values, err := safety.ReadSwitches(s.configMap)
	if err != nil {
		s.t.Error(err)
	}
	return values
}

// A pause, a forced breaker and their ends, one after the other.
func TestSwitches(t *testing.T) {
	s := &switchServer{t: t}
	server := httptest.NewServer(s)
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(wantStatus int, want string, args ...string) {
		t.Helper()
		out, errOut, status := execute(t, append(args, "--kubeconfig="+kubeconfig)...)
		if status != wantStatus || !strings.Contains(out+errOut, want) {
			t.Errorf("%q: exit status %d, want %d and %q:\n%s%s", args, status, wantStatus, want, out, errOut)
		}
	}
	command(0, "The controller is not paused.", "resume")
	if s.configMap != nil {
		t.Error("resume without a pause creates the ConfigMap")
	}
	command(0, "Paused: heal, assign until ", "pause", "--for", "1h", "--only", "heal,assign", "--message", "a\x1bb")
	pause := s.values().Pause
	if left := time.Until(pause.Until.Time); left < 59*time.Minute || left > time.Hour || pause.By != "jane" || pause.Since == nil {
		t.Errorf("the pause is %+v", pause)
	}
	if out, _, _ := execute(t, "resume", "--kubeconfig="+kubeconfig); !strings.Contains(out, "Resumed. The pause was: heal, assign until ") ||
		strings.Contains(out, "\x1b") || s.values().Pause != nil {
		t.Errorf("resume: %q, and the pause is %v", out, s.values().Pause)
	}
	command(0, "Paused: everything without an end, since ", "pause")
	command(0, "Breaker: Open until ", "breaker", "open", "--for=30m")
	if values := s.values(); values.Pause == nil || values.Breaker.State != safety.BreakerOpen {
		t.Errorf("the breaker replaces the pause: %+v", values)
	}
	// Another client resumes at the same time.
	s.beforeUpdate = func() { s.set(map[string]string{"breaker": "state: Closed"}) }
	command(0, "Paused: drain ", "pause", "--only=drain")
	if values := s.values(); values.Breaker.State != safety.BreakerClosed || len(values.Pause.Only) != 1 {
		t.Errorf("the change of another client is lost: %+v", values)
	}
	command(0, "The controller decides", "breaker", "auto")
	s.set(map[string]string{"pause": "until: 2020-01-01T00:00:00Z"})
	command(0, "The controller is not paused.", "resume")
	s.set(map[string]string{"pause": "only: [heel]"})
	command(0, "had an invalid value", "pause", "--for=1m")
	if s.values().Pause.Until == nil {
		t.Error("an invalid pause is not replaced")
	}
	s.denied = true
	command(1, "The Role spot-operator has this right", "pause")
	command(1, "The Role spot-operator has this right", "resume")
	for _, args := range [][]string{
		{"pause", "--for=0"}, {"pause", "--for=-1h"}, {"pause", "--for=soon"}, {"breaker"}, {"breaker", "ajar"}, {"breaker", "open", "--for=0s"},
		{"pause", "now"},
	} {
		command(2, "error: ", args...)
	}
	command(2, `unknown reason "heel": expected advisory, assign, `, "pause", "--only=heel")
}

// Every command warns of a pause, and its JSON has it.
func TestWarningsOfPause(t *testing.T) {
	configMap := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: safety.SwitchesName}, Data: map[string]string{
		"pause": "by: jane\nonly: [reclaim]\nmessage: wait", "breaker": "state: Closed"}}
	kubeconfig := cluster(t, "", configMap)
	for _, args := range [][]string{
		{"status"}, {"nodes"}, {"explain", "pod/p"}, {"what-if", "--lose=all-spot"}, {"savings"},
	} {
		args = append(args, shipped, "--kubeconfig="+kubeconfig)
		_, errOut, _ := execute(t, args...)
		if want := "warning: the controller is paused: reclaim without an end, by jane: wait; kubectl spot resume ends the pause; " +
			"the breaker is forced: Closed without an end; kubectl spot breaker auto ends this\n"; strings.Count(errOut, want) != 1 {
			t.Errorf("%q: %s", args, errOut)
		}
		out, _, _ := execute(t, append(args, "-o=jsonpath={.pause.by} {.breaker.state}")...)
		if out != "jane Closed" {
			t.Errorf("%q: JSON %q", args, out)
		}
	}
	_, errOut, status := execute(t, "nodes", shipped, "--kubeconfig="+cluster(t, "configmaps"))
	if status != exitPartial || !strings.Contains(errOut, "whether the controller is paused is unknown") {
		t.Errorf("without the right: exit status %d, %s", status, errOut)
	}
}
