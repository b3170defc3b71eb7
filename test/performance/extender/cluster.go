package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

func createNodes(ctx context.Context, cp *lab.ControlPlane, n int) ([]string, error) {
	specs := make([]lab.NodeSpec, n)
	names := make([]string, n)
	for i := range specs {
		capacity := lab.Spot
		if i%10 < 3 {
			capacity = lab.OnDemand
		}
		names[i] = fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/250, i%250)
		specs[i] = lab.NodeSpec{
			Name: names[i], Capacity: capacity, InstanceType: fmt.Sprintf("type-%d", i/3%4), Zone: fmt.Sprintf("zone-%c", 'a'+i%3),
			CPU: "32", Memory: "128Gi",
		}
	}
	// The requests contain the nodes in random order: each of kube-scheduler's workers finds a part
	// of the nodes.
	rand.New(rand.NewPCG(0, 0)).Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names, cp.CreateNodes(ctx, specs...)
}

// podsPerWorkload is the number of pods of each workload.
const podsPerWorkload = 20

// createWorkloads creates ReplicaSets. No controller creates pods for them.
func createWorkloads(ctx context.Context, cp *lab.ControlPlane, n int) ([]*appsv1.ReplicaSet, error) {
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return nil, err
	}
	sets := make([]*appsv1.ReplicaSet, n)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range sets {
		group.Go(func() (err error) {
			replicas, labels := int32(podsPerWorkload), map[string]string{"app": fmt.Sprintf("app-%d", i)}
			sets[i], err = client.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Annotations: map[string]string{"spot-aware-scheduler.io/min-on-demand": "30%"}},
				Spec: appsv1.ReplicaSetSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return sets, group.Wait()
}

// podSpec returns the specification of an ordinary pod, with a typical length.
func podSpec() v1.PodSpec {
	spec := v1.PodSpec{SchedulerName: "spot-aware-scheduler", ServiceAccountName: "default"}
	for _, name := range []string{"app", "proxy"} {
		c := v1.Container{Name: name, Image: "registry.example/team/" + name + ":v1.2.3"}
		for i := range 12 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SOME_SETTING_%d", i), Value: "a value of some length, as they are"})
		}
		spec.Containers = append(spec.Containers, c)
	}
	return spec
}

// podsOf returns n pods of the workloads, as JSON.
func podsOf(workloads []*appsv1.ReplicaSet, n int) [][]byte {
	pods := make([][]byte, n)
	for i := range pods {
		set := workloads[i/podsPerWorkload]
		pods[i], _ = json.Marshal(&v1.Pod{ // every value in it can be encoded as JSON
			ObjectMeta: metav1.ObjectMeta{
				Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, i), UID: types.UID(fmt.Sprintf("%s-%d", set.UID, i)),
				Labels:          set.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			},
			Spec: set.Spec.Template.Spec,
		})
	}
	return pods
}
