//go:build node

package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// takeover is the longest time from a leader's death to the next leader, with the defaults of
// leader election, which config/scheduler-config.yaml does not change. It is the lease of 15 s, and
// before and after it a retry period of 2 s with its jitter of 120 %. The last second allows for
// this test.
const takeover = 15*time.Second + 2*4400*time.Millisecond + time.Second

// TestRealNode installs the scheduler as a user does, on a node that runs its containers. It then
// uses the scheduler and makes it fail.
func TestRealNode(t *testing.T) {
	c := startCluster(t)
	base := filepath.Join(c.cp.Root, "manifests", "base")

	c.step("available", func(c *cluster) {
		c.kubectl("apply", "--kustomize", base)
		c.eventually("the Deployment to be Available with two replicas", c.healthy)
		pods, err := c.schedulers()
		c.must(err)
		for _, pod := range pods {
			if pod.Spec.NodeName != realNode {
				c.Errorf("%s is on %s, expected the node that runs containers", pod.Name, pod.Spec.NodeName)
			}
			// A Ready pod has passed the kubelet's probe of exactly this path.
			if probe := pod.Spec.Containers[0].ReadinessProbe; probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/readyz" {
				c.Errorf("%s has a readiness probe other than /readyz: %v", pod.Name, probe)
			}
			if !strings.HasPrefix(pod.Status.PodIP, "10.244.0.") {
				c.Errorf("%s has the address %q, expected one of the bridge network", pod.Name, pod.Status.PodIP)
			}
		}
		c.Logf("%s leads, one of %d", c.waitForLeader(leader{}).pod, len(pods))
	})

	c.step("restricted", func(c *cluster) {
		pods, err := c.schedulers()
		c.must(err)
		for _, pod := range pods {
			c.checkRestricted(&pod)
		}
	})

	c.step("places", func(c *cluster) {
		c.workload("runs", 2, real)
		c.places("web", 1, 3)
		for _, pod := range c.running("runs", 2) {
			pid, err := ContainerPID(c.ctx, pod.Status.ContainerStatuses[0].ContainerID)
			c.must(err)
			command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			c.must(err)
			if string(command) != "/pause\x00" {
				c.Errorf("%s runs %q", pod.Name, command)
			}
		}
	})

	c.step("logs", func(c *cluster) {
		leading := c.waitForLeader(leader{})
		pods, err := c.schedulers()
		c.must(err)
		for _, pod := range pods {
			log := c.log(pod.Name, false)
			var wanted []string
			if pod.Name == leading.pod {
				wanted = append(wanted, `"Successfully acquired lease" lock="kube-system/spot-aware-scheduler"`)
				for _, placed := range append(c.running("web", 4), c.running("runs", 2)...) {
					wanted = append(wanted,
						fmt.Sprintf(`"Successfully bound pod to node" pod="default/%s" node="%s"`, placed.Name, placed.Spec.NodeName))
				}
			} else {
				wanted = append(wanted, `"Attempting to acquire leader lease..." lock="kube-system/spot-aware-scheduler"`)
			}
			for _, want := range wanted {
				if !strings.Contains(log, want) {
					c.Errorf("the log of %s does not contain %q:\n%s", pod.Name, want, log)
				}
			}
			c.checkRights(pod.Name, log)
		}
	})

	c.step("metrics", (*cluster).checkMetrics)

	c.step("leader killed", func(c *cluster) {
		old := c.waitForLeader(leader{})
		pod, err := c.client.CoreV1().Pods(namespace).Get(c.ctx, old.pod, metav1.GetOptions{})
		c.must(err)
		pid, err := ContainerPID(c.ctx, pod.Status.ContainerStatuses[0].ContainerID)
		c.must(err)
		killed := time.Now()
		c.must(syscall.Kill(pid, syscall.SIGKILL))
		next := c.waitForLeader(old)
		took := time.Since(killed)
		c.Logf("%s leads %.1f s after %s was killed", next.pod, took.Seconds(), old.pod)
		if took > takeover {
			c.Errorf("it took %.1f s until another replica led, expected at most %s", took.Seconds(), takeover)
		}
		c.places("after-kill", 1, 2)
		c.eventually("the killed replica to restart", func() error {
			pod, err := c.client.CoreV1().Pods(namespace).Get(c.ctx, old.pod, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if status := pod.Status.ContainerStatuses[0]; status.RestartCount != 1 || !status.Ready {
				return fmt.Errorf("%d restarts, ready: %t; expected 1 and true", status.RestartCount, status.Ready)
			}
			return c.healthy()
		})
	})

	c.step("leader deleted", func(c *cluster) {
		old := c.waitForLeader(leader{})
		deleted := time.Now()
		c.must(c.client.CoreV1().Pods(namespace).Delete(c.ctx, old.pod, metav1.DeleteOptions{}))
		next := c.waitForLeader(old)
		c.Logf("%s leads %.1f s after %s was deleted", next.pod, time.Since(deleted).Seconds(), old.pod)
		c.workload("after-delete", 1, real)
		c.running("after-delete", 1)
		c.eventually("the Deployment to recover", c.healthy)
	})

	c.step("bad configuration", func(c *cluster) {
		before, err := c.schedulers()
		c.must(err)
		c.kubectl("apply", "--kustomize", c.overlay(base, "minOnDemnd: 1"))
		var bad string
		c.eventually("the new replica to exit twice", func() error {
			pods, err := c.schedulers()
			if err != nil {
				return err
			}
			for _, pod := range pods {
				known := slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.Name == pod.Name })
				switch {
				case known && !isReady(&pod):
					return fmt.Errorf("%s, which ran before, is not Ready", pod.Name)
				case known:
				case isReady(&pod):
					c.Fatalf("%s is Ready despite its configuration", pod.Name)
				default:
					bad = pod.Name
					if s := pod.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount == 0 || s[0].LastTerminationState.Terminated == nil {
						return fmt.Errorf("%s: %v", pod.Name, s)
					} else if code := s[0].LastTerminationState.Terminated.ExitCode; code != 1 {
						c.Fatalf("%s exited with status %d, expected 1", pod.Name, code)
					}
					return nil
				}
			}
			return fmt.Errorf("%d replicas, but no new replica", len(pods))
		})
		if log, want := c.log(bad, true), `args.minOnDemnd: Forbidden: unknown field "minOnDemnd"`; !strings.Contains(log, want) {
			c.Errorf("the log of %s does not contain %q:\n%s", bad, want, log)
		}

		pods, err := c.schedulers()
		c.must(err)
		for _, old := range before {
			if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == old.Name && isReady(&pod) }) {
				c.Errorf("%s stopped running after the bad configuration", old.Name)
			}
		}
		c.places("during-bad", 1, 2)

		c.kubectl("apply", "--kustomize", base)
		c.eventually("the Deployment to be healthy with the good configuration again", c.healthy)
	})

	c.step("good configuration", func(c *cluster) {
		old := c.waitForLeader(leader{})
		c.kubectl("apply", "--kustomize", c.overlay(base, "minOnDemand: 2"))
		c.eventually("the Deployment to be rolled out", c.healthy)
		c.waitForLeader(old)
		c.places("floor-of-two", 2, 2)
		pods, err := c.schedulers()
		c.must(err)
		for _, pod := range pods {
			c.checkRights(pod.Name, c.log(pod.Name, false))
		}
	})
}

