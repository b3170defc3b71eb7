package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// cluster contains the objects that the scheduler must know.
type cluster struct {
	options
	client kubernetes.Interface

	node       *v1.Node
	deployment *appsv1.Deployment
	replicaSet *appsv1.ReplicaSet
	pod        *v1.Pod
}

// replicas returns the number of bound pods of each Deployment.
func (c *cluster) replicas() int { return c.options.pods / c.deployments }

// wanted returns the replica count of each Deployment. For a scheduler it includes one more pod to
// place.
func (c *cluster) wanted() int32 {
	if c.controller {
		return int32(c.replicas())
	}
	return int32(c.replicas() + 1)
}

// pods returns the number of bound pods.
func (c *cluster) pods() int { return c.replicas() * c.deployments }

// fill creates the objects of the cluster.
func (c *cluster) fill(ctx context.Context, etcd string) error {
	if err := c.makeOriginals(ctx); err != nil {
		return err
	}
	for i := 0; i < c.deployments; i += perNamespace {
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
		if _, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd}, DialTimeout: 10 * time.Second, Context: ctx})
	if err != nil {
		return err
	}
	defer store.Close()
	w := newWriter(ctx, store)
	for i := range c.nodes {
		w.put("minions/"+nodeName(i), v1.SchemeGroupVersion, c.nodeOf(i))
	}
	for i := range c.deployments {
		d := c.deploymentOf(i)
		w.put("deployments/"+d.Namespace+"/"+d.Name, appsv1.SchemeGroupVersion, d)
		for revision := range c.revisions + 1 {
			rs := c.replicaSetOf(i, revision)
			w.put("replicasets/"+rs.Namespace+"/"+rs.Name, appsv1.SchemeGroupVersion, rs)
		}
		for replica := range c.replicas() {
			pod := c.podOf(i, replica)
			w.put("pods/"+pod.Namespace+"/"+pod.Name, v1.SchemeGroupVersion, pod)
		}
	}
	return w.wait()
}

// writer writes objects to etcd in the API server's format, many at a time. Each write is a
// separate transaction, as in the API server. Objects of one transaction would have the same
// resourceVersion, and a watch that starts between them would miss some.
type writer struct {
	ctx   context.Context
	store *clientv3.Client
	group *errgroup.Group
	err   error
}

func newWriter(ctx context.Context, store *clientv3.Client) *writer {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	return &writer{ctx: ctx, store: store, group: group}
}

func (w *writer) put(key string, version schema.GroupVersion, object runtime.Object) {
	if w.err != nil || w.ctx.Err() != nil {
		return
	}
	var data bytes.Buffer
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), version)
	if w.err = encoder.Encode(object, &data); w.err != nil {
		return
	}
	w.group.Go(func() error {
		_, err := w.store.Put(w.ctx, "/registry/"+key, data.String())
		return err
	})
}

func (w *writer) wait() error {
	if err := w.group.Wait(); err != nil {
		return err
	}
	return w.err
}

// makeOriginals creates one object of each kind through the API server, as the components of a
// cluster do, and deletes it again.
func (c *cluster) makeOriginals(ctx context.Context) (err error) {
	const (
		helm       = "helm"
		controller = "kube-controller-manager"
		kubelet    = "kubelet"
	)
	create := func(manager string) metav1.CreateOptions { return metav1.CreateOptions{FieldManager: manager} }
	update := func(manager string) metav1.UpdateOptions { return metav1.UpdateOptions{FieldManager: manager} }
	nodes, apps, pods := c.client.CoreV1().Nodes(), c.client.AppsV1(), c.client.CoreV1().Pods("default")

	node, err := ordinaryNode()
	if err != nil {
		return err
	}
	if c.node, err = nodes.Create(ctx, node, create(kubelet)); err != nil {
		return err
	}
	deployment, err := ordinaryDeployment()
	if err != nil {
		return err
	}
	if c.deployment, err = apps.Deployments("default").Create(ctx, deployment, create(helm)); err != nil {
		return err
	}
	c.deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1,
		AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: v1.ConditionTrue, Reason: "MinimumReplicasAvailable",
				Message: "Deployment has minimum availability."},
			{Type: appsv1.DeploymentProgressing, Status: v1.ConditionTrue, Reason: "NewReplicaSetAvailable",
				Message: "ReplicaSet has successfully progressed."}}}
	if c.deployment, err = apps.Deployments("default").UpdateStatus(ctx, c.deployment, update(controller)); err != nil {
		return err
	}
	if c.replicaSet, err = apps.ReplicaSets("default").Create(ctx, ordinaryReplicaSet(c.deployment), create(controller)); err != nil {
		return err
	}
	c.replicaSet.Status = appsv1.ReplicaSetStatus{ObservedGeneration: 1, Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		FullyLabeledReplicas: 1}
	if c.replicaSet, err = apps.ReplicaSets("default").UpdateStatus(ctx, c.replicaSet, update(controller)); err != nil {
		return err
	}
	if c.pod, err = pods.Create(ctx, ordinaryPod(c.replicaSet), create(controller)); err != nil {
		return err
	}
	c.pod.Status = runningStatus(c.pod)
	if c.pod, err = pods.UpdateStatus(ctx, c.pod, update(kubelet)); err != nil {
		return err
	}
	now := *metav1.NewDeleteOptions(0)
	for _, err := range []error{
		pods.Delete(ctx, c.pod.Name, now), apps.ReplicaSets("default").Delete(ctx, c.replicaSet.Name, now),
		apps.Deployments("default").Delete(ctx, c.deployment.Name, now), nodes.Delete(ctx, c.node.Name, now),
	} {
		if err != nil {
			return err
		}
	}
	for _, o := range []metav1.Object{c.node, c.deployment, c.replicaSet, c.pod} {
		if len(o.GetManagedFields()) == 0 {
			return fmt.Errorf("%T has no managedFields, unlike objects in real clusters", o)
		}
		o.SetResourceVersion("") // etcd does not store it
	}
	return nil
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i/65536, i/256%256, i%256)
}

