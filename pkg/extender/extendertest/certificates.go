// Package extendertest provides fixtures for tests of the extender and of its clients.
package extendertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Certificates are the files with which extenders and their clients authenticate each other.
type Certificates struct {
	// CA is the authority that issues all certificates. Cert and Key belong to the extenders and
	// are issued for ServerName. ClientCert and ClientKey belong to a client.
	CA, Cert, Key, ClientCert, ClientKey string
}

// ServerName is the DNS name in the extenders' certificate.
const ServerName = "spot-extender.kube-system.svc"

// MakeCertificates makes an authority and certificates that are valid for a day, in a new
// directory.
func MakeCertificates(dir string) (Certificates, error) {
	return MakeCertificatesUntil(dir, time.Now().Add(24*time.Hour))
}

// MakeCertificatesUntil is MakeCertificates, with the expiry of the certificates.
func MakeCertificatesUntil(dir string, until time.Time) (Certificates, error) {
	c := Certificates{
		CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		ClientCert: filepath.Join(dir, "client.crt"), ClientKey: filepath.Join(dir, "client.key"),
	}
	if err := c.write(dir, until); err != nil {
		return c, fmt.Errorf("making certificates: %w", err)
	}
	return c, nil
}

func (c *Certificates) write(dir string, until time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "spot-extender"}, caKey)
	if err != nil {
		return err
	}
	if err := writeCertificate(c.CA, "", ca.Raw, nil); err != nil {
		return err
	}
	for i, certificate := range []struct {
		cert, key, name string
		usage           x509.ExtKeyUsage
	}{{c.Cert, c.Key, ServerName, x509.ExtKeyUsageServerAuth}, {c.ClientCert, c.ClientKey, "kube-scheduler", x509.ExtKeyUsageClientAuth}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2), Subject: pkix.Name{CommonName: certificate.name}, DNSNames: []string{certificate.name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{certificate.usage},
		}, ca, key.Public(), caKey)
		if err != nil {
			return err
		}
		if err := writeCertificate(certificate.cert, certificate.key, raw, key); err != nil {
			return err
		}
	}
	return nil
}

// writeCertificate writes a certificate and, if keyFile is not empty, its key.
func writeCertificate(certFile, keyFile string, raw []byte, key *ecdsa.PrivateKey) error {
	block := pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: raw})
	if err := os.WriteFile(certFile, block, 0o600); err != nil || keyFile == "" {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(keyFile, keyPEM, 0o600)
}
