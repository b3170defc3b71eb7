package survey_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/survey"
)

var (
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	policy = &decision.Policy{Defaults: decision.Settings{MinOnDemand: decision.Count(1), FallbackAfter: decision.Never}}
)

// deny has the API server deny lists of these resources: "pods" everywhere, "pods/shop" in that namespace, "pods/*" only in all namespaces at
// a time.
func deny(client *fake.Clientset, denied ...string) {
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource, namespace := action.GetResource().Resource, action.GetNamespace()
		if slices.Contains(denied, resource) || slices.Contains(denied, resource+"/"+namespace) || namespace == "" && slices.Contains(denied, resource+"/*") {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("no"))
		}
		return false, nil, nil
	})
}

func TestTake(t *testing.T) {
	pod := func(namespace, name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	}
	objects := []runtime.Object{pod("shop", "a"), pod("shop", "b"), pod("bank", "c"), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for name, test := range map[string]struct {
		scope             survey.Scope
		denied            []string
		pods              []string
		gaps              []string
		noNodes, noOwners bool
		wantErr           string
	}{
		"all":                {pods: []string{"bank/c", "shop/a", "shop/b"}},
		"a namespace":        {scope: survey.Scope{Namespace: "shop"}, pods: []string{"shop/a", "shop/b"}},
		"its owners":         {scope: survey.Scope{Namespace: "shop", AllPods: true, Volumes: true}, pods: []string{"bank/c", "shop/a", "shop/b"}},
		"no other namespace": {scope: survey.Scope{Namespace: "shop", AllPods: true}, denied: []string{"pods/*"}, pods: []string{"shop/a", "shop/b"}, gaps: []string{"pods of other namespaces are not seen"}},
		"no nodes":           {denied: []string{"nodes"}, pods: []string{"bank/c", "shop/a", "shop/b"}, gaps: []string{"which pods stand on spot is not known"}, noNodes: true},
		"no owners": {denied: []string{"jobs", "deployments"}, pods: []string{"bank/c", "shop/a", "shop/b"},
			gaps: []string{"what pods of Deployments belong to is not known", "what pods of Jobs belong to is not known"}, noOwners: true},
		"no volumes": {scope: survey.Scope{Volumes: true}, denied: []string{"persistentvolumes"}, pods: []string{"bank/c", "shop/a", "shop/b"},
			gaps: []string{"where a pod's volumes can be reached is not known"}},
		"no pods":              {denied: []string{"pods"}, wantErr: "forbidden"},
		"no pods at all there": {scope: survey.Scope{Namespace: "shop", AllPods: true}, denied: []string{"pods"}, wantErr: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(objects...)
			deny(client, test.denied...)
			taken, err := survey.Take(t.Context(), client, test.scope)
			if test.wantErr != "" {
				if err == nil || !survey.Denied(err) || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("%v, want a denial", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			snapshot, err := taken.Snapshot(policy, nil, "spot-aware-scheduler", now)
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
			if len(taken.Gaps) != len(test.gaps) {
				t.Fatalf("gaps %v, want %q", taken.Gaps, test.gaps)
			}
			for i, gap := range taken.Gaps {
				if !strings.HasPrefix(gap.Means, test.gaps[i]) || !strings.Contains(gap.String(), "forbidden") {
					t.Errorf("gap %v, want %q", gap, test.gaps[i])
				}
			}
			if taken.NoNodes != test.noNodes || taken.NoOwners != test.noOwners {
				t.Errorf("no nodes %t, no owners %t, want %t and %t", taken.NoNodes, taken.NoOwners, test.noNodes, test.noOwners)
			}
		})
	}
}

// TestTakeFails: an outage is no gap.
func TestTakeFails(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(fmt.Errorf("etcd is away"))
	})
	if _, err := survey.Take(t.Context(), client, survey.Scope{}); err == nil || survey.Denied(err) {
		t.Errorf("%v, want an internal error", err)
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
		"the one that is mounted": {objects: []runtime.Object{deployment(nil), configMap("config-old", "gang.yaml"), configMap("config-new", "gang.yaml")},
			want: "config-new from ConfigMap kube-system/config-new, key gang.yaml"},
		"no Deployment": {wantErr: "namespace kube-system has no Deployment with the labels app.kubernetes.io/name=spot-aware-scheduler"},
		"no ConfigMap":  {objects: []runtime.Object{deployment(nil)}, wantErr: `configmaps "config-new" not found`},
		"no key":        {objects: []runtime.Object{deployment(nil), configMap("config-new", "other.yaml")}, wantErr: "ConfigMap kube-system/config-new has no key gang.yaml"},
		"no flag": {objects: []runtime.Object{deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = nil })},
			wantErr: "the Deployment kube-system/scheduler: no configuration found: no container has the argument --config=FILE"},
		"no ConfigMap's": {objects: []runtime.Object{deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Volumes[0].ConfigMap = nil })},
			wantErr: "its --config=/etc/here/gang.yaml is in no mounted ConfigMap"},
		"denied": {objects: []runtime.Object{deployment(nil)}, denied: "deployments", wantErr: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			deny(client, test.denied)
			got, err := survey.ReadConfiguration(t.Context(), client)
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
