package providers

// PodOwner describes the pods of the controllers of one API group. The value of a role label must
// not change while a pod runs: it decides which pods a replica count and a floor apply to.
type PodOwner struct {
	// Group is the API group; "" for labels that pods of any controller may have.
	Group string
	// Roles are the labels by which pods of one controller differ. All others are equal replicas.
	Roles []string
	// RestartsJobs means that a controller may start a failed Job of its own again.
	RestartsJobs bool
}

// PodOwners are known controllers of other projects, each with its source. A LeaderWorkerSet needs
// no entry: its groups are StatefulSets that a pod of a StatefulSet controls, their leader
// (lws pkg/controllers/pod_controller.go).
var PodOwners = []PodOwner{
	// Ray: ray-operator/controllers/ray/utils/constant.go.
	{Group: "ray.io", Roles: []string{"ray.io/node-type", "ray.io/group"}},
	// Kubeflow's training operator and mpi-operator: pkg/apis/kubeflow.org/v1/common_types.go.
	{Group: "kubeflow.org", Roles: []string{"training.kubeflow.org/replica-type", "training.kubeflow.org/job-role"}},
	// Spark: resource-managers/kubernetes Constants.scala.
	{Group: "sparkoperator.k8s.io", Roles: []string{"spark-role"}},
	// JobSet: api/jobset/v1alpha2/jobset_types.go, pkg/controllers/failure_policy.go.
	{Group: "jobset.x-k8s.io", Roles: []string{"jobset.sigs.k8s.io/replicatedjob-name"}, RestartsJobs: true},
	// Volcano: pkg/apis/batch/v1alpha1/labels.go. Dask: dask_kubernetes/operator.
	{Group: "batch.volcano.sh", Roles: []string{"volcano.sh/task-spec"}},
	{Group: "kubernetes.dask.org", Roles: []string{"dask.org/component"}},
	// WebLogic Kubernetes Operator: LabelConstants.java. The admin server has no such label.
	{Group: "weblogic.oracle", Roles: []string{"weblogic.clusterName"}},
	// Couchbase Autonomous Operator: "couchbase_server" in its documentation of labels.
	{Group: "couchbase.com", Roles: []string{"couchbase_server"}},
	// Kruise, StrimziPodSet and CloudNativePG: one template for each object.
	{Group: "apps.kruise.io"}, {Group: "core.strimzi.io"}, {Group: "postgresql.cnpg.io"},
	// Kubernetes documentation, "Recommended Labels".
	{Roles: []string{"app.kubernetes.io/component"}},
}

// TemplateLabels usually distinguish the pods of different templates. They apply to pods of other
// controllers than PodOwners.
var TemplateLabels = []string{VirtualNamespaceLabel, "app", "k8s-app", "app.kubernetes.io/name", "name", "component", "tier",
	"pod-template-hash", "controller-revision-hash", "batch.kubernetes.io/job-name"}

// A vcluster copies pods, as NAME-x-NAMESPACE-x-VCLUSTER, and renames some of their labels
// (vcluster pkg/util/translate). Its Service or StatefulSet controls all copies.
const (
	VirtualNamespaceLabel = "vcluster.loft.sh/namespace"
	RenamedLabelPrefix    = "vcluster.loft.sh/label-"
	VirtualNameSeparator  = "-x-"
)
