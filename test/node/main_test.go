//go:build node

package node

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if Isolated() {
		os.Exit(m.Run())
	}
	status, err := Isolate()
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/node:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}