const perNamespace = 50 // Deployments

func namespaceOf(deployment int) string { return fmt.Sprintf("team-%d", deployment/perNamespace) }

func nameOf(deployment int) string { return fmt.Sprintf("service-%d", deployment) }

// uid returns a UID with the length of real UIDs.
func uid(kind, i int) types.UID { return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, i)) }

func hash(revision int) string { return fmt.Sprintf("5d9f8c%04x", revision) }

func (c *cluster) nodeOf(i int) *v1.Node {
	node := c.node.DeepCopy()
	node.Name, node.UID = nodeName(i), uid(1, i)
	capacity := lab.Spot
	if onDemand(i) {
		capacity = lab.OnDemand
	}
	node.Labels[lab.CapacityLabel], node.Labels[v1.LabelHostname] = capacity, node.Name
	node.Labels[v1.LabelTopologyZone] = fmt.Sprintf("eu-central-1%c", 'a'+i%3)
	node.Labels[v1.LabelInstanceTypeStable] = []string{"m6i.2xlarge", "m6a.2xlarge", "c6i.4xlarge", "r6i.2xlarge"}[i/3%4]
	return node
}

func (c *cluster) deploymentOf(i int) *appsv1.Deployment {
	d := c.deployment.DeepCopy()
	d.Namespace, d.Name, d.UID = namespaceOf(i), nameOf(i), uid(2, i)
	*d.Spec.Replicas = c.wanted()
	if c.controller {
		// The floor is the number of pods on on-demand, so the controller has nothing to move.
		floor := 0
		for replica := range c.replicas() {
			if onDemand(c.nodeNumber(i, replica)) {
				floor++
			}
		}
		d.Annotations[spot.MinOnDemandAnnotation] = fmt.Sprint(floor)
	}
	d.Annotations[revisionKey] = fmt.Sprint(c.revisions + 1)
	return d
}

// replicaSetOf returns the ReplicaSet of a revision. The last revision is the newest and has all
// replicas.
func (c *cluster) replicaSetOf(deployment, revision int) *appsv1.ReplicaSet {
	rs := c.replicaSet.DeepCopy()
	rs.Namespace, rs.Name = namespaceOf(deployment), nameOf(deployment)+"-"+hash(revision)
	rs.UID = uid(3, deployment*(c.revisions+1)+revision)
	rs.OwnerReferences[0].Name, rs.OwnerReferences[0].UID = nameOf(deployment), uid(2, deployment)
	rs.Annotations[revisionKey] = fmt.Sprint(revision + 1)
	for _, labels := range []map[string]string{rs.Labels, rs.Spec.Selector.MatchLabels, rs.Spec.Template.Labels} {
		label(labels, deployment, revision)
	}
	*rs.Spec.Replicas = 0
	if revision == c.revisions {
		*rs.Spec.Replicas = c.wanted()
	}
	rs.Status.Replicas = *rs.Spec.Replicas
	return rs
}

func label(labels map[string]string, deployment, revision int) {
	labels["app.kubernetes.io/name"], labels[appsv1.DefaultDeploymentUniqueLabelKey] = nameOf(deployment), hash(revision)
}

