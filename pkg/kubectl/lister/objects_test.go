package lister_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister/listertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

var (
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	policy = &decision.Policy{Defaults: decision.WorkloadSettings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}}
)

func TestList(t *testing.T) {
	pod := func(namespace, name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	}
	objects := []runtime.Object{pod("shop", "a"), pod("shop", "b"), pod("bank", "c"), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for name, test := range map[string]struct {
		scope             lister.Scope
		denied            []string
		pods              []string
		gaps              []string
		noNodes, noOwners bool
		wantErr           string
	}{
		"all":                      {pods: []string{"bank/c", "shop/a", "shop/b"}},
		"a namespace":              {scope: lister.Scope{Namespace: "shop"}, pods: []string{"shop/a", "shop/b"}},
		"a namespace and all pods": {scope: lister.Scope{Namespace: "shop", AllPods: true, Volumes: true}, pods: []string{"bank/c", "shop/a", "shop/b"}},
		"no other namespace":       {scope: lister.Scope{Namespace: "shop", AllPods: true}, denied: []string{"pods/*"}, pods: []string{"shop/a", "shop/b"}, gaps: []string{"pods of other namespaces are not seen"}},
		"no nodes":                 {denied: []string{"nodes"}, pods: []string{"bank/c", "shop/a", "shop/b"}, gaps: []string{"which pods run on spot is unknown"}, noNodes: true},
		"no owners": {denied: []string{"jobs", "deployments"}, pods: []string{"bank/c", "shop/a", "shop/b"},
			gaps: []string{"the workloads of pods of deployments are unknown", "the workloads of pods of jobs are unknown"}, noOwners: true},
		"no volumes": {scope: lister.Scope{Volumes: true}, denied: []string{"persistentvolumes"}, pods: []string{"bank/c", "shop/a", "shop/b"},
			gaps: []string{"which nodes can reach a pod's volumes is unknown"}},
		"no pods":                  {denied: []string{"pods"}, wantErr: "forbidden"},
		"no pods in the namespace": {scope: lister.Scope{Namespace: "shop", AllPods: true}, denied: []string{"pods"}, wantErr: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			server := listertest.Start(t, objects...)
			server.Deny = test.denied
			listed, err := lister.List(t.Context(), server.Client(), test.scope)
			if test.wantErr != "" {
				if err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("%v, want a denial", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := listed.Snapshot(policy, nil, workload.Scope{Profile: "spot-aware-scheduler"}, now)
			if err != nil {
				t.Fatal(err)
			}
			var pods []string
			for _, p := range snapshot.Pods {
				pods = append(pods, p.Namespace+"/"+p.Name)
				if p.ManagedFields != nil {
					t.Errorf("%s has managed fields", p.Name)
				}
			}
			if diff := cmp.Diff(test.pods, pods); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if len(listed.Gaps) != len(test.gaps) {
				t.Fatalf("gaps %v, want %q", listed.Gaps, test.gaps)
			}
			for i, gap := range listed.Gaps {
				if !strings.HasPrefix(gap.Consequence, test.gaps[i]) || !strings.Contains(gap.String(), "forbidden") {
					t.Errorf("gap %v, want %q", gap, test.gaps[i])
				}
			}
			if (listed.GapOf("Node") != nil) != test.noNodes || listed.OwnersMissing != test.noOwners {
				t.Errorf("no nodes %t, no owners %t, want %t and %t", listed.GapOf("Node") != nil, listed.OwnersMissing, test.noNodes, test.noOwners)
			}
		})
	}
}

// TestObject: the object of a workload is found by group, kind, namespace and name.
func TestObject(t *testing.T) {
	meta := func(kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: "x", Labels: map[string]string{"kind": kind}}
	}
	listed, err := lister.List(t.Context(), listertest.Start(t,
		&appsv1.Deployment{ObjectMeta: meta("Deployment")}, &appsv1.ReplicaSet{ObjectMeta: meta("ReplicaSet")},
		&appsv1.StatefulSet{ObjectMeta: meta("StatefulSet")}, &v1.ReplicationController{ObjectMeta: meta("ReplicationController")},
		&batchv1.Job{ObjectMeta: meta("Job")}, &v1.Pod{ObjectMeta: meta("Pod")}, ownedBy("CloneSet")("a", nil),
	).Client(), lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	type workload struct{ apiVersion, kind, namespace, name string }
	want := map[workload]string{
		{"apps/v1", "Deployment", "shop", "x"}:       "Deployment",
		{"apps/v1", "ReplicaSet", "shop", "x"}:       "ReplicaSet",
		{"apps/v1", "StatefulSet", "shop", "x"}:      "StatefulSet",
		{"apps/v1beta1", "StatefulSet", "shop", "x"}: "StatefulSet",
		{"v1", "ReplicationController", "shop", "x"}: "ReplicationController",
		{"batch/v1", "Job", "shop", "x"}:             "Job",
		{"v1", "Pod", "shop", "x"}:                   "Pod",
		// These objects do not exist, or are of kinds that are not read.
		{"batch.volcano.sh/v1alpha1", "Job", "shop", "x"}:       "",
		{"apps.kruise.io/v1alpha1", "StatefulSet", "shop", "x"}: "",
		{"apps.kruise.io/v1alpha1", "CloneSet", "shop", "x"}:    "",
	}
	for w := range maps.Clone(want) {
		want[workload{w.apiVersion, w.kind, "shop", "y"}], want[workload{w.apiVersion, w.kind, "bank", "x"}] = "", ""
	}
	got := map[workload]string{}
	for w := range want {
		if got[w] = ""; listed.Object(w.apiVersion, w.kind, w.namespace, w.name) != nil {
			got[w] = listed.Object(w.apiVersion, w.kind, w.namespace, w.name).GetLabels()["kind"]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// ownedBy returns a function that creates pods of the owner shop/x of this kind.
func ownedBy(kind string) func(name string, labels map[string]string) *v1.Pod {
	return func(name string, labels map[string]string) *v1.Pod {
		pod := clustertest.NewPod(name, clustertest.OwnedBy(kind, "x"))
		pod.Labels = labels
		return pod
	}
}

// TestListFails: an outage is not a Gap.
func TestListFails(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			http.Error(w, "etcd is unavailable", http.StatusInternalServerError)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/nodepools") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lister.List(t.Context(), client, lister.Scope{}); err == nil || !strings.Contains(err.Error(), "etcd is unavailable") {
		t.Errorf("%v, want the error of the server", err)
	}
}

// TestTrimmed: fields that no Snapshot is made from do not take up memory.
func TestTrimmed(t *testing.T) {
	pod := ownedBy("CloneSet")("a", map[string]string{"app": "web"})
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	pod.Spec.NodeName = "n"
	pod.Spec.Containers = []v1.Container{{Name: "c", Image: "image", Env: []v1.EnvVar{{Name: "A"}},
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: pod.ManagedFields}}
	listed, err := lister.List(t.Context(), listertest.Start(t, pod, node).Client(), lister.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := listed.Snapshot(policy, nil, workload.Scope{Profile: "spot-aware-scheduler"}, now)
	if err != nil {
		t.Fatal(err)
	}
	got := snapshot.Pods[0]
	container := &got.Spec.Containers[0]
	if got.ManagedFields != nil || got.Node.ManagedFields != nil || container.Env != nil {
		t.Errorf("pod %+v on node %+v, want neither managed fields nor the container's environment", got.Pod, got.Node.Node)
	}
	if got.Labels["app"] != "web" || container.Resources.Requests.Cpu().Value() != 1 {
		t.Errorf("pod %+v, want its labels and requests", got.Pod)
	}
}

func TestReadConfiguration(t *testing.T) {
	deployment := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "scheduler", Labels: map[string]string{
			"app.kubernetes.io/name": "spot-aware-scheduler", "app.kubernetes.io/component": "scheduler"}}}
		d.Spec.Template.Spec = v1.PodSpec{
			Containers: []v1.Container{{
				Args:         []string{"-v=2", "--config=/etc/here/gang.yaml"},
				VolumeMounts: []v1.VolumeMount{{Name: "other", MountPath: "/etc"}, {Name: "config", MountPath: "/etc/here/"}},
			}},
			Volumes: []v1.Volume{{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "config-new"}}}}},
		}
		if edit != nil {
			edit(d)
		}
		return d
	}
	configMap := func(name, key string) *v1.ConfigMap {
		return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{key: name}}
	}
	for name, test := range map[string]struct {
		objects []runtime.Object
		denied  string
		want    string
		wantErr string
	}{
		"the mounted ConfigMap": {objects: []runtime.Object{deployment(nil), configMap("config-old", "gang.yaml"), configMap("config-new", "gang.yaml")},
			want: "config-new from ConfigMap kube-system/config-new, key gang.yaml"},
		"the controller's": {objects: []runtime.Object{configMap("config-new", "gang.yaml"), deployment(func(d *appsv1.Deployment) {
			d.Labels = map[string]string{"app.kubernetes.io/name": "spot-controller", "app.kubernetes.io/component": "controller"}
			d.Spec.Template.Spec.Containers[0].Args = []string{"--scheduler-config=/etc/here/gang.yaml"}
		})}, want: "config-new from ConfigMap kube-system/config-new, key gang.yaml"},
		"another namespace": {objects: append(in("spot", deployment(nil), configMap("config-new", "gang.yaml")), bindingIn("spot")),
			want: "config-new from ConfigMap spot/config-new, key gang.yaml"},
		"none in the namespace": {objects: []runtime.Object{deployment(nil), bindingIn("spot")}, wantErr: "namespace spot has no Deployment"},
		"no Deployment":         {wantErr: "namespace kube-system has no Deployment with the labels app.kubernetes.io/name=spot-aware-scheduler"},
		"no ConfigMap":          {objects: []runtime.Object{deployment(nil)}, wantErr: `configmaps "config-new" not found`},
		"no key":                {objects: []runtime.Object{deployment(nil), configMap("config-new", "other.yaml")}, wantErr: "ConfigMap kube-system/config-new has no key gang.yaml"},
		"no flag": {objects: []runtime.Object{deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = nil })},
			wantErr: "Deployment kube-system/scheduler: no configuration found: no container has the argument --config=FILE"},
		"no ConfigMap volume": {objects: []runtime.Object{deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Volumes[0].ConfigMap = nil })},
			wantErr: "no mounted ConfigMap contains the file of --config=/etc/here/gang.yaml"},
		"denied": {objects: []runtime.Object{deployment(nil)}, denied: "deployments", wantErr: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			server := listertest.Start(t, test.objects...)
			if test.denied != "" {
				server.Deny = []string{test.denied}
			}
			got, err := lister.ReadConfiguration(t.Context(), server.Client())
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("%v, want an error with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text := string(got.Data) + " from " + got.From; text != test.want {
				t.Errorf("%s, want %s", text, test.want)
			}
		})
	}
}

