package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2/ktesting"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/daemon"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/lab"
)

// files are those of a command line that has nothing wrong.
type files struct{ policy, cert, key, ca string }

func newFiles(t *testing.T) files {
	t.Helper()
	certificates, err := lab.MakeCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return files{filepath.Join("..", "..", "config", "scheduler-config.yaml"), certificates.Cert, certificates.Key, certificates.CA}
}

// flags are those of f, with more, of which the last one of a name wins.
func (f files) flags(more ...string) []string {
	return append([]string{
		"--scheduler-config=" + f.policy, "--advertise-address=10.0.0.7:8445", "--tls-cert-file=" + f.cert,
		"--tls-private-key-file=" + f.key, "--client-ca-file=" + f.ca, "--kubeconfig=/does/not/exist",
	}, more...)
}

func TestBadCommandLines(t *testing.T) {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged // of a process that runs several command lines
	good := newFiles(t)
	other := newFiles(t)
	for name, test := range map[string]struct {
		args   []string
		status int
		says   []string
	}{
		"nothing wrong but the cluster": {good.flags(), daemon.ExitFailed, nil},
		"nothing at all": {nil, daemon.ExitUsage, []string{
			"--scheduler-config: required", "--advertise-address: required", "--tls-cert-file: required", "--client-ca-file: required",
		}},
		"unknown flag":             {good.flags("--port=1"), daemon.ExitUsage, []string{"unknown flag: --port"}},
		"argument":                 {good.flags("now"), daemon.ExitUsage, []string{`"now"`}},
		"no port":                  {good.flags("--bind-address=localhost"), daemon.ExitUsage, []string{"--bind-address", `"localhost"`, "expected host:port"}},
		"advertised without host":  {good.flags("--advertise-address=:8445"), daemon.ExitUsage, []string{"--advertise-address", `":8445"`, "expected host:port"}},
		"plain HTTP everywhere":    {[]string{"--scheduler-config=" + good.policy, "--advertise-address=h:1", "--plain-http"}, daemon.ExitUsage, []string{"--plain-http", "loopback"}},
		"plain HTTP, certificates": {good.flags("--plain-http", "--bind-address=127.0.0.1:1"), daemon.ExitUsage, []string{"--tls-cert-file", "expected none"}},
		"bad logging":              {good.flags("--logging-format=xml"), daemon.ExitUsage, []string{"xml"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if status := newCommand().Execute(context.Background(), test.args, &stderr); status != test.status {
				t.Errorf("status %d, want %d: %s", status, test.status, &stderr)
			}
			for _, says := range test.says {
				if !strings.Contains(stderr.String(), says) {
					t.Errorf("does not say %q: %s", says, &stderr)
				}
			}
		})
	}
	for name, test := range map[string]struct {
		edit func(*options)
		says []string
	}{
		"no policy file":             {func(o *options) { o.schedulerConfigFile = "missing.yaml" }, []string{"missing.yaml"}},
		"no such profile":            {func(o *options) { o.profile = "other" }, []string{"profiles", `"other"`}},
		"no certificate":             {func(o *options) { o.certFile = "missing.crt" }, []string{"--tls-cert-file missing.crt"}},
		"no authority":               {func(o *options) { o.clientCAFile = "missing.crt" }, []string{"--client-ca-file missing.crt"}},
		"key of another certificate": {func(o *options) { o.keyFile = other.key }, []string{"--tls-cert-file", "private key does not match"}},
		"of another authority":       {func(o *options) { o.clientCAFile = other.ca }, []string{"--tls-cert-file", "server auth and client auth", "unknown authority"}},
		"all at once": {func(o *options) { o.schedulerConfigFile, o.clientCAFile = "missing.yaml", "missing.crt" },
			[]string{"missing.yaml", "--client-ca-file missing.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{schedulerConfigFile: good.policy, profile: "spot-aware-scheduler", bindAddress: "127.0.0.1:0",
				certFile: good.cert, keyFile: good.key, clientCAFile: good.ca}
			test.edit(&o)
			_, err := o.read()
			for _, says := range test.says {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("error %v, want one with %q", err, says)
				}
			}
		})
	}
}

