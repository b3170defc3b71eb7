package gating

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
)

// newConfiguration returns a client with the configuration of two webhooks.
func newConfiguration(bundle string) *fake.Clientset {
	hook := admissionv1.MutatingWebhook{ClientConfig: admissionv1.WebhookClientConfig{CABundle: []byte(bundle)}}
	return fake.NewClientset(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookConfiguration, ResourceVersion: "1"}, Webhooks: []admissionv1.MutatingWebhook{hook, hook},
	})
}

// bundles returns the bundles of the webhooks.
func bundles(t *testing.T, client kubernetes.Interface) [][]byte {
	t.Helper()
	configuration, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), webhookConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{configuration.Webhooks[0].ClientConfig.CABundle, configuration.Webhooks[1].ClientConfig.CABundle}
}

// publish publishes a certificate.
func publish(t *testing.T, c *certificate) {
	t.Helper()
	if err := c.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// requireTrust fails unless a client that trusts only the bundle connects to a server with the
// certificate, as the API server does.
func requireTrust(t *testing.T, c *certificate, bundle []byte, serverName string) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: c.get})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if server, err := listener.Accept(); err == nil {
			_, _ = server.Read(nil) // the handshake
		}
	}()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatalf("bundle %q", bundle)
	}
	connection, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: pool, ServerName: serverName})
	if err != nil {
		t.Fatalf("connecting as %s: %v", serverName, err)
	}
	connection.Close()
}

// Each replica adds its own authority, so the API server trusts every replica.
func TestCertificates(t *testing.T) {
	client := newConfiguration("")
	replicas := []*certificate{{client: client}, {client: client, ips: []net.IP{net.ParseIP("127.0.0.1")}}}
	for _, c := range replicas {
		if _, err := c.get(nil); err == nil {
			t.Error("a certificate that the API server does not trust is served")
		}
		publish(t, c)
	}
	for _, bundle := range bundles(t, client) {
		for _, c := range replicas {
			requireTrust(t, c, bundle, webhookHost())
		}
		requireTrust(t, replicas[1], bundle, "127.0.0.1")
	}
	client.ClearActions()
	for _, c := range replicas {
		publish(t, c)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("%s of a configuration that has all authorities", action.GetVerb())
		}
	}
}

// The certificate has the name of the Service in the namespace of the installation. Another
// installation's configuration is not changed.
func TestCertificateInAnotherNamespace(t *testing.T) {
	for _, namespace := range []string{"spot", "kube-system"} {
		t.Setenv("POD_NAMESPACE", namespace)
		client := newConfiguration("")
		configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		configuration, err := configurations.Get(t.Context(), webhookConfiguration, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		configuration.Webhooks[0].ClientConfig.Service = &admissionv1.ServiceReference{Namespace: "spot", Name: "spot-controller-webhook"}
		if _, err := configurations.Update(t.Context(), configuration, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c := &certificate{client: client}
		err = c.publish(t.Context())
		if namespace == "spot" {
			if err != nil {
				t.Fatal(err)
			}
			requireTrust(t, c, bundles(t, client)[0], "spot-controller-webhook.spot.svc")
		} else if _, served := c.get(nil); err == nil || !strings.Contains(err.Error(), "installation in namespace spot") || served == nil {
			t.Errorf("%v, want an error that names the other installation, and no certificate", err)
		}
	}
}

// The replica adds its authority again when the configuration was replaced, and keeps it otherwise.
func TestCertificateAgain(t *testing.T) {
	client := newConfiguration("")
	c := &certificate{client: client}
	publish(t, c)
	before, _ := c.get(nil)
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if err := configurations.Delete(t.Context(), webhookConfiguration, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.publish(t.Context()); err == nil {
		t.Error("a certificate was published without a configuration")
	}
	if after, err := c.get(nil); after != before || err != nil {
		t.Errorf("the certificate is lost with the configuration: %v", err)
	}
	replaced := newConfiguration("no certificate")
	c.client = replaced
	publish(t, c)
	requireTrust(t, c, bundles(t, replaced)[1], webhookHost())
	if after, _ := c.get(nil); after != before {
		t.Error("the certificate changed with the configuration")
	}
}

// The old certificate is served until the API server trusts the new one.
func TestCertificateRenewal(t *testing.T) {
	client := newConfiguration("")
	c := &certificate{client: client}
	publish(t, c)
	old, _ := c.get(nil)
	if left := time.Until(c.authority.NotAfter); left < 300*24*time.Hour {
		t.Fatalf("a new certificate is valid for %s", left)
	}
	c.authority.NotAfter = time.Now().Add(renewBefore - time.Hour)
	failing := true
	client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("no API server")
	})
	if err := c.publish(t.Context()); err == nil {
		t.Fatal("no error")
	}
	if now, _ := c.get(nil); now != old {
		t.Error("a certificate is served before it is published")
	}
	failing = false
	publish(t, c)
	if now, _ := c.get(nil); now == old {
		t.Error("the old certificate is served after the new one was published")
	}
	authorities, err := certutil.ParseCertsPEM(bundles(t, client)[0])
	if err != nil || len(authorities) != 2 {
		t.Errorf("%d authorities, want the old and the new one: %v", len(authorities), err)
	}
}

// Expired authorities, and the oldest beyond the maximum, are removed.
func TestAuthorities(t *testing.T) {
	c := &certificate{}
	bundle := []byte(nil)
	for range maxAuthorities + 3 {
		if err := c.generate(); err != nil {
			t.Fatal(err)
		}
		bundle, _ = c.add(bundle)
	}
	authorities, err := certutil.ParseCertsPEM(bundle)
	if err != nil || len(authorities) != maxAuthorities || !authorities[maxAuthorities-1].Equal(c.authority) {
		t.Errorf("%d authorities, want the last %d: %v", len(authorities), maxAuthorities, err)
	}
	chain, _, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{Host: webhookHost(), MaxAge: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	bundle, missing := c.add(chain)
	if authorities, err = certutil.ParseCertsPEM(bundle); err != nil || len(authorities) != 1 || !missing {
		t.Errorf("%d authorities beside expired ones, want 1: %v", len(authorities), err)
	}
}
