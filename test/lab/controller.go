package lab

import (
	"context"
	"path/filepath"
	"slices"
)

// ControllerOptions configures the controller that StartController starts. The zero value is this
// project's controller with its shipped configuration.
type ControllerOptions struct {
	// ConfigFile is a SpotControllerConfiguration. Empty: config/controller-config.yaml of the
	// checkout.
	ConfigFile string
	// Edit, if set, changes the decoded ConfigFile before the controller reads it. Numbers are
	// float64, as in any decoded JSON.
	Edit func(config map[string]any)
	// SchedulerConfigFile and EditScheduler do the same for the file with the policy, which is
	// the scheduler's configuration. Empty: config/scheduler-config.yaml of the checkout.
	SchedulerConfigFile string
	EditScheduler       func(config map[string]any)
	// Kubeconfig is the credential of the controller. Empty: the credential of the ServiceAccount
	// kube-system/spot-controller, which has only the rights that the manifests grant.
	Kubeconfig string
	// Binary is the path of the program. Empty: bin/spot-controller of the checkout.
	Binary string
	// Flags are appended to the flags of the lab and override them.
	Flags []string
}

// StartController starts a controller and returns when it is ready: its informers have synced,
// and it leads or waits for the lease. If the controller ends before that, the error is an
// *ExitError with the end of its log. StartController kills a controller that is not ready after
// two minutes.
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

// gatingConfig is a configuration of the controller that only enables gating. It is shipped for
// clusters with another scheduler.
const gatingConfig = "manifests/overlays/any-scheduler/controller-config.yaml"

// StartAutoscalerMode starts the controller with the autoscaler mode. Like
// manifests/overlays/autoscaler, it first installs the admission policy that gates new pods.
func (cp *ControlPlane) StartAutoscalerMode(ctx context.Context) error {
	if err := cp.Apply(ctx, "manifests/overlays/autoscaler/policy.yaml", "manifests/overlays/autoscaler/rbac.yaml"); err != nil {
		return err
	}
	_, err := cp.StartController(ctx, cp.gatingController())
	return err
}

// StartAnyScheduler starts what manifests/overlays/any-scheduler installs: the autoscaler mode, and
// the process that removes gates while no controller does.
func (cp *ControlPlane) StartAnyScheduler(ctx context.Context) error {
	if err := cp.StartAutoscalerMode(ctx); err != nil {
		return err
	}
	_, err := cp.StartController(ctx, cp.gatingController("--failsafe"))
	return err
}

// gatingController returns the options of a controller with gating and these flags.
func (cp *ControlPlane) gatingController(flags ...string) ControllerOptions {
	return ControllerOptions{ConfigFile: filepath.Join(cp.Root, filepath.FromSlash(gatingConfig)), Flags: flags}
}

// ControllerKubeconfig returns a file with the credential of the ServiceAccount
// kube-system/spot-controller. The first call applies the shipped manifests of that account.
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

// Controllers returns every controller that was started, in order of their starts. It includes
// controllers that have ended or never became ready.
func (cp *ControlPlane) Controllers() []*Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return slices.Clone(cp.controllers)
}
