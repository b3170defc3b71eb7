package gating

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
)

// reviewOf returns the request of the API server for a pod in JSON.
func reviewOf(pod string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","operation":"CREATE","object":` + pod + `}}`
}

// send sends a body to the webhook, and returns the response and its body.
func send(t *testing.T, body io.Reader) (*http.Response, string) {
	t.Helper()
	server := httptest.NewServer(limited(review(builtin())))
	defer server.Close()
	response, err := http.Post(server.URL+webhookPath, "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// The webhook allows every pod, and adds the gate once, after the gates of others, unless the pod
// is on a node.
func TestWebhookResponse(t *testing.T) {
	add := func(path, value string) string {
		return `[{"op":"add","path":"/spec/schedulingGates` + path + `","value":` + value + `}]`
	}
	gate := `{"name":"` + spot.CapacityGate + `"}`
	for name, test := range map[string]struct{ spec, want string }{
		"no gates":         {`{"containers":[{"name":"app"}]}`, add("", "["+gate+"]")},
		"gates of null":    {`{"schedulingGates":null}`, add("", "["+gate+"]")},
		"empty gates":      {`{"schedulingGates":[]}`, add("", "["+gate+"]")},
		"another gate":     {`{"schedulingGates":[{"name":"example.com/wait"}]}`, add("/-", gate)},
		"the gate":         {`{"schedulingGates":[` + gate + `]}`, ""},
		"both":             {`{"schedulingGates":[{"name":"example.com/wait"},` + gate + `]}`, ""},
		"on a node":        {`{"nodeName":"node-1"}`, ""},
		"on no node":       {`{"nodeName":""}`, add("", "["+gate+"]")},
		"no specification": {`null`, add("", "["+gate+"]")},
		"fields of later versions, wrong types elsewhere": {
			`{"later":[1],"containers":"none","tolerations":{}}`, add("", "["+gate+"]"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			response, text := send(t, strings.NewReader(reviewOf(`{"spec":`+test.spec+`}`)))
			var got admissionv1.AdmissionReview
			if err := json.Unmarshal([]byte(text), &got); err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s: %v", response.Status, text, err)
			}
			want := admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
				Response: &admissionv1.AdmissionResponse{UID: "u1", Allowed: true},
			}
			if test.want != "" {
				jsonPatch := admissionv1.PatchTypeJSONPatch
				want.Response.Patch, want.Response.PatchType = []byte(test.want), &jsonPatch
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

// A copy of a pod loses what the controller wrote to the original, and retains what its user wrote.
func TestWebhookCleansCopies(t *testing.T) {
	const own = `{"key":"kubernetes.io/arch","operator":"In","values":["amd64"]}`
	const notSpot = `{"key":"karpenter.sh/capacity-type","operator":"NotIn","values":["spot"]}`
	const isSpot = `{"key":"karpenter.sh/capacity-type","operator":"In","values":["spot"]}`
	affinity := func(required, preferred string) string {
		if required != "" {
			required = `"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[` + required + `]}]}`
			if preferred != "" {
				required += ","
			}
		}
		if preferred != "" {
			required += `"preferredDuringSchedulingIgnoredDuringExecution":[` + preferred + `]`
		}
		return `{"nodeAffinity":{` + required + `}}`
	}
	prefers := func(weight int, expression string) string {
		return fmt.Sprintf(`{"weight":%d,"preference":{"matchExpressions":[%s]}}`, weight, expression)
	}
	for name, test := range map[string]struct{ marks, labels, affinity, want string }{
		"required":  {`"assigned":"on-demand: x"`, "", affinity(own+","+notSpot, ""), `affinity=` + affinity(own, "") + ` -assigned`},
		"only that": {`"assigned":"spot: x"`, "", affinity(isSpot, ""), `affinity={"nodeAffinity":{}} -assigned`},
		"preferred": {`"assigned":"any: x"`, "", affinity(own, prefers(50, isSpot)+","+prefers(1, isSpot)), `affinity=` + affinity(own, "") + ` -assigned`},
		"floor preferred": {`"assigned":"on-demand: x"`, "", affinity("", prefers(50, isSpot)+","+prefers(51, notSpot)+","+prefers(1, own)),
			`affinity=` + affinity("", prefers(1, own)) + ` -assigned`},
		"nothing assigned": {`"granted":"fallback u"`, "", affinity(notSpot, ""), `-granted`},
		"released":         {`"released":"{\"pod\":\"x\",\"hash\":\"5d9f\"}"`, `"pod-template-hash":"released"`, "null", `hash=5d9f -released`},
		"restored":         {`"released":"{\"pod\":\"x\",\"hash\":\"5d9f\"}"`, `"pod-template-hash":"5d9f"`, "null", `-released`},
		"forged hash":      {`"released":"{\"pod\":\"x\",\"hash\":\"a b\"}"`, `"pod-template-hash":"released"`, "null", `-hash -released`},
		"label alone":      {"", `"pod-template-hash":"released"`, "null", `-hash`},
		"no mark":          {"", "", affinity(notSpot, ""), ""},
		"all":              {`"waiting-since":"x","granted":"","released":"{","assigned":""`, "", "null", `-released -assigned -waiting-since -granted`},
	} {
		t.Run(name, func(t *testing.T) {
			marks := strings.ReplaceAll(`,`+test.marks, `,"`, `,"spot-aware-scheduler.io/`)[1:]
			_, text := send(t, strings.NewReader(reviewOf(`{"metadata":{"annotations":{`+marks+`},"labels":{`+test.labels+`}},"spec":{"affinity":`+test.affinity+`}}`)))
			var got admissionv1.AdmissionReview
			var patch []struct {
				Op, Path string
				Value    json.RawMessage
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || json.Unmarshal(got.Response.Patch, &patch) != nil {
				t.Fatalf("%s: %v", text, err)
			}
			var did []string
			for _, o := range patch {
				switch {
				case o.Path == "/metadata/labels/pod-template-hash" && o.Op == "remove":
					did = append(did, "-hash")
				case o.Path == "/metadata/labels/pod-template-hash":
					did = append(did, "hash="+strings.Trim(string(o.Value), `"`))
				case o.Path == "/spec/affinity":
					did = append(did, "affinity="+string(o.Value))
				case o.Op == "remove":
					did = append(did, strings.Replace(o.Path, "/metadata/annotations/spot-aware-scheduler.io~1", "-", 1))
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(did, " ")); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

// The webhook responds to everything else with an HTTP error, never with an AdmissionReview: the
// API server then admits the pod without a gate (failurePolicy: Ignore).
func TestWebhookFailsOpen(t *testing.T) {
	huge, err := json.Marshal(v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "app", Args: []string{strings.Repeat("<", maxReview/6)}, // each is 6 bytes in JSON
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"nothing":              "",
		"no JSON":              "\x00\xff",
		"no request":           `{"kind":"AdmissionReview"}`,
		"no object":            reviewOf("null"),
		"an object of text":    reviewOf(`"pod"`),
		"gates of text":        reviewOf(`{"spec":{"schedulingGates":"wait"}}`),
		"a node of numbers":    reviewOf(`{"spec":{"nodeName":1}}`),
		"deeply nested fields": reviewOf(strings.Repeat(`{"spec":`, 100_000)),
		"deeply nested lists":  reviewOf(`{"metadata":` + strings.Repeat("[", 1_000_000)),
		"a huge pod":           reviewOf(string(huge)),
	} {
		t.Run(name, func(t *testing.T) {
			if response, text := send(t, strings.NewReader(body)); response.StatusCode < 400 {
				t.Errorf("%s: %.200s", response.Status, text)
			}
		})
	}
}

// A request that finds no free slot in time gets an error.
func TestWebhookSlots(t *testing.T) {
	var entered atomic.Int32
	end := make(chan struct{})
	server := httptest.NewServer(limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered.Add(1)
		<-end
	})))
	defer server.Close()
	defer close(end)
	const more = 3
	refused := make(chan struct{}, maxReviews+more)
	for range maxReviews + more {
		go func() {
			response, err := http.Post(server.URL, "application/json", nil)
			if err != nil {
				return
			}
			defer response.Body.Close()
			if response.StatusCode == http.StatusServiceUnavailable {
				refused <- struct{}{}
			}
		}()
	}
	w := &world{t: t}
	w.until("all other requests are refused", func() bool { return len(refused) == more })
	if got := entered.Load(); got != maxReviews {
		t.Errorf("%d concurrent requests, want %d", got, maxReviews)
	}
}

// Requests that arrive slowly occupy all slots only for a while.
func TestWebhookLimits(t *testing.T) {
	var entered atomic.Int32
	server := httptest.NewServer(limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered.Add(1)
		review(builtin())(w, r)
	})))
	defer server.Close()
	for range maxReviews {
		connection, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		if _, err := fmt.Fprint(connection, "POST / HTTP/1.1\r\nHost: webhook\r\nContent-Length: 9\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t}
	w.until("all slots are occupied", func() bool { return entered.Load() == maxReviews })
	w.until("a review is answered beside slow requests", func() bool {
		response, err := http.Post(server.URL, "application/json", strings.NewReader(reviewOf(`{}`)))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}
