package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// kubeletConfig requires the CA of the API server's client certificate, the cgroup, and a folder.
//
// Some machines have cgroups version 1, and the kubelet must not divide them. The kubelet maintains
// no iptables rules, because nothing here needs them. It must not collect images, because loaded
// images cannot be pulled again. It must not evict pods because of a full disk.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://` + containerdSocket + `
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: %q
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 0%%, nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%, imagefs.inodesFree: 0%%}
volumePluginDir: %q
`

// Join starts containerd with the images of the docker archives, and a kubelet that joins cp as a
// node with this name. cp must run with Options.RealNodes, in an isolated process. Join returns
// when the node is Ready. Both programs stop with cp.
func Join(ctx context.Context, cp *lab.ControlPlane, name, labels string, archives ...string) error {
	if !Isolated() {
		return errors.New("a kubelet may only run isolated")
	}
	if err := startContainerd(ctx, cp); err != nil {
		return err
	}
	if err := loadImages(ctx, archives...); err != nil {
		return err
	}
	config := filepath.Join(cp.Dir, "kubelet.yaml")
	text := fmt.Sprintf(kubeletConfig, cp.KubeletClientCA, cgroup(), "/var/lib/kubelet/plugins")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := cp.StartProgram("kubelet", filepath.Join(cp.Root, ".local", "bin", "kubelet"),
		"--config="+config, "--kubeconfig="+cp.Kubeconfig,
		"--hostname-override="+name, "--node-ip="+lab.ServiceAddress, "--node-labels="+labels); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	return cp.WaitFor(ctx, "the kubelet's node to be Ready", func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return errors.New(condition.Message)
			}
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("taints: %v", node.Spec.Taints)
		}
		return nil
	})
}
