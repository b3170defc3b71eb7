package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// switchServer is an API server with one ConfigMap and the user jane. It gets everything else from
// cluster, unless that is nil.
type switchServer struct {
	t         *testing.T
	cluster   http.Handler
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
	case !strings.HasSuffix(r.URL.Path, "/configmaps") && !strings.HasSuffix(r.URL.Path, "/"+safety.SwitchesName) && s.cluster != nil:
		s.cluster.ServeHTTP(w, r)
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

// start starts the server until the end of the test, and returns a kubeconfig.
func (s *switchServer) start() (kubeconfig string) {
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	kubeconfig = filepath.Join(s.t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return kubeconfig
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
	kubeconfig := s.start()
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

// pause and resume print what the controller starts and what the pause costs. They succeed if the
// cluster cannot be read.
func TestEffectOfPause(t *testing.T) {
	const signal = "taint=aws-node-termination-handler/spot-itn annotation=spot-aware-scheduler.io/interruption-deadline="
	objects := append(controllerOnly(t, "")[2:], clustertest.Objects("node od on-demand m/a\nnode ends spot m/a "+signal+"2100-01-01T00:00:00Z\n"+
		"node outlived spot m/a "+signal+"2026-11-27T12:00:00Z\ndeployment web 3 ends outlived outlived\ndeployment one 1 ends")...)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: leader.Controller}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a"), RenewTime: ptr.To(metav1.NowMicro()), LeaseDurationSeconds: ptr.To[int32](900)}
	const first, last = "(first deadline 2026-11-27T12:00:00Z)", "(first deadline 2100-01-01T00:00:00Z)"
	const reclaim = "reclaim: moves 4 pods on 2 nodes " + first + " within their budgets; the deadline of 2 pods on 1 node " + first +
		" has passed, but the node is Ready: none is deleted; if the signals are false, pause and remove them before resume\n"
	const deadline = "deadline: deletes the rest of 2 pods on 1 node " + last + " at the deadline\n"
	const cost = "Lost with their nodes during the pause: 2 pods on 1 node " + last + "; 1 workload has no other replica\n"
	const others = "advisory: nothing\nheal: moves a replica of 0 workloads now\nreturn-to-spot: moves a replica of 0 workloads now\n"
	for name, test := range map[string]struct {
		before  string // the pause in effect
		args    string
		denied  []string
		stopped bool // no controller runs
		want    string
		wantErr string // on standard error
	}{
		"pause":                     {args: "pause", want: cost},
		"pause of reclaims":         {args: "pause --only reclaim", want: cost},
		"pause of others":           {args: "pause --only heal"},
		"pause until before":        {args: "pause --for 1h"},
		"pause until after":         {args: "pause --for 900000h", want: cost},
		"a shorter pause":           {before: "only: [reclaim]", args: "pause --for 1h --only heal", want: reclaim + deadline},
		"resume":                    {before: "by: jane", args: "resume", want: reclaim + deadline + others},
		"resume of reclaims":        {before: "only: [reclaim]", args: "resume", want: reclaim + deadline},
		"resume of deletions":       {before: "only: [deadline]", args: "resume", want: deadline},
		"resume without a pause":    {args: "resume"},
		"resume, no controller":     {before: "only: [reclaim]", args: "resume", stopped: true, want: "reclaim: no controller is running"},
		"resume, denied pods":       {before: "only: [reclaim]", args: "resume", denied: []string{"pods"}, wantErr: `cannot list resource "pods"`},
		"resume, denied nodes":      {before: "only: [reclaim]", args: "resume", denied: []string{"nodes"}, wantErr: `cannot list resource "nodes"`},
		"resume, denied Lease":      {before: "only: [deadline]", args: "resume", denied: []string{"leases"}, want: deadline, wantErr: "whether a controller is running"},
		"pause, denied pods":        {args: "pause", denied: []string{"pods"}, wantErr: "the effect on pods is unknown: "},
		"pause, denied volumes":     {args: "pause", denied: []string{"persistentvolumes"}, want: cost, wantErr: "persistentvolumes"},
		"the breaker has no effect": {before: "only: [reclaim]", args: "breaker open"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := listertest.Start(t, append(objects, lease)...)
			if test.stopped {
				cluster = listertest.Start(t, objects...)
			}
			cluster.Deny = test.denied
			address, err := url.Parse(cluster.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(address)
			proxy.ErrorLog = log.New(io.Discard, "", 0)
			s := &switchServer{t: t, cluster: proxy}
			if s.set(map[string]string{}); test.before != "" {
				s.set(map[string]string{"pause": test.before})
			}
			out, errOut, status := execute(t, append(strings.Fields(test.args), shipped, "--kubeconfig="+s.start())...)
			first, rest, _ := strings.Cut(out, "\n")
			if strings.HasPrefix(first, "Paused: ") || strings.HasPrefix(first, "Breaker: ") {
				_, rest, _ = strings.Cut(rest, "\n") // how to end it
			}
			if status != 0 || !strings.HasPrefix(rest, test.want) || (rest == "") != (test.want == "") || test.args == "resume" && s.values().Pause != nil {
				t.Errorf("exit status %d, %q, want %q\n%s", status, rest, test.want, errOut)
			}
			if !strings.Contains(errOut, test.wantErr) || (errOut == "") != (test.wantErr == "") || strings.Count(errOut, "warning: ") > 2 {
				t.Errorf("standard error %q, want at most two warnings, with %q", errOut, test.wantErr)
			}
		})
	}
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
