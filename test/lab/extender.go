package lab

import (
	"context"
	"path/filepath"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/extender/extendertest"
)

// ExtenderOptions configures the extender that StartExtender starts. The zero value is this
// project's extender with its shipped configuration.
type ExtenderOptions struct {
	// SchedulerConfigFile contains the policy. Empty: config/scheduler-config.yaml of the
	// checkout.
	SchedulerConfigFile string
	// EditScheduler, if set, changes the decoded SchedulerConfigFile before the extender reads
	// it.
	EditScheduler func(config map[string]any)
	// Kubeconfig is the credential of the extender. Empty: the credential of the ServiceAccount
	// kube-system/spot-extender, which has only the rights that the manifests grant.
	Kubeconfig string
	// Certificates are the extender's serving certificate and the authority that it trusts; it
	// does not use ClientCert and ClientKey. Zero: the certificates of
	// ControlPlane.ExtenderCertificates.
	Certificates extendertest.Certificates
	// Binary is the path of the program. Empty: bin/spot-extender of the checkout.
	Binary string
	// Flags are appended to the flags of the lab and override them.
	Flags []string
}

// Extender is a running spot-extender.
type Extender struct {
	*Process
	// Address is the host:port at which it serves kube-scheduler.
	Address string
}

var extenderAccount = account{"spot-extender",
	[]string{"manifests/components/extender/serviceaccount.yaml", "manifests/components/extender/rbac.yaml"}}

// extenders is the state that all extenders of a control plane share. The first call that needs a
// field sets it. ControlPlane.granting guards the fields.
type extenders struct {
	kubeconfig   string
	certificates *extendertest.Certificates
}

// StartExtender starts an extender and returns when it is ready: its informers have synced, and
// it leads or waits for the lease. If the extender ends before that, the error is an *ExitError
// with the end of its log. StartExtender kills an extender that is not ready after two minutes.
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
	if certificates == (extendertest.Certificates{}) {
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
	if options.Binary == "" {
		options.Binary = filepath.Join(cp.Root, "bin", name)
	}
	p, err := cp.start(name, options.Binary, append([]string{
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

// ExtendedScheduler returns the options of a stock kube-scheduler that calls the extender at an
// address, with config/extender.yaml of the checkout. It schedules the pods of the profiles
// spot-aware-scheduler and default-scheduler.
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
			// The same as in StartStockScheduler.
			config["clientConnection"] = map[string]any{"qps": 500, "burst": 1000}
			config["leaderElection"] = map[string]any{"leaderElect": false}
		},
	}, nil
}

// extenderKubeconfig returns a file with the credential of the ServiceAccount
// kube-system/spot-extender. The first call applies the shipped manifests of that account.
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

// ExtenderCertificates returns the certificates of this control plane's extenders. The first call
// makes them.
func (cp *ControlPlane) ExtenderCertificates() (extendertest.Certificates, error) {
	cp.granting.Lock()
	defer cp.granting.Unlock()
	if cp.extenders.certificates == nil {
		certificates, err := extendertest.MakeCertificates(filepath.Join(cp.Dir, "extender"))
		if err != nil {
			return extendertest.Certificates{}, err
		}
		cp.extenders.certificates = &certificates
	}
	return *cp.extenders.certificates, nil
}
