package clustertest_test

import (
	"testing"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

// A misspelled option does not change what a test covers without notice.
func TestUnreadableLines(t *testing.T) {
	for _, line := range []string{
		"node n spot cpus=1", "deployment web 1 n mim=1", "pod p n tolerate=x", "replicaset web 1", "deployment web many",
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is accepted", line)
				}
			}()
			clustertest.Objects(line)
		}()
	}
}