// A certificate that serves only would keep a replica that stands by from asking the one that leads.
func TestCertificateForServingOnly(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "spot-extender", AltNames: certutil.AltNames{DNSNames: []string{"x"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := certutil.EncodeCertificates(ca)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"crt": pem, "key": keyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err = newCertificates(filepath.Join(dir, "crt"), filepath.Join(dir, "key"), newFiles(t).ca, nil)
	if err == nil || !strings.Contains(err.Error(), "client auth") {
		t.Errorf("error %v, want one about client auth", err)
	}
}

// The IP address of a pod has no port, and one of IPv6 needs brackets beside one.
func TestAdvertised(t *testing.T) {
	for _, test := range []struct{ address, want string }{
		{"10.0.0.7", "10.0.0.7:8445"}, {"fd00::1", "[fd00::1]:8445"}, {"[fd00::1]:9", "[fd00::1]:9"}, {"extender:9", "extender:9"},
	} {
		o := options{schedulerConfigFile: "f", bindAddress: ":8445", advertiseAddress: test.address, certFile: "f", keyFile: "f", clientCAFile: "f"}
		if err := o.check(); err != nil || o.advertiseAddress != test.want {
			t.Errorf("%s: %s, %v, want %s", test.address, o.advertiseAddress, err, test.want)
		}
	}
}

// Of those that the client authority knows, only schedulers and replicas may ask.
func TestWhoMayAsk(t *testing.T) {
	f := newFiles(t)
	c, err := newCertificates(f.cert, f.key, f.ca, []string{"kube-scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	own, err := c.own()
	if err != nil {
		t.Fatal(err)
	}
	named := func(common string, dns ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: common}, DNSNames: dns}
	}
	for name, test := range map[string]struct {
		client *x509.Certificate
		may    bool
	}{
		"scheduler":             {named("kube-scheduler"), true},
		"scheduler, a DNS name": {named("", "kube-scheduler"), true},
		"replica":               {own.Leaf, true},
		"kubelet":               {named("system:node:a", "a"), false},
		"nobody":                {named(""), false},
	} {
		if err := c.mayAsk(test.client, own.Leaf); (err == nil) != test.may {
			t.Errorf("%s: %v, may ask: %t", name, err, test.may)
		}
	}
}

// Whoever sets what only the scheduler reads is told; the file that ships sets the default.
func TestRiskDoesNothing(t *testing.T) {
	f := newFiles(t)
	shipped, err := os.ReadFile(f.policy)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		halfLife string // what stands in the place of the half-life
		want     []string
	}{
		"as it ships":  {"riskHalfLife: 1h", nil},
		"half-life":    {"riskHalfLife: 2h", []string{"riskHalfLife"}},
		"pools":        {"poolRisk: [{instanceType: a, zone: b, risk: 0.2}]", []string{"poolRisk"}},
		"both of them": {"{riskHalfLife: 2h, poolRisk: [{instanceType: a, zone: b, risk: 0.2}]}", []string{"riskHalfLife", "poolRisk"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(file, bytes.Replace(shipped, []byte("riskHalfLife: 1h"), []byte(test.halfLife), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			o := options{schedulerConfigFile: file, profile: "spot-aware-scheduler", bindAddress: "127.0.0.1:0",
				certFile: f.cert, keyFile: f.key, clientCAFile: f.ca}
			setup, err := o.read()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, setup.unused); diff != "" {
				t.Errorf("do nothing (-want +got):\n%s", diff)
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			setup.warn(logger)
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if told := strings.Contains(log, "these arguments of SpotPreference do nothing"); told != (test.want != nil) {
				t.Errorf("told: %t, log: %s", told, log)
			}
		})
	}
}
