package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2/ktesting"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
)

// files has the paths for a valid command line.
type files struct{ policy, cert, key, ca string }

func newFiles(t *testing.T) files {
	t.Helper()
	certificates, err := extendertest.MakeCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return files{filepath.Join("..", "..", "config", "scheduler-config.yaml"), certificates.Cert, certificates.Key, certificates.CA}
}

// flags returns the flags for f and then more. If a name is repeated, the last one wins.
func (f files) flags(more ...string) []string {
	return append([]string{
		"--scheduler-config=" + f.policy, "--advertise-address=10.0.0.7:8445", "--tls-cert-file=" + f.cert,
		"--tls-private-key-file=" + f.key, "--client-ca-file=" + f.ca, "--kubeconfig=/does/not/exist",
	}, more...)
}

func TestBadCommandLines(t *testing.T) {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged // one process runs several command lines
	good := newFiles(t)
	other := newFiles(t)
	for name, test := range map[string]struct {
		args   []string
		status int
		output []string
	}{
		"valid, but no such cluster": {good.flags(), app.ExitFailed, nil},
		"no flags": {nil, app.ExitUsage, []string{
			"--scheduler-config: required", "--advertise-address: required", "--tls-cert-file: required", "--client-ca-file: required",
		}},
		"unknown flag":            {good.flags("--port=1"), app.ExitUsage, []string{"unknown flag: --port"}},
		"argument":                {good.flags("now"), app.ExitUsage, []string{`"now"`}},
		"no port":                 {good.flags("--bind-address=localhost"), app.ExitUsage, []string{"--bind-address", `"localhost"`, "expected host:port"}},
		"advertised without host": {good.flags("--advertise-address=:8445"), app.ExitUsage, []string{"--advertise-address", `":8445"`, "expected host:port"}},
		"no key":                  {good.flags("--tls-private-key-file="), app.ExitUsage, []string{"--tls-private-key-file: required"}},
		"bad logging":             {good.flags("--logging-format=xml"), app.ExitUsage, []string{"xml"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if status := newCommand().Execute(context.Background(), test.args, &stderr); status != test.status {
				t.Errorf("status %d, want %d: %s", status, test.status, &stderr)
			}
			for _, want := range test.output {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("no %q in the output: %s", want, &stderr)
				}
			}
		})
	}
	for name, test := range map[string]struct {
		edit func(*options)
		want []string
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
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
		})
	}
}

// The IP address of a pod has no port, and an IPv6 address with a port needs brackets.
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

// Of the clients that the client authority verifies, only schedulers and replicas are permitted.
func TestPermittedClients(t *testing.T) {
	f := newFiles(t)
	c, err := newCertificates(f.cert, f.key, f.ca, []string{"kube-scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	own, _ := c.own()
	named := func(common string, dns ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: common}, DNSNames: dns}
	}
	for name, test := range map[string]struct {
		client *x509.Certificate
		want   bool
	}{
		"scheduler":             {named("kube-scheduler"), true},
		"scheduler, a DNS name": {named("", "kube-scheduler"), true},
		"replica":               {own.Leaf, true},
		"kubelet":               {named("system:node:a", "a"), false},
		"no name":               {named(""), false},
	} {
		if err := c.permits(test.client); (err == nil) != test.want {
			t.Errorf("%s: %v, want permitted: %t", name, err, test.want)
		}
	}
}

// The extender warns about arguments that only the scheduler uses. The shipped file has their
// defaults.
func TestUnusedRiskArguments(t *testing.T) {
	f := newFiles(t)
	shipped, err := os.ReadFile(f.policy)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		halfLife string // replaces the half-life
		want     []string
	}{
		"shipped":   {"riskHalfLife: 1h", nil},
		"half-life": {"riskHalfLife: 2h", []string{"riskHalfLife"}},
		"pools":     {"poolRisk: [{instanceType: a, zone: b, risk: 0.2}]", []string{"poolRisk"}},
		"both":      {"{riskHalfLife: 2h, poolRisk: [{instanceType: a, zone: b, risk: 0.2}]}", []string{"riskHalfLife", "poolRisk"}},
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
			if diff := cmp.Diff(test.want, setup.ignoredArguments); diff != "" {
				t.Errorf("ignored arguments (-want +got):\n%s", diff)
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			setup.warn(logger)
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if warned := strings.Contains(log, "these arguments of SpotPreference have no effect"); warned != (test.want != nil) {
				t.Errorf("warned: %t, log: %s", warned, log)
			}
		})
	}
}
