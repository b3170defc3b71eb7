// Package config contains the arguments of the plugins: types, defaults, validation and conversion
// to the types of package decision. Users set the arguments in the KubeSchedulerConfiguration,
// which is the only place where the policy of a cluster is configured.
//
// The package does not import k8s.io/kubernetes, so that every binary can read the same policy.
// Package config/scheme registers the types with the scheduler.
//
// +kubebuilder:object:generate=true
// +groupName=kubescheduler.config.k8s.io
// +versionName=v1
package config
