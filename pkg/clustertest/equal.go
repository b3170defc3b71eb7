package clustertest

import "github.com/google/go-cmp/cmp"

// Equal reports an error with the differences if got is not equal to want. what names the values.
func Equal(t TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
