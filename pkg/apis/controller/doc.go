// Package controller contains the configuration of spot-controller: type, defaults, strict decoding
// and validation. The policy is part of the scheduler's configuration (package config), so that it
// has only one source.
package controller
