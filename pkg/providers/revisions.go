package providers

// RevisionController is a controller that keeps the revisions of a workload in ReplicaSets.
type RevisionController struct {
	Group, Kind string
	// Desired is the annotation of a ReplicaSet with the replica count of the whole workload. It is
	// "" if the controller's own object is read.
	Desired string
	// Revision is the annotation of a ReplicaSet with the number of its revision.
	Revision string
}

// RevisionControllers are the known controllers, each with its source.
var RevisionControllers = []RevisionController{
	// Kubernetes pkg/controller/deployment/util/deployment_util.go.
	{Group: "apps", Kind: "Deployment", Revision: "deployment.kubernetes.io/revision"},
	// argo-rollouts utils/annotations/annotations.go. It copies the other annotations of a
	// Rollout to its ReplicaSets.
	{Group: "argoproj.io", Kind: "Rollout", Desired: "rollout.argoproj.io/desired-replicas", Revision: "rollout.argoproj.io/revision"},
}
