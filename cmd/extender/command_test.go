package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"

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
		"no policy file":             {func(o *options) { o.SchedulerConfigFile = "missing.yaml" }, []string{"missing.yaml"}},
		"no such profile":            {func(o *options) { o.Profile = "other" }, []string{"profiles", `"other"`}},
		"no certificate":             {func(o *options) { o.certFile = "missing.crt" }, []string{"--tls-cert-file missing.crt"}},
		"no authority":               {func(o *options) { o.clientCAFile = "missing.crt" }, []string{"--client-ca-file missing.crt"}},
		"key of another certificate": {func(o *options) { o.keyFile = other.key }, []string{"--tls-cert-file", "private key does not match"}},
		"all at once": {func(o *options) { o.SchedulerConfigFile, o.clientCAFile = "missing.yaml", "missing.crt" },
			[]string{"missing.yaml", "--client-ca-file missing.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{PolicyFlags: app.PolicyFlags{SchedulerConfigFile: good.policy, Profile: "spot-aware-scheduler"}, bindAddress: "127.0.0.1:0",
				certFile: good.cert, keyFile: good.key, clientCAFile: good.ca}
			test.edit(&o)
			err := o.read()
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
		o := options{PolicyFlags: app.PolicyFlags{SchedulerConfigFile: "f"}, bindAddress: ":8445", advertiseAddress: test.address, certFile: "f", keyFile: "f", clientCAFile: "f"}
		if err := o.check(); err != nil || o.advertiseAddress != test.want {
			t.Errorf("%s: %s, %v, want %s", test.address, o.advertiseAddress, err, test.want)
		}
	}
}
