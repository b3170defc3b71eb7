package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// PauseImage is the image of test/node/pause. No image has to be pulled.
const PauseImage = "localhost/pause:1"

const containerdSocket = "/run/containerd/containerd.sock"

// containerdConfig requires the folder of the networks. All its files are below the folders that
// Isolate replaces.
//
// The snapshotter native copies files, because overlayfs may be unavailable. Without
// restrict_oom_score_adj, runc fails on a machine that forbids lowering the score ("can't get final
// child's PID from pipe").
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "` + containerdSocket + `"

[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "` + PauseImage + `"
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "` + pluginDir + `"
conf_dir = %q

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
`

// startContainerd returns when containerd responds.
func startContainerd(ctx context.Context, cp *lab.ControlPlane) error {
	networks := filepath.Join(cp.Dir, "networks")
	if err := writePodNetwork(networks); err != nil {
		return err
	}
	config := filepath.Join(cp.Dir, "containerd.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, containerdConfig, networks), 0o600); err != nil {
		return err
	}
	if _, err := cp.StartProgram("containerd", "containerd", "--config="+config); err != nil {
		return err
	}
	return cp.WaitFor(ctx, "containerd to answer", func(ctx context.Context) error {
		_, err := ctr(ctx, "version")
		return err
	})
}

// loadImages imports the images of docker archives into containerd, each under its name in the
// archive.
func loadImages(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		if _, err := ctr(ctx, "images", "import", "--snapshotter=native", archive); err != nil {
			return err
		}
	}
	return nil
}

// ContainerPID returns the process ID of a running container. id is the container ID in the pod's
// status ("containerd://…").
func ContainerPID(ctx context.Context, id string) (int, error) {
	name, ok := strings.CutPrefix(id, "containerd://")
	if !ok {
		return 0, fmt.Errorf("container id %q: expected containerd://…", id)
	}
	tasks, err := ctr(ctx, "tasks", "list")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(tasks) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name && fields[2] == "RUNNING" {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("container %s does not run", name)
}

// ctr runs containerd's own client in the namespace that kubelets use.
func ctr(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "ctr", append([]string{"--address=" + containerdSocket, "--namespace=k8s.io"}, args...)...)
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
