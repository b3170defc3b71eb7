// Package controller holds the configuration of spot-controller: its type, defaults, strict decoding and validation. The policy does not
// stand in it but in the scheduler's configuration (package config), so that there is one place for it.
package controller
