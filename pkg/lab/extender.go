package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// ExtenderOptions say which extender StartExtender starts. The zero value is this project's extender as it ships.
type ExtenderOptions struct {
	// SchedulerConfigFile says the policy. Empty: config/scheduler-config.yaml of the checkout.
	SchedulerConfigFile string
	// EditScheduler, when set, changes the decoded SchedulerConfigFile before the extender reads it.
	EditScheduler func(config map[string]any)
	// Kubeconfig is the credential it runs with. Empty: that of the ServiceAccount kube-system/spot-extender, which may do what the
	// manifests grant and nothing else.
	Kubeconfig string
	// Certificates are the files that it serves with and knows its clients by; of them ClientCert and ClientKey are not used. Zero: those of
	// ControlPlane.ExtenderCertificates.
	Certificates Certificates
	// Flags are added to those that the lab sets, and win over them.
	Flags []string
}

// Extender is an extender that the lab started.
type Extender struct {
	*Process
	// Address is the host:port at which it serves kube-scheduler, and other replicas.
	Address string
}

// Certificates are the files by which extenders and their clients know each other.
type Certificates struct {
	// CA is the authority of all of them. Cert and Key are the extenders' own, for ExtenderName; ClientCert and ClientKey a client's.
	CA, Cert, Key, ClientCert, ClientKey string
}

// ExtenderName is the DNS name in the extenders' certificate.
const ExtenderName = "spot-extender.kube-system.svc"

var extenderAccount = account{"spot-extender",
	[]string{"manifests/components/extender/serviceaccount.yaml", "manifests/components/extender/rbac.yaml"}}

// extenders is what all extenders of a control plane share; each is empty until it is asked for, and guarded by ControlPlane.granting.
type extenders struct {
	kubeconfig   string
	certificates *Certificates
}

// StartExtender starts an extender and returns when it is ready: its informers have synced, and it leads or stands by. An extender that
// ends before that is an *ExitError with the tail of its log; one that is not ready after two minutes is killed.
func (cp *ControlPlane) StartExtender(ctx context.Context, options ExtenderOptions) (*Extender, error) {
	const name = "spot-extender"
	if options.SchedulerConfigFile == "" {
		options.SchedulerConfigFile = cp.schedulerConfig()
	}
	if options.Kubeconfig == "" {
		var err error
		if options.Kubeconfig, err = cp.extenderKubeconfig(ctx); err != nil {
			return nil, err
		}
	}
	policy, err := readConfig(options.SchedulerConfigFile, options.EditScheduler)
	if err != nil {
		return nil, err
	}
	policyFile, err := cp.writeConfig(name+"-policy", policy)
	if err != nil {
		return nil, err
	}
	certificates := options.Certificates
	if certificates == (Certificates{}) {
		if certificates, err = cp.ExtenderCertificates(); err != nil {
			return nil, err
		}
	}
	addresses := map[string]string{}
	for _, server := range []string{"requests", "metrics", "health"} {
		if addresses[server], err = cp.FreeAddress(); err != nil {
			return nil, err
		}
	}
	client, err := metricsClient(cp.config)
	if err != nil {
		return nil, err
	}
	p, err := cp.start(name, filepath.Join(cp.Root, "bin", name), append([]string{
		"--scheduler-config=" + policyFile, "--kubeconfig=" + options.Kubeconfig,
		"--bind-address=" + addresses["requests"],
		"--metrics-bind-address=" + addresses["metrics"], "--health-probe-bind-address=" + addresses["health"],
		"--tls-cert-file=" + certificates.Cert, "--tls-private-key-file=" + certificates.Key, "--client-ca-file=" + certificates.CA,
	}, options.Flags...)...)
	if err != nil {
		return nil, err
	}
	p.url, p.health, p.client = "https://"+addresses["metrics"], "http://"+addresses["health"], client
	if _, err := cp.untilReady(ctx, p); err != nil {
		return nil, err
	}
	return &Extender{p, addresses["requests"]}, nil
}

