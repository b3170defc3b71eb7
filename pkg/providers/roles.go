package providers

// RoleLabels are the labels by which a controller marks the roles of the pods that it creates
// from more than one template, each with its source. The value of such a label must not change
// while a pod runs: it decides which pods a replica count and a floor apply to.
var RoleLabels = []string{
	// Ray: ray-operator/controllers/ray/utils/constant.go.
	"ray.io/node-type", "ray.io/group",
	// Kubeflow's training operator and mpi-operator: pkg/apis/kubeflow.org/v1/common_types.go.
	"training.kubeflow.org/replica-type", "training.kubeflow.org/job-role",
	// Spark: resource-managers/kubernetes Constants.scala.
	"spark-role",
	// JobSet: api/jobset/v1alpha2/jobset_types.go.
	"jobset.sigs.k8s.io/replicatedjob-name",
	// Volcano: pkg/apis/batch/v1alpha1/labels.go. Dask: dask_kubernetes/operator.
	"volcano.sh/task-spec", "dask.org/component",
	// Kubernetes documentation, "Recommended Labels".
	"app.kubernetes.io/component",
}
