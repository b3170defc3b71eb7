package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// ServiceAddress is the cluster IP of the Service kubernetes.
	ServiceAddress = "10.0.0.1"

	// FakeNodeAnnotation, with the value FakeNode, marks the nodes that KWOK plays when there are real ones beside them.
	FakeNodeAnnotation = "kwok.x-k8s.io/node"
	FakeNode           = "fake"
)

// StartProgram starts a program that ends with the control plane, and with this process. It is watched as those of the control
// plane are, and its output goes to a log beside theirs.
func (cp *ControlPlane) StartProgram(name, binary string, args ...string) (*Process, error) {
	return cp.start(name, binary, args...)
}

// WaitFor calls check until it returns nil. It gives up when a process of the control plane ends, with that as the error, and after two
// minutes or with ctx, with check's last error.
func (cp *ControlPlane) WaitFor(ctx context.Context, what string, check func(context.Context) error) error {
	return poll(ctx, what, cp.running(), check)
}

// apiServerAt is where the API server listens. Real pods are told the address of the Service kubernetes, and without a kube-proxy
// nobody translates that.
func (cp *ControlPlane) apiServerAt(freePort string) (address, port string) {
	if cp.realNodes {
		return ServiceAddress, "443"
	}
	return cp.address, freePort
}

// podFlags are the API server's that depend on whether anything runs in pods.
func (cp *ControlPlane) podFlags() ([]string, error) {
	if !cp.realNodes {
		// Pods need no ServiceAccount and get no token: nothing runs in them.
		disabled := "ServiceAccount"
		if cp.noControllers {
			disabled += ",TaintNodesByCondition" // nobody would take the taint away from a new node
		}
		return []string{"--disable-admission-plugins=" + disabled}, nil
	}
	cert, key, err := cp.makeKubeletClient()
	if err != nil {
		return nil, fmt.Errorf("making the API server's certificate for kubelets: %w", err)
	}
	cp.KubeletClientCA = cert
	return []string{
		"--kubelet-preferred-address-types=InternalIP", // nobody resolves the nodes' names
		"--kubelet-client-certificate=" + cert, "--kubelet-client-key=" + key,
	}, nil
}

// makeKubeletClient makes the certificate with which the API server asks kubelets for logs. It is its own authority.
func (cp *ControlPlane) makeKubeletClient() (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(cp.Dir, "kubelet-client.crt"), filepath.Join(cp.Dir, "kubelet-client.key")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	cert, err := certutil.NewSelfSignedCACert(
		certutil.Config{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}, key)
	if err != nil {
		return "", "", err
	}
	certPEM, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return "", "", err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return "", "", err
	}
	if err := os.WriteFile(certFile, certPEM, 0o600); err != nil {
		return "", "", err
	}
	return certFile, keyFile, os.WriteFile(keyFile, keyPEM, 0o600)
}
