// Package responder lets the controller respond to the Evictions of Kubernetes 1.37 (KEP-4563). A
// pod names this responder in spec.evictionResponders, and an EvictionRequest asks for its
// eviction. The controller then replaces the pod first and evicts it afterwards. If the pod cannot
// be replaced, the responder reports why, and Kubernetes asks the next responder.
//
// The API is alpha. No other package of this project uses it. k8s.io/api contains it only since
// 0.37, so this package declares the few fields that it reads.
package responder

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// Resource is the resource of the Evictions that Kubernetes creates for EvictionRequests. It is not
// the subresource of pods.
var Resource = schema.GroupVersionResource{Group: "lifecycle.k8s.io", Version: "v1alpha1", Resource: "evictions"}

// heartbeatInterval is the interval of heartbeats while the responder waits for a replacement.
// Kubernetes asks the next responder after 20 min without a heartbeat.
const heartbeatInterval = 5 * time.Minute

// podsDelay is how long the cache of pods may lack the release that a heartbeat confirms. The cache
// of Evictions may be newer, in particular for a new leader.
const podsDelay = 30 * time.Second

type eviction struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		TargetResponders []struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"targetResponders"`
		Responders []responderStatus `json:"responders"`
	} `json:"status"`
}

type responderStatus struct {
	Name           string       `json:"name"`
	StartTime      *metav1.Time `json:"startTime"`
	HeartbeatTime  *metav1.Time `json:"heartbeatTime"`
	CompletionTime *metav1.Time `json:"completionTime"`
}

// Settings are the inputs of a plan besides the cluster.
type Settings struct {
	// ReplacementTimeout is how long a replacement may lack room before the next responder is
	// asked.
	ReplacementTimeout time.Duration
	// Selects reports whether pods of a namespace are moved; nil selects all namespaces.
	Selects func(namespace string) bool
}

// Response is the response of this responder to one Eviction.
type Response struct {
	Eviction *unstructured.Unstructured
	// Message is for users. Done: the responder has finished, and Kubernetes asks the next one.
	Message string
	Done    bool
}

// Plan returns the reaction to Evictions: the moves that this responder is asked for, and the
// responses to write. requested are the pods whose eviction is requested, from any responder. A
// PodDisruptionBudget must not block these evictions for ever. Plan ignores Evictions that cannot
// be decoded, and Evictions of pods that are not in the snapshot.
func Plan(
	s *snapshot.Snapshot, evictions []*unstructured.Unstructured, settings Settings,
) (moves []migration.Move, requested map[types.UID]bool, responses []Response) {
	if len(evictions) == 0 {
		return nil, nil, nil
	}
	requested = map[types.UID]bool{}
	pods := map[types.UID]*snapshot.Pod{}
	for _, pod := range s.Pods {
		pods[pod.UID] = pod
	}
	neverSurges := migration.NoSurgeReason(s)
	for _, object := range evictions {
		uid, _, _ := unstructured.NestedString(object.Object, "spec", "target", "pod", "uid")
		pod := pods[types.UID(uid)]
		if pod == nil || pod.Namespace != object.GetNamespace() || pod.DeletionTimestamp != nil || ended(object) {
			continue
		}
		var e eviction // decoded last, because ended Evictions may exist for long
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &e); err != nil {
			continue
		}
		requested[pod.UID] = true
		own := e.ownStatus()
		if own == nil || own.CompletionTime != nil {
			continue
		}
		done, never := "", neverSurges(pod)
		switch started := own.HeartbeatTime != nil; {
		case pod.Release != nil:
			if !started || s.Now.Sub(own.HeartbeatTime.Time) >= heartbeatInterval {
				responses = append(responses, Response{object, "its replacement starts; the pod is evicted when the replacement is ready", false})
			}
		case !workload.PolicyApplies(pod.Pod), settings.Selects != nil && !settings.Selects(pod.Namespace):
			done = "the controller is configured not to move it"
		case never != "":
			done = "it cannot be replaced before it is evicted: " + never
		case started && s.Now.Sub(own.HeartbeatTime.Time) < podsDelay:
			continue // it is released, and the snapshot does not show it yet
		case started:
			done = "its replacement was not ready in time"
		case own.StartTime != nil && s.Now.Sub(own.StartTime.Time) >= settings.ReplacementTimeout:
			done = fmt.Sprintf("no replacement could start within %s", settings.ReplacementTimeout)
		}
		if done != "" {
			responses = append(responses, Response{object, done, true})
			continue
		}
		moves = append(moves, migration.Move{Pod: pod, Reason: migration.Requested, OnlySurge: true})
	}
	return moves, requested, responses
}

// Released returns moves of the pods that were released for an Eviction. The controller uses it
// until the Evictions are in the cache, so that these pods stay released.
func Released(s *snapshot.Snapshot) (moves []migration.Move) {
	for _, pod := range s.Pods {
		if pod.Release != nil && pod.Release.Reason == string(migration.Requested) {
			moves = append(moves, migration.Move{Pod: pod, Reason: migration.Requested, OnlySurge: true})
		}
	}
	return moves
}

func ended(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	all, _ := conditions.([]any)
	return object.GetDeletionTimestamp() != nil || slices.ContainsFunc(all, func(one any) bool {
		c, _ := one.(map[string]any)
		return (c["type"] == "Failed" || c["type"] == "TargetEvicted") && c["status"] == string(metav1.ConditionTrue)
	})
}

// ownStatus returns the status of this responder if it is active; nil otherwise.
func (e *eviction) ownStatus() *responderStatus {
	for _, target := range e.Status.TargetResponders {
		if target.Name != spot.EvictionResponder || target.State != "Active" {
			continue
		}
		for i := range e.Status.Responders {
			if e.Status.Responders[i].Name == spot.EvictionResponder {
				return &e.Status.Responders[i]
			}
		}
	}
	return nil
}

// Apply writes the response. It returns a conflict if the Eviction has changed since the plan.
func (r *Response) Apply(ctx context.Context, client dynamic.Interface, now time.Time) error {
	written := r.Eviction.DeepCopy()
	responders, _, err := unstructured.NestedSlice(written.Object, "status", "responders")
	if err != nil {
		return fmt.Errorf("reading status.responders: %w", err)
	}
	for _, entry := range responders {
		own, ok := entry.(map[string]any)
		if !ok || own["name"] != spot.EvictionResponder {
			continue
		}
		at := notBefore(now.UTC(), own["startTime"], own["heartbeatTime"]).Format(time.RFC3339)
		own["heartbeatTime"], own["message"] = at, r.Message
		if r.Done {
			own["completionTime"] = at
		}
	}
	if err := unstructured.SetNestedSlice(written.Object, responders, "status", "responders"); err != nil {
		return fmt.Errorf("writing status.responders: %w", err)
	}
	_, err = client.Resource(Resource).Namespace(written.GetNamespace()).UpdateStatus(ctx, written, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("response to Eviction %s/%s: %w", written.GetNamespace(), written.GetName(), err)
	}
	return nil
}

// notBefore returns the latest of now and times. The API server rejects a time before them, and the
// clock of their writer may be ahead.
func notBefore(now time.Time, times ...any) time.Time {
	for _, text := range times {
		if text, ok := text.(string); ok {
			if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(now) {
				now = at
			}
		}
	}
	return now
}
