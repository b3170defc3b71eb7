// Package config holds the arguments of the plugins: their types, defaults, validation, and conversion into the values that the
// decisions are made from. They stand in the KubeSchedulerConfiguration, which is the one place where a cluster is configured.
//
// It does not import k8s.io/kubernetes, so that every binary can read the same policy; package config/scheme registers the types
// with the scheduler.
package config
