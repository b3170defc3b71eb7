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

// RunTimeAnnotation on a pod says how long it runs before it succeeds, as a Go duration. Without it a pod runs for ever.
const RunTimeAnnotation = "lab.spot-aware-scheduler.io/run-time"

// startTimeout is for one component on a machine that also compiles; each takes a few seconds on an idle one.
const startTimeout = 2 * time.Minute

//go:embed stages.yaml
var stages string

// startAPIServer starts etcd and the API server, and returns when the latter is ready. That includes the bootstrap roles
// and the system priority classes.
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
		"--unsafe-no-fsync", // nothing here outlives the machine
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
		"--endpoint-reconciler-type=none", // the Service kubernetes may not point to loopback
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file="+identity.certFile, "--tls-private-key-file="+identity.keyFile,
		"--token-auth-file="+identity.tokensFile,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+identity.keyFile, "--service-account-signing-key-file="+identity.keyFile,
		// Without client CAs every component logs "missing content for CA bundle" for ever. Nobody has a certificate that these
		// accept.
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
	return poll(ctx, "kube-apiserver to be ready", cp.running(), func(ctx context.Context) error {
		return cp.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (cp *ControlPlane) startControllerManager(flags []string) error {
	var podFlags []string
	if cp.realNodes {
		podFlags = []string{"--root-ca-file=" + filepath.Join(cp.Dir, apiServerCert)} // goes into every pod
	}
	_, err := cp.start("kube-controller-manager", cp.tool("kube-controller-manager"), append(append(podFlags, flags...),
		"--kubeconfig="+cp.Kubeconfig,
		"--leader-elect=false",
		"--use-service-account-credentials=false",
		"--service-account-private-key-file="+filepath.Join(cp.Dir, apiServerKey), // for Secrets that ask for a token
		"--secure-port=0",
		// Fake kubelets send no heartbeats (see startKwok). A node is NotReady when its condition says so.
		"--node-monitor-grace-period=8760h",
		// At the defaults of 20 and 30, 3,000 pods take over a minute just to be created.
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	)...)
	return err
}

func (cp *ControlPlane) startKwok(podStartup time.Duration) error {
	config := filepath.Join(cp.Dir, "kwok.yaml")
	text := strings.NewReplacer(
		"POD_STARTUP_MILLISECONDS", strconv.FormatInt(podStartup.Milliseconds(), 10),
		"RUN_TIME_ANNOTATION", RunTimeAnnotation,
	).Replace(stages)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("starting kwok: %w", err)
	}
	nodes := "--manage-all-nodes=true"
	if cp.realNodes {
		nodes = "--manage-nodes-with-annotation-selector=" + FakeNodeAnnotation + "=" + FakeNode
	}
	_, err := cp.start("kwok", cp.tool("kwok"),
		"--kubeconfig="+cp.Kubeconfig,
		"--config="+config,
		nodes,
		// No Leases: when a node is deleted while its Lease is being renewed, and soon made again under the same name, KWOK 0.8.0
		// stops renewing those of all other nodes, which are unreachable 50 s later (the name is twice in a heap that finds only one).
		"--node-lease-duration-seconds=0",
		"--cidr=10.64.0.0/10", // the default has room for 254 pods
		"--v=WARN",            // at INFO it tells every step of every pod
	)
	return err
}

// waitForControllers returns when the controller manager has made the first thing that it makes in every cluster.
func (cp *ControlPlane) waitForControllers(ctx context.Context) error {
	return poll(ctx, "kube-controller-manager to work", cp.running(), func(ctx context.Context) error {
		_, err := cp.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// poll calls check until it returns nil. It gives up when one of the processes ends, with that as the error, and after
// startTimeout or at the deadline of ctx if that is later, with check's last error.
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

// loopback returns this process's own address in 127.0.0.0/8. Whoever looks for a free port has to close it before a
// child can open it; on an address that no other process listens on, and that no client's connections come from, nobody
// takes it in between.
func loopback() string {
	pid := os.Getpid() // at most 22 bits on Linux
	return net.IPv4(127, byte(pid>>16), byte(pid>>8), byte(pid)).String()
}

func (cp *ControlPlane) host(port string) string { return net.JoinHostPort(cp.address, port) }

// handedOut holds the addresses that freePort has given away, of all control planes of this process: they share its address on loopback.
var handedOut sync.Map

// freePort returns a TCP port on which nothing listens at the control plane's address. It never returns one twice: whoever got it first may
// not listen yet, or may have ended and be started again.
func (cp *ControlPlane) freePort() (string, error) {
	for {
		listener, err := net.Listen("tcp", cp.host("0"))
		if err != nil {
			return "", fmt.Errorf("looking for a free port: %w", err)
		}
		defer listener.Close() // when a port is found, so that each look finds another
		if _, taken := handedOut.LoadOrStore(listener.Addr().String(), true); !taken {
			return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
		}
	}
}

// FreeAddress returns host and port of the control plane on which nothing listens, for a program that is started beside it. It never
// returns the same twice.
func (cp *ControlPlane) FreeAddress() (string, error) {
	port, err := cp.freePort()
	return cp.host(port), err
}
