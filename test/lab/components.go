package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// RunTimeAnnotation on a pod is the time that it runs before it succeeds, as a Go duration. A pod
// without it runs until it is deleted.
const RunTimeAnnotation = "lab.spot-aware-scheduler.io/run-time"

// startTimeout is the limit for the start of one component, on a machine that also compiles. On
// an idle machine, each component takes a few seconds.
const startTimeout = 2 * time.Minute

//go:embed stages.yaml
var stages string

// startAPIServer starts etcd and the API server, and returns when the latter is ready. That
// includes the bootstrap roles and the system priority classes.
func (cp *ControlPlane) startAPIServer(ctx context.Context, flags []string) error {
	var ports [3]string
	for i := range ports {
		var err error
		if ports[i], err = cp.freePort(); err != nil {
			return err
		}
	}
	clients, peers := "http://"+cp.host(ports[0]), "http://"+cp.host(ports[1])
	cp.etcd = clients
	address, secure := cp.apiServerAt(ports[2])
	_, err := cp.start("etcd", cp.tool("etcd"),
		"--name=lab",
		"--data-dir="+filepath.Join(cp.Dir, "etcd"),
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=lab="+peers,
		"--unsafe-no-fsync", // the data need not survive a crash of the machine
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	identity, err := cp.makeIdentities(address, secure)
	if err != nil {
		return err
	}
	podFlags, err := cp.podFlags()
	if err != nil {
		return err
	}
	_, err = cp.start("kube-apiserver", cp.tool("kube-apiserver"), append(append(podFlags, flags...),
		"--etcd-servers="+clients,
		"--bind-address="+address, "--advertise-address="+address, "--secure-port="+secure,
		"--endpoint-reconciler-type=none", // Endpoints reject loopback addresses
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file="+identity.certFile, "--tls-private-key-file="+identity.keyFile,
		"--token-auth-file="+identity.tokensFile,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+identity.keyFile, "--service-account-signing-key-file="+identity.keyFile,
		// Without client CAs, every component keeps logging "missing content for CA bundle". No
		// client has a certificate that these CAs accept.
		"--client-ca-file="+identity.certFile,
		"--requestheader-client-ca-file="+identity.certFile, "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	)...)
	if err != nil {
		return err
	}
	if cp.client, err = kubernetes.NewForConfig(cp.config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return cp.waitForAPIServer(ctx)
}

// waitForAPIServer returns when the API server is ready. It fails if the API server does not have
// the wanted minor version.
func (cp *ControlPlane) waitForAPIServer(ctx context.Context) error {
	err := poll(ctx, "kube-apiserver to be ready", cp.running(), func(ctx context.Context) error {
		return cp.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		return err
	}
	got, err := cp.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("getting the API server's version: %w", err)
	}
	if want := KubernetesVersion(); !strings.HasPrefix(got.GitVersion, "v"+want+".") {
		return fmt.Errorf("the API server has version %s, expected %s", got.GitVersion, want)
	}
	return nil
}

func (cp *ControlPlane) startControllerManager(flags []string) error {
	var podFlags []string
	if cp.realNodes {
		podFlags = []string{"--root-ca-file=" + filepath.Join(cp.Dir, apiServerCert)} // mounted into every pod
	}
	_, err := cp.start("kube-controller-manager", cp.tool("kube-controller-manager"), append(append(podFlags, flags...),
		"--kubeconfig="+cp.Kubeconfig,
		"--leader-elect=false",
		"--use-service-account-credentials=false",
		"--service-account-private-key-file="+filepath.Join(cp.Dir, apiServerKey), // for token Secrets
		"--secure-port=0",
		// Fake kubelets send no heartbeats (see startKwok). A node is NotReady if its condition
		// is.
		"--node-monitor-grace-period=8760h",
		// At the defaults of 20 and 30, the controllers need over a minute to create 3,000 pods.
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	)...)
	return err
}

// kwokConfig is the name of KWOK's configuration in the lab's directory.
const kwokConfig = "kwok.yaml"

// writeKwokConfig writes the stages of the fake kubelets. Pods become ready this time after their
// binding.
func (cp *ControlPlane) writeKwokConfig(podStartup time.Duration) error {
	text := strings.NewReplacer(
		"POD_STARTUP_MILLISECONDS", strconv.FormatInt(podStartup.Milliseconds(), 10),
		"RUN_TIME_ANNOTATION", RunTimeAnnotation,
	).Replace(stages)
	if err := os.WriteFile(filepath.Join(cp.Dir, kwokConfig), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the stages of kwok: %w", err)
	}
	return nil
}

// SetPodStartup changes Options.PodStartup while the control plane runs. It restarts the fake
// kubelets, so the time of a pod that is not ready yet begins again.
func (cp *ControlPlane) SetPodStartup(podStartup time.Duration) error {
	kwok := cp.Process("kwok")
	if kwok == nil {
		return errors.New("changing the start-up time of pods: kwok does not run")
	}
	if err := cp.writeKwokConfig(podStartup); err != nil {
		return err
	}
	if err := kwok.Kill(); err != nil {
		return err
	}
	_, err := cp.StartAgain(kwok)
	return err
}

func (cp *ControlPlane) startKwok(podStartup time.Duration) error {
	if err := cp.writeKwokConfig(podStartup); err != nil {
		return err
	}
	nodes := "--manage-all-nodes=true"
	if cp.realNodes {
		nodes = "--manage-nodes-with-annotation-selector=" + FakeNodeAnnotation + "=" + FakeNode
	}
	_, err := cp.start("kwok", cp.tool("kwok"),
		"--kubeconfig="+cp.Kubeconfig,
		"--config="+filepath.Join(cp.Dir, kwokConfig),
		nodes,
		// KWOK renews no Leases. Otherwise KWOK 0.8.0 stops renewing the Leases of all other
		// nodes if a node is deleted during a renewal and soon recreated under the same name: the
		// name is twice in a heap that finds only one. The other nodes are unreachable 50 s
		// later.
		"--node-lease-duration-seconds=0",
		"--cidr=10.64.0.0/10", // the default has room for 254 pods
		"--v=WARN",            // INFO logs every step of every pod
	)
	return err
}

// waitForControllers returns when the controller manager has created the ServiceAccount
// "default", which every cluster has.
func (cp *ControlPlane) waitForControllers(ctx context.Context) error {
	return poll(ctx, "kube-controller-manager to work", cp.running(), func(ctx context.Context) error {
		_, err := cp.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// poll calls check until it returns nil. It fails with the error of a process as soon as one of
// the processes ends. It fails with the last error of check after startTimeout, or at the
// deadline of ctx if that is later.
func poll(ctx context.Context, what string, processes []*Process, check func(context.Context) error) error {
	timeout := startTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(timeout, time.Until(deadline))
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		for _, p := range processes {
			if err := p.Err(); err != nil {
				return false, err
			}
		}
		err := check(ctx)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return nil
	}
	if wait.Interrupted(err) {
		err = errors.Join(err, last)
	}
	return fmt.Errorf("waiting for %s: %w", what, err)
}

// loopback returns this process's own address in 127.0.0.0/8. The lab closes a free port that it
// has found before a child process opens it. In between, no other process uses the port: no
// other process listens on this address, and no client connects from it.
func loopback() string {
	pid := os.Getpid() // at most 22 bits on Linux
	return net.IPv4(127, byte(pid>>16), byte(pid>>8), byte(pid)).String()
}

func (cp *ControlPlane) host(port string) string { return net.JoinHostPort(cp.address, port) }

// usedAddresses contains the addresses that freePort has returned, for all control planes of this
// process. They share its address on loopback.
var usedAddresses sync.Map

// freePort returns a TCP port on which no process listens at the control plane's address. It
// never returns the same port twice. The first process that got the port may not listen yet, or
// may be restarted.
func (cp *ControlPlane) freePort() (string, error) {
	for {
		listener, err := net.Listen("tcp", cp.host("0"))
		if err != nil {
			return "", fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close() // on return, so that each attempt finds another port
		if _, taken := usedAddresses.LoadOrStore(listener.Addr().String(), true); !taken {
			return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
		}
	}
}

// FreeAddress returns a host and port of the control plane on which no process listens, for a
// program that runs beside it. It never returns the same address twice.
func (cp *ControlPlane) FreeAddress() (string, error) {
	port, err := cp.freePort()
	return cp.host(port), err
}
