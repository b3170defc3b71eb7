package report

import (
	"slices"
	"strings"
)

// infrastructure has the names of components that the placement of pods or the number of nodes
// depends on: this project, schedulers, node autoscalers, and what drains nodes. A component has
// the name as a part of its own name, between hyphens: release-aws-cluster-autoscaler.
var infrastructure = []string{
	"spot-aware-scheduler", "spot-controller", "spot-extender", "spot-failsafe",
	"kube-scheduler", "scheduler-plugins", "descheduler", "volcano", "kueue", "yunikorn", "koordinator", "koord-scheduler", "koord-manager",
	"koord-descheduler", "kai-scheduler", "kube-batch", "nos-scheduler", "armada-scheduler",
	"karpenter", "cluster-autoscaler", "cluster-proportional-autoscaler", "keda", "keda-operator", "vertical-pod-autoscaler", "vpa",
	"metrics-server", "prometheus-adapter", "node-termination-handler", "spot-termination-handler", "ocean-controller",
	"castai-agent", "castai-cluster-controller", "cast-ai",
}

// singletons are parts of the names of operators and databases, which may be damaged if two run.
var singletons = []string{
	"operator", "controller", "manager", "leader", "scheduler", "db", "database", "sql", "postgres", "redis", "valkey", "mongo", "etcd",
	"kafka", "zookeeper", "rabbitmq", "nats", "cassandra", "elastic", "opensearch", "clickhouse", "neo4j", "minio", "vault", "consul",
	"prometheus", "grafana", "jenkins",
}

// systemPriorities are the priority classes of components that a cluster needs.
var systemPriorities = []string{"system-cluster-critical", "system-node-critical"}

// nameLabels are the labels that name the program in a pod.
var nameLabels = []string{"app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/component", "app", "k8s-app"}

// isNamed reports whether the name of the workload, or a name in its labels or images, contains one
// of the programs between two separators.
func (c *candidate) isNamed(programs []string, separator string) bool {
	names := []string{c.w.Name}
	for _, label := range nameLabels {
		names = append(names, c.p.Labels[label])
	}
	for i := range c.p.Spec.Containers {
		image, _, _ := strings.Cut(c.p.Spec.Containers[i].Image, "@")
		names = append(names, strings.FieldsFunc(image, func(r rune) bool { return r == '/' || r == ':' })...)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(programs, func(program string) bool {
			return strings.Contains(separator+strings.ToLower(name)+separator, separator+program+separator)
		})
	})
}
