package lab

import (
	"context"
	"path/filepath"
	"slices"
)

// ControllerOptions say which controller StartController starts. The zero value is this project's controller as it ships.
type ControllerOptions struct {
	// ConfigFile is a SpotControllerConfiguration. Empty: config/controller-config.yaml of the checkout.
	ConfigFile string
	// Edit, when set, changes the decoded ConfigFile before the controller reads it. Numbers are float64, as in any decoded JSON.
	Edit func(config map[string]any)
	// SchedulerConfigFile and EditScheduler are the same for the file that says the policy: what the scheduler was started with. Empty:
	// config/scheduler-config.yaml of the checkout.
	SchedulerConfigFile string
	EditScheduler       func(config map[string]any)
	// Kubeconfig is the credential it runs with. Empty: that of the ServiceAccount kube-system/spot-controller, which may do what the
	// manifests grant and nothing else.
	Kubeconfig string
	// Binary is the program. Empty: bin/spot-controller of the checkout.
	Binary string
	// Flags are added to those that the lab sets, and win over them.
	Flags []string
}

// StartController starts a controller and returns when it is ready: its informers have synced, and it leads or stands by. A controller that
// ends before that is an *ExitError with the tail of its log; one that is not ready after two minutes is killed.
func (cp *ControlPlane) StartController(ctx context.Context, options ControllerOptions) (*Process, error) {
	const name = "spot-controller"
	if options.ConfigFile == "" {
		options.ConfigFile = filepath.Join(cp.Root, "config", "controller-config.yaml")
	}
	if options.SchedulerConfigFile == "" {
		options.SchedulerConfigFile = cp.schedulerConfig()
	}
	if options.Kubeconfig == "" {
		var err error
		if options.Kubeconfig, err = cp.ControllerKubeconfig(ctx); err != nil {
			return nil, err
		}
	}
	config, err := readConfig(options.ConfigFile, options.Edit)
	if err != nil {
		return nil, err
	}
	policy, err := readConfig(options.SchedulerConfigFile, options.EditScheduler)
	if err != nil {
		return nil, err
	}
	addresses := map[string]string{}
	for _, server := range []string{"metrics", "health"} {
		if addresses[server], err = cp.FreeAddress(); err != nil {
			return nil, err
		}
		config[server] = map[string]any{"bindAddress": addresses[server]}
	}
	configFile, err := cp.writeConfig(name, config)
	if err != nil {
		return nil, err
	}
	policyFile, err := cp.writeConfig(name+"-policy", policy)
	if err != nil {
		return nil, err
	}
	client, err := metricsClient(cp.config)
	if err != nil {
		return nil, err
	}
	if options.Binary == "" {
		options.Binary = filepath.Join(cp.Root, "bin", name)
	}
	p, err := cp.start(name, options.Binary, append([]string{
		"--config=" + configFile, "--scheduler-config=" + policyFile, "--kubeconfig=" + options.Kubeconfig,
	}, options.Flags...)...)
	if err != nil {
		return nil, err
	}
	p.url, p.health, p.client = "https://"+addresses["metrics"], "http://"+addresses["health"], client
	cp.mu.Lock()
	cp.controllers = append(cp.controllers, p)
	cp.mu.Unlock()
	return cp.untilReady(ctx, p)
}

// ControllerKubeconfig returns a file with the credential of the ServiceAccount kube-system/spot-controller, to which the first call
// grants what the manifests ship.
func (cp *ControlPlane) ControllerKubeconfig(ctx context.Context) (string, error) {
	cp.granting.Lock()
	defer cp.granting.Unlock()
	if cp.controllerKubeconfig == "" {
		kubeconfig, err := cp.grant(ctx, controllerAccount)
		if err != nil {
			return "", err
		}
		cp.controllerKubeconfig = kubeconfig
	}
	return cp.controllerKubeconfig, nil
}

// Controllers returns every controller that was started, in that order: also those that have ended, or never became ready.
func (cp *ControlPlane) Controllers() []*Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.Clone(cp.controllers)
}
