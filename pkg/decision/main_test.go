package decision_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain raises the number of checks of the property tests, and disables fail files: a failure
// prints its seed. The same flags on the command line take precedence.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "1000", "rapid.steps": "50", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
