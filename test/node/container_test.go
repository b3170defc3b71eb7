//go:build node

package node

import (
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// checkRestricted checks in /proc the limits under which a replica's process runs.
func (c *cluster) checkRestricted(pod *corev1.Pod) {
	c.Helper()
	pid, err := ContainerPID(c.ctx, pod.Status.ContainerStatuses[0].ContainerID)
	c.must(err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	c.must(err)
	for field, want := range map[string]string{
		"Name":       "spot-aware-sche",
		"Uid":        "65532 65532 65532 65532",
		"Gid":        "65532 65532 65532 65532",
		"CapEff":     "0000000000000000",
		"CapBnd":     "0000000000000000",
		"NoNewPrivs": "1",
		"Seccomp":    "2", // a filter
	} {
		if got := procField(string(status), field); got != want {
			c.Errorf("%s: %s is %q, expected %q", pod.Name, field, got, want)
		}
	}

	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	c.must(err)
	root := ""
	for line := range strings.Lines(string(mounts)) {
		// id, parent, device, root, mount point, options
		if fields := strings.Fields(line); len(fields) > 5 && fields[4] == "/" {
			root = fields[5]
		}
	}
	if root != "ro" && !strings.HasPrefix(root, "ro,") {
		c.Errorf("%s: its root is mounted %q, expected ro", pod.Name, root)
	}
}

// procField returns the words of a line in /proc/PID/status, separated by single spaces.
func procField(status, name string) string {
	for line := range strings.Lines(status) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}
