package workload

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

// OwnerKey identifies the controller of a pod or ReplicaSet. Tenants write owner references, and
// the UID of an object in another namespace or of another kind proves nothing. OwnerKey therefore
// includes namespace, group and kind. It excludes the version, because a reference has the version
// that its writer used.
type OwnerKey struct {
	Namespace, Group, Kind string
	UID                    types.UID
	// Role distinguishes the groups of pods of one controller that have no common template; see
	// roleOf. It is "" for controllers of supported kinds.
	Role string
}

// KeyOf returns the key of the object that ref refers to. namespace is that of the object with the
// reference. A tenant may refer to an object that does not exist, with a UID of 1 MB. Some keys are
// retained after the pod, so longer parts than an object can have are replaced by their hashes.
func KeyOf(namespace string, ref *metav1.OwnerReference) OwnerKey {
	group := short(groupOf(ref))
	if len(ref.APIVersion) > maxPart { // group may be a part of it, and would retain the whole
		group = strings.Clone(group)
	}
	return OwnerKey{Namespace: namespace, Group: group, Kind: short(ref.Kind), UID: types.UID(short(string(ref.UID)))}
}

// maxPart is the length of the longest group, kind or UID that exists, in characters.
const maxPart = validation.DNS1123SubdomainMaxLength

// short returns part, or its hash if part is too long to exist.
func short(part string) string {
	if len(part) <= maxPart {
		return part
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(part)))
}

// The kinds of groups of pods that an object controls, but did not create as its replicas. Rules
// and reports use them like the kinds of owners. Such a group never has the key of the object
// itself: its pods are no replicas of it.
const (
	podsOfDeployment  = "PodsOfDeployment"
	podsOfPod         = "PodsOfPod"
	podsOfStatefulSet = "PodsOfStatefulSet"
	podsOfJob         = "PodsOfJob"
)

// Direct reports whether k is the key of pods that an object controls but did not create. They have
// no common template, so some may name another scheduler.
func (k OwnerKey) Direct() bool { return strings.HasPrefix(k.Kind, "PodsOf") }

// RevisionOf returns the key that the pod and its siblings are counted by; see Subject.RevisionKey.
func RevisionOf(pod *v1.Pod) OwnerKey {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		key := KeyOf(pod.Namespace, ref)
		if kind := directKind(pod, ref); kind != "" {
			key.Kind = kind
		} else if isSupportedKind(ref) {
			return key
		}
		key.Role = roleOf(pod, key.Group)
		return key
	}
	return OwnerKey{Namespace: pod.Namespace, Kind: "Pod", UID: pod.UID}
}

// roleOf returns the role of a pod under a controller of an unsupported kind, which may create pods
// from several templates: the values of the pod's role labels, what shows its template if the
// controller is unknown, and its own settings. It depends only on the pod, so every program groups
// the pods in the same way. Valid settings are short.
func roleOf(pod *v1.Pod, group string) string {
	parts := make([]string, 0, 8) // on the stack
	for i := range providers.PodOwners {
		for _, label := range providers.PodOwners[i].Roles {
			parts = appendNew(parts, pod.Labels[label])
		}
	}
	if !hasKnownOwner(pod, group) || pod.Labels[providers.VirtualNamespaceLabel] != "" {
		parts = appendNew(parts, short(strings.Join(templateOf(pod), ", ")))
	}
	for i := range decision.Settings {
		key := decision.Settings[i].Annotation
		if value := pod.Annotations[key]; value != "" && len(value) <= 32 {
			parts = append(parts, strings.TrimPrefix(key, spot.Domain)+"="+strconv.Quote(value))
		}
	}
	return strings.Join(parts, ", ")
}

func appendNew(parts []string, part string) []string {
	if part == "" || slices.Contains(parts, part) {
		return parts
	}
	return append(parts, part)
}

