package clustertest

import (
	"fmt"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
)

// Paused returns what pauses the causes for which stops returns true.
func Paused(stops func(safety.Cause) bool) safety.Paused {
	return func(c safety.Cause) error {
		if stops(c) {
			return fmt.Errorf("paused: %s", c)
		}
		return nil
	}
}
