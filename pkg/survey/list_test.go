package survey_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/survey"
)

// TestInvalidLists has an API server respond with bodies that are not lists of pods.
func TestInvalidLists(t *testing.T) {
	list := &v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}}
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	whole := "k8s\x00" + string(envelope)
	for name, test := range map[string]struct{ body, want string }{
		"whole":                    {whole, ""},
		"empty":                    {"", "expected protobuf"},
		"JSON":                     {`{"kind": "PodList"}`, "expected protobuf"},
		"truncated in an item":     {strings.TrimRight(whole, "\x1a\x22\x00")[:len(whole)/2], "unexpected EOF"},
		"a length above the limit": {"k8s\x00\x12\xff\xff\xff\xff\x0f\x12\xff\xff\xff\xff\x0f", "expected at most"},
		"another encoding":         {"k8s\x00\x12\x05\x15abcd", "expected bytes"},
		"not a pod":                {"k8s\x00\x12\x05\x12\x03\x0a\x05a", "list of pods"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
				body := test.body
				if !strings.HasSuffix(r.URL.Path, "/pods") {
					body = "k8s\x00"
				}
				_, _ = w.Write([]byte(body))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			taken, err := survey.Take(t.Context(), client, survey.Scope{})
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "list of pods") {
					t.Errorf("%v, want an error of pods with %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := taken.Snapshot(policy, nil, "spot-aware-scheduler", now)
			if err != nil || len(snapshot.Pods) != 2 {
				t.Errorf("%v, %d pods, want 2", err, len(snapshot.Pods))
			}
		})
	}
}