// hasKnownOwner reports whether providers.PodOwners describes the pod's controller or its labels.
func hasKnownOwner(pod *v1.Pod, group string) bool {
	return slices.ContainsFunc(providers.PodOwners, func(owner providers.PodOwner) bool {
		return owner.Group != "" && (owner.Group == group ||
			slices.ContainsFunc(owner.Roles, func(label string) bool { return pod.Labels[label] != "" }))
	})
}

// maxParts limits how many labels and containers templateOf compares: a tenant chooses their
// number.
const maxParts = 64

// templateOf returns texts that are equal for pods of one template, and usually differ for other
// pods: values of labels, and the names of containers and images. Updates in place change only tags
// of images.
func templateOf(pod *v1.Pod) (texts []string) {
	for _, label := range providers.TemplateLabels {
		if value := pod.Labels[label]; !ofOnePod(pod, value) {
			texts = appendNew(texts, value)
		}
	}
	for label, value := range pod.Labels {
		if len(pod.Labels) <= maxParts && strings.HasPrefix(label, providers.RenamedLabelPrefix) && !ofOnePod(pod, value) {
			texts = appendNew(texts, value)
		}
	}
	slices.Sort(texts)
	for i := range pod.Spec.Containers[:min(len(pod.Spec.Containers), maxParts)] {
		image := pod.Spec.Containers[i].Image
		image, _, _ = strings.Cut(strings.ReplaceAll(image[strings.LastIndexByte(image, '/')+1:], "@", ":"), ":")
		texts = appendNew(appendNew(texts, pod.Spec.Containers[i].Name), image)
	}
	return texts
}

// ofOnePod reports whether the value of a label is the pod's name or index.
func ofOnePod(pod *v1.Pod, value string) bool {
	_, err := strconv.Atoi(value)
	return err == nil || value == pod.Name || strings.HasPrefix(pod.Name, value+providers.VirtualNameSeparator)
}

// revisionLabels differ between the revisions of one template.
var revisionLabels = []string{appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey}

// Unlike returns the controllers of unknown kinds whose pods may be no equal replicas: the labels
// of pods of one role differ, or most pods differ from all others. The keys have no role. Copies of
// a vcluster are known.
func Unlike(pods []*v1.Pod) map[OwnerKey]bool {
	alike, unlike, inRole := map[OwnerKey]map[string]int{}, map[OwnerKey]bool{}, map[OwnerKey]string{}
	for _, pod := range pods {
		key := RevisionOf(pod)
		if !Counts(pod) || !HasUnsupportedController(pod) || hasKnownOwner(pod, key.Group) || pod.Labels[providers.VirtualNamespaceLabel] != "" {
			continue
		}
		labels := maps.Clone(pod.Labels)
		maps.DeleteFunc(labels, func(label, value string) bool { return ofOnePod(pod, value) || slices.Contains(revisionLabels, label) })
		set := fmt.Sprint(labels, templateOf(pod)) // it sorts the labels
		other, known := inRole[key]
		inRole[key] = set
		if key.Role = ""; alike[key] == nil {
			alike[key] = map[string]int{}
		}
		alike[key][set]++
		unlike[key] = unlike[key] || known && other != set
	}
	for key, groups := range alike {
		all := len(groups)
		maps.DeleteFunc(groups, func(_ string, pods int) bool { return pods > 1 })
		unlike[key] = unlike[key] || all > 1 && 2*len(groups) > all
	}
	return unlike
}

// directKind returns the kind of the pod's group if its controller did not create the pod as a
// replica; otherwise "". The ReplicaSets of a Deployment create its pods, so the Deployment itself
// controls only pods of other programs and released pods, which count nowhere. A StatefulSet names
// its pods NAME-ORDINAL. A Job labels its pods unless it has its own selector, and their names
// begin with its name.
func directKind(pod *v1.Pod, ref *metav1.OwnerReference) string {
	switch {
	case isKind(ref, v1.GroupName, "Pod"):
		return podsOfPod
	case isKind(ref, appsv1.GroupName, "Deployment") && !Released(pod):
		return podsOfDeployment
	case isKind(ref, appsv1.GroupName, "StatefulSet") && ordinalOf(pod.Name, ref.Name) < 0:
		return podsOfStatefulSet
	case isKind(ref, batchv1.GroupName, "Job") && pod.Labels[batchv1.ControllerUidLabel] != string(ref.UID) &&
		!strings.HasPrefix(pod.Name, ref.Name+"-"):
		return podsOfJob
	}
	return ""
}

