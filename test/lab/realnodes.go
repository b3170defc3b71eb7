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

	// FakeNodeAnnotation marks the nodes that KWOK manages if there are also real nodes. Its value
	// is FakeNode.
	FakeNodeAnnotation = "kwok.x-k8s.io/node"
	// FakeNode is the value of FakeNodeAnnotation.
	FakeNode = "fake"
)

// StartProgram starts a program that ends with the control plane and with this process. The
// control plane watches it like its own processes and writes its output to a log file of its own.
func (cp *ControlPlane) StartProgram(name, binary string, args ...string) (*Process, error) {
	return cp.start(name, binary, args...)
}

// WaitFor calls check until it returns nil. It fails with the error of a process as soon as a
// process of the control plane ends. It fails with the last error of check after two minutes or
// when ctx is done.
func (cp *ControlPlane) WaitFor(ctx context.Context, what string, check func(context.Context) error) error {
	return poll(ctx, what, cp.running(), check)
}

// apiServerAt returns the address and port of the API server. Real pods get the address of the
// Service kubernetes, and without a kube-proxy that address is not translated.
func (cp *ControlPlane) apiServerAt(freePort string) (address, port string) {
	if cp.realNodes {
		return ServiceAddress, "443"
	}
	return cp.address, freePort
}

// podFlags returns the API server's flags that depend on whether containers run in pods.
func (cp *ControlPlane) podFlags() ([]string, error) {
	if !cp.realNodes {
		// Pods need no ServiceAccount and get no token, because no containers run in them.
		disabled := "ServiceAccount"
		if cp.noControllers {
			disabled += ",TaintNodesByCondition" // no controller would remove the taint of a new node
		}
		return []string{"--disable-admission-plugins=" + disabled}, nil
	}
	cert, key, err := cp.makeKubeletClient()
	if err != nil {
		return nil, fmt.Errorf("making the API server's certificate for kubelets: %w", err)
	}
	cp.KubeletClientCA = cert
	return []string{
		"--kubelet-preferred-address-types=InternalIP", // the nodes' names have no DNS records
		"--kubelet-client-certificate=" + cert, "--kubelet-client-key=" + key,
	}, nil
}

// makeKubeletClient makes the certificate that the API server presents to kubelets when it reads
// logs. The certificate is its own authority.
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
