//go:build long

package kubectl

import "testing"

// TestLongScale is TestScale with 5,000 nodes and 50,000 pods.
func TestLongScale(t *testing.T) { scale(t, 5000) }
