package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/daemon"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"

	// The metrics of leader election.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
)

// options are the command line.
type options struct {
	schedulerConfigFile, profile, kubeconfig string
	bindAddress, advertiseAddress            string
	metricsAddress, healthAddress            string
	certFile, keyFile, clientCAFile          string
	allowedClients                           []string
	plainHTTP                                bool
}

// setup is what the command line and its files say.
type setup struct {
	options
	policy  *decision.Policy
	signals []kube.Signal
	unused  []string      // arguments in the file that change nothing here
	tls     *certificates // nil for plain HTTP
}

// newCommand returns the command.
func newCommand() *daemon.Command {
	var opts options
	return &daemon.Command{
		Name: "spot-extender",
		Long: `spot-extender gives a stock kube-scheduler the placement decisions of
spot-aware-scheduler, over the scheduler-extender protocol: workloads run on spot
nodes as far as is safe, and no further. It reads the policy from the
configuration file of spot-aware-scheduler and decides about the pods that name
that file's profile in spec.schedulerName; all others it lets pass.
config/extender.yaml is the scheduler's side.`,
		AddFlags: func(sets *cliflag.NamedFlagSets) {
			flags := sets.FlagSet("extender")
			flags.StringVar(&opts.schedulerConfigFile, "scheduler-config", "",
				"The configuration file of spot-aware-scheduler, which has the policy. Required; config/scheduler-config.yaml is one to start from.")
			flags.StringVar(&opts.profile, "profile", config.DefaultProfile,
				"The schedulerName of the profile in it whose policy is kept, for the pods that name it.")
			flags.StringVar(&opts.kubeconfig, "kubeconfig", "",
				"A kubeconfig with the cluster and the credential. Without, those of the ServiceAccount of the pod that this runs in.")
			serving := sets.FlagSet("serving")
			serving.StringVar(&opts.bindAddress, "bind-address", ":8445",
				"Where kube-scheduler is served, as host:port; without a host on all addresses.")
			serving.StringVar(&opts.advertiseAddress, "advertise-address", "",
				"Where other replicas reach this one, as host:port, or as an IP address with the port of --bind-address. Required where --bind-address "+
					"has no host; otherwise that is the default.")
			serving.StringVar(&opts.certFile, "tls-cert-file", "",
				"The certificate to serve with, as PEM, read again when it changes. --client-ca-file must have signed it, for a DNS name and for the "+
					"usages server auth and client auth: replicas know each other by it. Required.")
			serving.StringVar(&opts.keyFile, "tls-private-key-file", "", "The key of --tls-cert-file. Required.")
			serving.StringVar(&opts.clientCAFile, "client-ca-file", "",
				"The authorities whose client certificates are accepted, as PEM, read again when it changes. Required.")
			serving.StringSliceVar(&opts.allowedClients, "allowed-client-names", []string{"kube-scheduler"},
				"Which of the clients with such a certificate may ask: a common name or DNS name in it. Other replicas may, by the DNS name in "+
					"--tls-cert-file.")
			serving.BoolVar(&opts.plainHTTP, "plain-http", false,
				"Serve HTTP without certificates, to whoever can reach the address. For trials: --bind-address must be on loopback.")
			serving.StringVar(&opts.metricsAddress, "metrics-bind-address", ":8443",
				"Where /metrics is served, over HTTPS, to those who may read it; 0 for nowhere.")
			serving.StringVar(&opts.healthAddress, "health-probe-bind-address", ":8081",
				"Where /healthz and /readyz are served, over HTTP; 0 for nowhere.")
		},
		Read: func() (func(context.Context) error, error) {
			setup, err := opts.read()
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return start(ctx, setup) }, nil
		},
	}
}

// read checks the flags and reads the files. The error names the mistakes in all of them.
func (o *options) read() (*setup, error) {
	if err := o.check(); err != nil {
		return nil, daemon.Misuse(err)
	}
	s := &setup{options: *o}
	policyErr := daemon.ReadFile(o.schedulerConfigFile, func(data []byte) (err error) {
		if s.policy, s.signals, err = config.ReadPolicy(data, o.profile); err != nil {
			return err
		}
		s.unused, err = config.RiskFields(data, o.profile)
		return err
	})
	var tlsErr error
	if !o.plainHTTP {
		s.tls, tlsErr = newCertificates(o.certFile, o.keyFile, o.clientCAFile, o.allowedClients)
	}
	return s, errors.Join(policyErr, tlsErr)
}

// check returns the mistakes in the flags themselves, and fills in the default that depends on another one.
func (o *options) check() error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.schedulerConfigFile == "" {
		mistake("--scheduler-config: required")
	}
	host, port, err := net.SplitHostPort(o.bindAddress)
	if err != nil {
		mistake("--bind-address: %q: expected host:port or :port", o.bindAddress)
	}
	everywhere := host == "" || net.ParseIP(host).IsUnspecified()
	if net.ParseIP(o.advertiseAddress) != nil {
		o.advertiseAddress = net.JoinHostPort(o.advertiseAddress, port)
	}
	switch advertised, _, err := net.SplitHostPort(o.advertiseAddress); {
	case o.advertiseAddress == "" && everywhere:
		mistake("--advertise-address: required where --bind-address is %q: the IP address at which other replicas reach this one", o.bindAddress)
	case o.advertiseAddress == "":
		o.advertiseAddress = o.bindAddress
	case err != nil || advertised == "":
		mistake("--advertise-address: %q: expected host:port or an IP address", o.advertiseAddress)
	}
	files := []struct{ flag, value string }{
		{"--tls-cert-file", o.certFile}, {"--tls-private-key-file", o.keyFile}, {"--client-ca-file", o.clientCAFile},
	}
	for _, file := range files {
		switch {
		case o.plainHTTP && file.value != "":
			mistake("%s: %q: expected none with --plain-http", file.flag, file.value)
		case !o.plainHTTP && file.value == "":
			mistake("%s: required", file.flag)
		}
	}
	if o.plainHTTP && !net.ParseIP(host).IsLoopback() {
		mistake("--plain-http: expected a --bind-address on loopback, such as 127.0.0.1:8445, got %q", o.bindAddress)
	}
	return errors.Join(errs...)
}
