// Package controller contains the configuration of spot-controller: type, defaults, strict decoding
// and validation. The policy is part of the scheduler's configuration (package config), so that it
// has only one source.
//
// +groupName=spot-aware-scheduler.io
// +versionName=v1beta1
package controller
