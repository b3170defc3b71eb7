package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// SchedulerOptions configures the scheduler that StartScheduler starts. The zero value is this
// project's scheduler with its shipped configuration.
type SchedulerOptions struct {
	// Name is used in logs and messages. Empty: the name of the binary.
	Name string
	// Binary is the path of the program. Empty: bin/spot-aware-scheduler of the checkout.
	Binary string
	// ConfigFile is a KubeSchedulerConfiguration without paths, such as those in config. Empty:
	// config/scheduler-config.yaml of the checkout.
	ConfigFile string
	// Edit, if set, changes the decoded ConfigFile before the scheduler reads it. Numbers are
	// float64, as in any decoded JSON.
	Edit func(config map[string]any)
	// Kubeconfig is the credential of the scheduler. Empty: the control plane's
	// SchedulerKubeconfig.
	Kubeconfig string
	// Flags are appended to the flags of the lab and override them.
	Flags []string
}

// StartScheduler starts a scheduler and returns when it is ready: its informers have synced and,
// with leader election, it leads or waits for the lease. If the scheduler ends before that, the
// error is an *ExitError with the end of its log. StartScheduler kills a scheduler that is not
// ready after two minutes, or at the deadline of ctx if that is later.
func (cp *ControlPlane) StartScheduler(ctx context.Context, options SchedulerOptions) (*Process, error) {
	if options.Binary == "" {
		options.Binary = filepath.Join(cp.Root, "bin", "spot-aware-scheduler")
	}
	if options.ConfigFile == "" {
		options.ConfigFile = cp.schedulerConfig()
	}
	if options.Kubeconfig == "" {
		options.Kubeconfig = cp.SchedulerKubeconfig
	}
	config, err := readConfig(options.ConfigFile, options.Edit)
	if err != nil {
		return nil, err
	}
	return cp.startScheduler(ctx, options, config)
}

// schedulerConfig returns the path of the shipped configuration of the scheduler.
func (cp *ControlPlane) schedulerConfig() string {
	return filepath.Join(cp.Root, "config", "scheduler-config.yaml")
}

// StartStockScheduler starts the kube-scheduler of Kubernetes for pods with the scheduler name
// default-scheduler. It has its own identity and the default configuration, except for the rate
// of its requests. StartStockScheduler returns when it is ready, like StartScheduler.
func (cp *ControlPlane) StartStockScheduler(ctx context.Context) (*Process, error) {
	return cp.startScheduler(ctx, SchedulerOptions{
		Name: "kube-scheduler", Binary: cp.tool("kube-scheduler"), Kubeconfig: cp.StockKubeconfig,
	}, map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		// At the defaults of 50 and 100, the scheduler binds at most 50 pods per second.
		"clientConnection": map[string]any{"qps": 500, "burst": 1000},
	})
}

// Schedulers returns every scheduler that was started, in order of their starts. It includes
// schedulers that have ended or never became ready.
func (cp *ControlPlane) Schedulers() []*Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.Clone(cp.schedulers)
}

func (cp *ControlPlane) startScheduler(ctx context.Context, options SchedulerOptions, config map[string]any) (*Process, error) {
	if options.Name == "" {
		options.Name = filepath.Base(options.Binary)
	}
	connection, _ := config["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
		config["clientConnection"] = connection
	}
	connection["kubeconfig"] = options.Kubeconfig
	file, err := cp.writeConfig(options.Name, config)
	if err != nil {
		return nil, err
	}
	port, err := cp.freePort()
	if err != nil {
		return nil, err
	}
	client, err := metricsClient(cp.config)
	if err != nil {
		return nil, err
	}
	p, err := cp.start(options.Name, options.Binary, append([]string{
		"--config=" + file,
		"--authentication-kubeconfig=" + options.Kubeconfig,
		"--authorization-kubeconfig=" + options.Kubeconfig,
		"--bind-address=" + cp.address,
		"--secure-port=" + port,
	}, options.Flags...)...)
	if err != nil {
		return nil, err
	}
	p.url, p.client = "https://"+cp.host(port), client
	cp.mu.Lock()
	cp.schedulers = append(cp.schedulers, p)
	cp.mu.Unlock()
	return cp.untilReady(ctx, p)
}

// writeConfig writes a program's configuration to a new file in the lab's directory.
func (cp *ControlPlane) writeConfig(program string, config map[string]any) (string, error) {
	data, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("writing a configuration of %s: %w", program, err)
	}
	file, err := os.CreateTemp(cp.Dir, program+"-*.yaml")
	if err != nil {
		return "", fmt.Errorf("writing a configuration of %s: %w", program, err)
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("writing a configuration of %s: %w", program, err)
	}
	return file.Name(), nil
}

// untilReady returns the process when it reports that it is ready. If the process ends before
// that, the error is an *ExitError. untilReady kills a process that is not ready in time.
func (cp *ControlPlane) untilReady(ctx context.Context, p *Process) (*Process, error) {
	err := poll(ctx, p.Name+" to be ready", []*Process{p}, func(ctx context.Context) error {
		_, err := p.Get(ctx, "/readyz")
		return err
	})
	var exit *ExitError
	switch {
	case err == nil:
		return p, nil
	case errors.As(err, &exit):
		return nil, err
	default:
		return nil, errors.Join(err, p.Kill(), fmt.Errorf("its log ends with:\n%s", tail(p.Log)))
	}
}

// readConfig returns a program's configuration, changed by edit if it is set.
func readConfig(path string, edit func(config map[string]any)) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a configuration: %w", err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if config == nil {
		return nil, fmt.Errorf("reading %s: it is empty", path)
	}
	if edit != nil {
		edit(config)
	}
	return config, nil
}

// metricsClient returns a client with the administrator's credential for servers with self-signed
// certificates.
func metricsClient(config *rest.Config) (*http.Client, error) {
	client, err := rest.HTTPClientFor(&rest.Config{
		BearerToken: config.BearerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for metrics: %w", err)
	}
	return client, nil
}