// ordinalOf returns the ordinal in the name of a pod of a StatefulSet; -1 if the StatefulSet does
// not give its pods such a name.
func ordinalOf(pod, set string) int {
	digits, ofSet := strings.CutPrefix(strings.TrimPrefix(pod, set), "-")
	ordinal, err := strconv.ParseUint(digits, 10, 31)
	if !ofSet || !strings.HasPrefix(pod, set) || err != nil {
		return -1
	}
	return int(ordinal)
}

// ControllerKey returns the key of an object of a kind of Kubernetes. It returns false for other
// kinds.
func ControllerKey(object metav1.Object) (OwnerKey, bool) {
	typed, _ := object.(runtime.Object)
	kinds, _, err := scheme.Scheme.ObjectKinds(typed)
	if err != nil {
		return OwnerKey{}, false
	}
	return OwnerKey{Namespace: object.GetNamespace(), Group: kinds[0].Group, Kind: kinds[0].Kind, UID: object.GetUID()}, true
}

// Index returns k as the value of an index. The value is unique: group, kind and role, which
// tenants write, are quoted.
func (k OwnerKey) Index() string {
	return k.Namespace + "/" + strconv.Quote(k.Group) + strconv.Quote(k.Kind) + strconv.Quote(k.Role) + string(k.UID)
}

// MarshalText returns k as a key of a JSON object.
func (k OwnerKey) MarshalText() ([]byte, error) {
	parts := []string{k.Namespace, k.Group, k.Kind, string(k.UID), k.Role}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i]) // tenants choose kinds, UIDs and roles
	}
	return []byte(strings.Join(parts, "/")), nil
}

// UnmarshalText reads the result of MarshalText. The zero value means that it is another text.
func (k *OwnerKey) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), "/")
	for i := range parts {
		parts[i], _ = url.PathUnescape(parts[i])
	}
	if len(parts) == 5 {
		*k = OwnerKey{parts[0], parts[1], parts[2], types.UID(parts[3]), parts[4]}
	}
	return nil
}

// isSupportedKind reports whether Subject looks up an owner of this kind itself, or the policy does
// not apply to its pods.
func isSupportedKind(ref *metav1.OwnerReference) bool {
	switch ref.Kind {
	case "ReplicaSet", "StatefulSet", "DaemonSet", "Deployment":
		return isKind(ref, appsv1.GroupName, ref.Kind)
	case "Job":
		return isKind(ref, batchv1.GroupName, ref.Kind)
	case "ReplicationController", "Node":
		return isKind(ref, v1.GroupName, ref.Kind)
	}
	return false
}

// IsDeployment reports whether ref refers to a Deployment.
func IsDeployment(ref *metav1.OwnerReference) bool {
	return isKind(ref, appsv1.GroupName, "Deployment")
}

// OfJob reports whether the pod is one of a Job.
func OfJob(pod *v1.Pod) bool {
	key := RevisionOf(pod)
	return key.Group == batchv1.GroupName && key.Kind == "Job"
}

// isKind compares group and kind, not the version; see OwnerKey.
func isKind(ref *metav1.OwnerReference, group, kind string) bool {
	return ref.Kind == kind && groupOf(ref) == group
}

// groupOf returns the API group of ref. A version without a group, such as v1, belongs to the core
// group.
func groupOf(ref *metav1.OwnerReference) string {
	if group, _, versioned := strings.Cut(ref.APIVersion, "/"); versioned {
		return group
	}
	return v1.GroupName
}
