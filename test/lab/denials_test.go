package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestDenials(t *testing.T) {
	for name, test := range map[string]struct {
		line string
		want bool
	}{
		"nothing denied": {`I1121 02:27:00 schedule_one.go:1] "Successfully bound pod to node" pod="t-1/web"`, false},
		"an informer's": {`E1121 02:27:00 reflector.go:204] "Failed to watch" err="failed to list *v1.Node: nodes is forbidden: ` +
			`User \"system:serviceaccount:kube-system:spot-aware-scheduler\" cannot list resource \"nodes\" in API group \"\""`, true},
		"a field's": {`E1121 02:27:00 "Error" err="status.allocation: Forbidden: changing status.allocation requires resource=x"`, true},
		"a terminating namespace": {`E1121 02:27:00 "Server rejected event" err="events.events.k8s.io \"web.1\" is forbidden: unable to ` +
			`create new content in namespace t-1 because it is being terminated"`, false},
		"both": {`E1121 02:27:00 err="is forbidden: unable to create new content in namespace t-1 because it is being terminated, ` +
			`pods is forbidden: User \"a\" cannot list resource"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, log := range []string{test.line, "before\n" + test.line + "\nafter\n"} {
				var want []string
				if test.want {
					want = []string{test.line}
				}
				if got, err := denials(strings.NewReader(log)); err != nil || !slices.Equal(got, want) {
					t.Errorf("%q, %v; want %q", got, err, want)
				}
			}
		})
	}
}
