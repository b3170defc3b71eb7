package gating

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// webhookPath is the path in manifests/components/webhook.
const webhookPath = "/gate"

// webhookHost returns the name of the Service in manifests/components/webhook.
func webhookHost() string { return "spot-controller-webhook." + leader.Namespace() + ".svc" }

// The limits of requests to the webhook. Everyone who can connect may send requests, so together
// they must fit into the memory of the controller. The API server stores no pod above maxReview. It
// waits 2 s for a response, and then admits the pod without a gate.
const (
	maxReview     = 4 << 20 // bytes
	maxReviews    = 16      // concurrent
	reviewTimeout = 2 * time.Second
)

// AddWebhook adds the webhook that gates new pods to the manager. Every replica serves it at
// address, a valid host and port, and is ready only when the API server trusts its certificate.
// client must be allowed to patch the configuration of the webhook.
// policy defines the labels of capacity types.
func AddWebhook(mgr manager.Manager, client kubernetes.Interface, address string, policy *decision.Policy) error {
	host, text, err := net.SplitHostPort(address)
	port, invalid := strconv.Atoi(text)
	if err = errors.Join(err, invalid); err != nil {
		return err
	}
	certificate := &certificate{client: client}
	if ip := net.ParseIP(host); ip != nil {
		certificate.ips = []net.IP{ip}
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){func(config *tls.Config) {
		config.GetCertificate = certificate.get
		config.NextProtos = []string{"http/1.1"} // like the API server, so that its requests use all replicas
	}}})
	server.Register(webhookPath, limited(review(policy)))
	return errors.Join(mgr.Add(server), mgr.Add(certificate), mgr.AddReadyzCheck("webhook", func(*http.Request) error {
		_, err := certificate.get(nil)
		return err
	}))
}

// limited limits the size, the duration and the number of concurrent requests.
func limited(next http.Handler) http.Handler {
	slots := make(chan struct{}, maxReviews)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
		defer cancel()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			http.Error(w, "too many requests", http.StatusServiceUnavailable)
			return
		}
		// A writer without deadlines, as in a test, needs none.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(reviewTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, maxReview)
		next.ServeHTTP(w, r)
	})
}

// review answers an AdmissionReview of a new pod: it is allowed, with the gate. It responds with an
// HTTP error to anything else, because failurePolicy: Ignore then admits the pod as it is. An
// AdmissionReview with an error would refuse the pod. So this is not an admission.Handler of
// controller-runtime, which responds so to a large request or after a panic.
func review(policy *decision.Policy) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Request *struct {
				UID    types.UID `json:"uid"`
				Object *struct {
					Metadata struct {
						Annotations, Labels map[string]string
					} `json:"metadata"`
					Spec struct {
						NodeName        string                 `json:"nodeName"`
						SchedulingGates []v1.PodSchedulingGate `json:"schedulingGates"`
						Affinity        *v1.Affinity           `json:"affinity"`
					} `json:"spec"`
				} `json:"object"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil || in.Request.Object == nil {
			http.Error(w, fmt.Sprintf("expected an AdmissionReview of a pod: %v", err), http.StatusBadRequest)
			return
		}
		response := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: true}
		meta, spec := in.Request.Object.Metadata, in.Request.Object.Spec
		if patch := patchOf(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: meta.Annotations, Labels: meta.Labels},
			Spec:       v1.PodSpec{NodeName: spec.NodeName, SchedulingGates: spec.SchedulingGates, Affinity: spec.Affinity},
		}, policy); len(patch) > 0 {
			response.Patch, _ = json.Marshal(patch) // no type in it fails
			response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{ // an error means that the API server has gone
			TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Response: response,
		})
	}
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchOf returns the JSON patch of a new pod. It adds the gate, and removes what the controller
// wrote to the original of a copy, as manifests/overlays/autoscaler/policy.yaml does.
// It is empty for a pod on a node, because the API server refuses such a pod with a gate.
func patchOf(pod *v1.Pod, policy *decision.Policy) (patch []operation) {
	if pod.Spec.NodeName != "" {
		return nil
	}
	const hash = "/metadata/labels/" + appsv1.DefaultDeploymentUniqueLabelKey
	switch former := workload.FormerRelease(pod); {
	case pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != spot.ReleasedHash:
	case former != nil:
		patch = append(patch, operation{"replace", hash, former.Hash})
	default:
		patch = append(patch, operation{"remove", hash, nil})
	}
	if own := workload.OwnAffinity(pod, policy); own != pod.Spec.Affinity {
		patch = append(patch, operation{"replace", "/spec/affinity", own})
	}
	for _, mark := range spot.Marks {
		if _, marked := pod.Annotations[mark]; marked {
			patch = append(patch, operation{"remove", "/metadata/annotations/" + strings.ReplaceAll(mark, "/", "~1"), nil})
		}
	}
	gate := v1.PodSchedulingGate{Name: spot.CapacityGate}
	switch {
	case workload.Gated(pod):
	case len(pod.Spec.SchedulingGates) == 0:
		patch = append(patch, operation{"add", "/spec/schedulingGates", []v1.PodSchedulingGate{gate}})
	default:
		patch = append(patch, operation{"add", "/spec/schedulingGates/-", gate})
	}
	return patch
}