func (c *cluster) podOf(deployment, replica int) *v1.Pod {
	pod := c.pod.DeepCopy()
	i := deployment*c.replicas() + replica
	rs := nameOf(deployment) + "-" + hash(c.revisions)
	pod.Namespace, pod.Name, pod.UID = namespaceOf(deployment), fmt.Sprintf("%s-%05x", rs, replica), uid(4, i)
	pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = rs, uid(3, deployment*(c.revisions+1)+c.revisions)
	label(pod.Labels, deployment, c.revisions)
	number := c.nodeNumber(deployment, replica)
	pod.Spec.NodeName = nodeName(number)
	if c.controller && onDemand(number) { // the controller would have set it long ago
		pod.Annotations[spot.DeletionCostAnnotation], pod.Annotations[v1.PodDeletionCost] = floorCost, floorCost
	}
	return pod
}

// floorCost is the deletion cost that the controller sets on the pods of a floor.
const floorCost = "1000"

// nodeNumber returns the number of the node that runs a pod.
func (c *cluster) nodeNumber(deployment, replica int) int {
	return (deployment*c.replicas() + replica) % c.nodes
}

// onDemand reports whether the node with this number is on-demand.
func onDemand(node int) bool { return node%10 < 3 }

// pending returns the last pod of a Deployment, which has no node.
func (c *cluster) pending(deployment int) *v1.Pod {
	pod := c.podOf(deployment, c.replicas())
	pod.UID, pod.ManagedFields, pod.Spec.NodeName, pod.Status = "", nil, "", v1.PodStatus{}
	return pod
}

const revisionKey = "deployment.kubernetes.io/revision"

//go:embed originals/node.yaml
var nodeText []byte

//go:embed originals/deployment.yaml
var deploymentText []byte

func ordinaryNode() (*v1.Node, error) {
	node := &v1.Node{}
	if err := yaml.UnmarshalStrict(nodeText, node); err != nil {
		return nil, fmt.Errorf("originals/node.yaml: %w", err)
	}
	for i := range 30 { // a kubelet reports up to 50
		digest := strings.Repeat(fmt.Sprintf("%02x", i), 32)
		node.Status.Images = append(node.Status.Images, v1.ContainerImage{SizeBytes: 100 << 20, Names: []string{
			fmt.Sprintf("registry.example.com/team/service-%d@sha256:%s", i, digest), fmt.Sprintf("registry.example.com/team/service-%d:1.2.3", i)}})
	}
	return node, nil
}

func ordinaryDeployment() (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict(deploymentText, d); err != nil {
		return nil, fmt.Errorf("originals/deployment.yaml: %w", err)
	}
	container := &d.Spec.Template.Spec.Containers[0]
	for i := range 15 {
		container.Env = append(container.Env, v1.EnvVar{Name: fmt.Sprintf("SOME_SETTING_%d", i), Value: "a-value-of-it"})
	}
	return d, nil
}

// ordinaryReplicaSet returns the ReplicaSet that the Deployment controller creates for a
// Deployment.
func ordinaryReplicaSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	template := *d.Spec.Template.DeepCopy()
	template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash(0)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash(0)
	annotations := map[string]string{"deployment.kubernetes.io/desired-replicas": "3", "deployment.kubernetes.io/max-replicas": "4"}
	for key, value := range d.Annotations {
		annotations[key] = value
	}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + hash(0), Labels: template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: selector, Template: template},
	}
}

// ordinaryPod returns the pod that the ReplicaSet controller creates for a ReplicaSet, with the
// additions of admission: the ServiceAccount's token and tolerations.
func ordinaryPod(rs *appsv1.ReplicaSet) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: rs.Namespace, Name: rs.Name + "-00000", GenerateName: rs.Name + "-",
			Labels:          rs.Spec.Template.Labels,
			Annotations:     rs.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}},
		Spec: *rs.Spec.Template.Spec.DeepCopy(),
	}
	const token = "kube-api-access-x7k2p"
	pod.Spec.NodeName = "original"
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		v1.Volume{Name: token, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace",
				FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		}}}})
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].VolumeMounts = append(pod.Spec.Containers[i].VolumeMounts,
			v1.VolumeMount{Name: token, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"})
	}
	for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations,
			v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))})
	}
	return pod
}

// runningStatus returns the status that the kubelet reports for a running pod.
func runningStatus(pod *v1.Pod) v1.PodStatus {
	now := metav1.Now()
	status := v1.PodStatus{Phase: v1.PodRunning, QOSClass: pod.Status.QOSClass, HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}},
		PodIP: "10.0.1.17", PodIPs: []v1.PodIP{{IP: "10.0.1.17"}}, StartTime: &now}
	for _, kind := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady,
		v1.PodScheduled} {
		status.Conditions = append(status.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "registry.example.com/team/service@sha256:" + strings.Repeat("0123456789abcdef", 4),
			ContainerID: "containerd://" + strings.Repeat("0123456789abcdef", 4), Ready: true, Started: new(true),
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}, AllocatedResources: c.Resources.Requests,
			Resources: &c.Resources,
		})
	}
	return status
}