// ExtendedScheduler returns how a stock kube-scheduler is started that asks the extender at an address, with config/extender.yaml of the
// checkout: it places the pods of the profiles spot-aware-scheduler and default-scheduler.
func (cp *ControlPlane) ExtendedScheduler(address string) (SchedulerOptions, error) {
	certificates, err := cp.ExtenderCertificates()
	if err != nil {
		return SchedulerOptions{}, err
	}
	return SchedulerOptions{
		Name: "kube-scheduler", Binary: cp.tool("kube-scheduler"), Kubeconfig: cp.StockKubeconfig,
		ConfigFile: filepath.Join(cp.Root, "config", "extender.yaml"),
		Edit: func(config map[string]any) {
			extender := config["extenders"].([]any)[0].(map[string]any)
			extender["urlPrefix"] = "https://" + address
			tls := extender["tlsConfig"].(map[string]any)
			tls["caFile"], tls["certFile"], tls["keyFile"] = certificates.CA, certificates.ClientCert, certificates.ClientKey
			// As StartStockScheduler.
			config["clientConnection"] = map[string]any{"qps": 500, "burst": 1000}
			config["leaderElection"] = map[string]any{"leaderElect": false}
		},
	}, nil
}

// extenderKubeconfig returns a file with the credential of the ServiceAccount kube-system/spot-extender, to which the first call grants
// what the manifests ship.
func (cp *ControlPlane) extenderKubeconfig(ctx context.Context) (string, error) {
	cp.granting.Lock()
	defer cp.granting.Unlock()
	if cp.extenders.kubeconfig == "" {
		kubeconfig, err := cp.grant(ctx, extenderAccount)
		if err != nil {
			return "", err
		}
		cp.extenders.kubeconfig = kubeconfig
	}
	return cp.extenders.kubeconfig, nil
}

// ExtenderCertificates returns the certificates of this control plane's extenders, which the first call makes.
func (cp *ControlPlane) ExtenderCertificates() (Certificates, error) {
	cp.granting.Lock()
	defer cp.granting.Unlock()
	if cp.extenders.certificates == nil {
		certificates, err := MakeCertificates(filepath.Join(cp.Dir, "extender"))
		if err != nil {
			return Certificates{}, err
		}
		cp.extenders.certificates = &certificates
	}
	return *cp.extenders.certificates, nil
}

// MakeCertificates makes certificates of an authority of their own, good for a day, in a new directory.
func MakeCertificates(dir string) (Certificates, error) {
	c := Certificates{
		CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		ClientCert: filepath.Join(dir, "client.crt"), ClientKey: filepath.Join(dir, "client.key"),
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, fmt.Errorf("making certificates: %w", err)
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, fmt.Errorf("making certificates: %w", err)
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "spot-extender"}, caKey)
	if err != nil {
		return c, fmt.Errorf("making certificates: %w", err)
	}
	if err := writeCertificate(c.CA, "", ca.Raw, nil); err != nil {
		return c, err
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for i, of := range []struct {
		cert, key, name string
		usages          []x509.ExtKeyUsage
	}{{c.Cert, c.Key, ExtenderName, both}, {c.ClientCert, c.ClientKey, "kube-scheduler", both[1:]}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return c, fmt.Errorf("making certificates: %w", err)
		}
		raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2), Subject: pkix.Name{CommonName: of.name}, DNSNames: []string{of.name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: slices.Clone(of.usages),
		}, ca, key.Public(), caKey)
		if err != nil {
			return c, fmt.Errorf("making certificates: %w", err)
		}
		if err := writeCertificate(of.cert, of.key, raw, key); err != nil {
			return c, err
		}
	}
	return c, nil
}

// writeCertificate writes a certificate, and its key unless that has no file.
func writeCertificate(certFile, keyFile string, raw []byte, key *ecdsa.PrivateKey) error {
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	pem, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	if err := os.WriteFile(certFile, pem, 0o600); err != nil || keyFile == "" {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	return os.WriteFile(keyFile, keyPEM, 0o600)
}