// log returns the log of a replica's container, as kubectl gets it from the kubelet through the API
// server.
func (c *cluster) log(pod string, previous bool) string {
	c.Helper()
	return c.kubectl("logs", "--namespace="+namespace, fmt.Sprintf("--previous=%t", previous), pod)
}

// checkRights fails the test if the API server denied a request of a replica.
func (c *cluster) checkRights(pod, log string) {
	c.Helper()
	for line := range strings.Lines(log) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			c.Errorf("the API server denied a request of %s: %s", pod, line)
		}
	}
}

// places fails the test unless a new workload of onDemand+spot replicas runs on the given number of
// fake nodes of each type.
func (c *cluster) places(name string, onDemand, spot int) {
	c.Helper()
	c.workload(name, int32(onDemand+spot), fake)
	got := map[string]int{}
	for _, pod := range c.running(name, onDemand+spot) {
		node, err := c.client.CoreV1().Nodes().Get(c.ctx, pod.Spec.NodeName, metav1.GetOptions{})
		c.must(err)
		got[node.Labels[lab.CapacityLabel]]++
	}
	if want := (map[string]int{lab.OnDemand: onDemand, lab.Spot: spot}); !maps.Equal(got, want) {
		c.Errorf("%s runs on %v, expected %v", name, got, want)
	}
}

// overlay writes a kustomization that changes the scheduler's configuration as the documentation
// describes. It replaces the line "minOnDemand: 1".
func (c *cluster) overlay(base, line string) string {
	c.Helper()
	config, err := os.ReadFile(filepath.Join(c.cp.Root, "config", "scheduler-config.yaml"))
	c.must(err)
	changed := strings.Replace(string(config), "minOnDemand: 1\n", line+"\n", 1)
	if changed == string(config) {
		c.Fatal("config/scheduler-config.yaml has no line with minOnDemand: 1")
	}
	dir := c.TempDir()
	c.must(os.WriteFile(filepath.Join(dir, "scheduler-config.yaml"), []byte(changed), 0o600))
	relative, err := filepath.Rel(dir, base) // kustomize rejects absolute paths
	c.must(err)
	c.must(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
configMapGenerator:
- name: spot-aware-scheduler-config
  namespace: kube-system
  behavior: merge
  files: [scheduler-config.yaml]
`, relative), 0o600))
	return dir
}
