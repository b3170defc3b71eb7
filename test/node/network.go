package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// podSubnet does not overlap the addresses of Services and of fake pods.
const podSubnet = "10.244.0.0/24"

// pluginDir is the folder of Debian's containernetworking-plugins.
const pluginDir = "/usr/lib/cni"

// podNetwork is a bridge to this machine, and so to the API server, but to no other network. It
// enforces no NetworkPolicy.
const podNetwork = `{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge",
    "bridge": "pods0",
    "isGateway": true,
    "ipMasq": false,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podSubnet + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

func writePodNetwork(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pods.conflist"), []byte(podNetwork), 0o644)
}

// addLoopback starts the loopback interface of this network namespace and adds an address to it.
func addLoopback(address string) error {
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "add", address + "/32", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}