// NodePools decide too which capacity types a pod can run on, whether they are read from the API
// server or from a dump. What lacks is named only if a node is of a NodePool.
func TestNodePools(t *testing.T) {
	const taintedOnDemand, spotOfPool = "node o on-demand m/a taint=t", "\nnode s spot m/a label=karpenter.sh/nodepool=p"
	pool := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
		"metadata": map[string]any{"name": "p", "uid": "p"}}}
	for name, test := range map[string]struct {
		nodes        string
		pools        []runtime.Object
		denied       []string
		wantOnlySpot bool
		wantGap      string
		wantMissing  []string
	}{
		"a pool":                    {nodes: taintedOnDemand + spotOfPool, pools: []runtime.Object{pool}},
		"no pool":                   {nodes: taintedOnDemand + "\nnode s spot m/a", wantOnlySpot: true},
		"forbidden, with a node":    {nodes: taintedOnDemand + spotOfPool, pools: []runtime.Object{pool}, denied: []string{"nodepools"}, wantOnlySpot: true, wantGap: "which nodes Karpenter may add is unknown"},
		"forbidden, without a node": {nodes: taintedOnDemand + "\nnode s spot m/a", denied: []string{"nodepools"}, wantOnlySpot: true},
		"a dump without them":       {nodes: taintedOnDemand + spotOfPool, wantOnlySpot: true, wantMissing: []string{"nodepools"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(clustertest.Objects(test.nodes+"\ndeployment x 1 s"), test.pools...)
			server := listertest.New(t, objects...)
			server.Deny = test.denied
			listed, err := lister.List(t.Context(), server.Client(), lister.Scope{})
			if err != nil {
				t.Fatal(err)
			}
			if gaps := fmt.Sprint(listed.Gaps); !strings.Contains(gaps, test.wantGap) || test.wantGap == "" && len(listed.Gaps) > 0 {
				t.Errorf("gaps %s, want %q", gaps, test.wantGap)
			}
			sources := map[string]*lister.Objects{"API server": listed}
			if test.denied == nil {
				dir := write(t, map[string]string{"a.json": listertest.Dump(t, objects...)})
				if sources["dump"], err = lister.Load(t.Context(), dir, nil, lister.Scope{}); err != nil {
					t.Fatal(err)
				}
				if missing := slices.Contains(sources["dump"].Missing, "nodepools"); missing != (test.wantMissing != nil) {
					t.Errorf("the dump lacks %v, want %v", sources["dump"].Missing, test.wantMissing)
				}
			}
			for source, from := range sources {
				s, err := from.Snapshot(clustertest.BasicPolicy, nil, workload.Scope{Profile: clustertest.Profile}, clustertest.Now)
				if err != nil {
					t.Fatal(err)
				}
				if got := clustertest.Find(t, s, "x-0").Subject.Pod.OnlySpot; got != test.wantOnlySpot {
					t.Errorf("%s: only spot: %t, want %t", source, got, test.wantOnlySpot)
				}
			}
		})
	}
}
