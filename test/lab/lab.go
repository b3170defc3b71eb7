// Package lab runs a real control plane on this machine, without containers: etcd,
// kube-apiserver, kube-controller-manager and schedulers from their own binaries. KWOK replaces
// the kubelets. Tests, the demo and benches use it.
//
// Everything except Karpenter listens on loopback, on free ports, so several labs run side by
// side. No process outlives the process that called Start, neither after Stop nor if that process
// is killed.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ownKubernetes is the minor version of Kubernetes in hack/tools. This project's scheduler is built
// from the same version.
const ownKubernetes = "1.36"

// KubernetesVersion returns the minor version of the control planes that Start starts, such as
// "1.34": the environment variable SPOT_KUBERNETES, or else the version in hack/tools. It must have
// been built by hack/tools.sh.
func KubernetesVersion() string { return cmp.Or(os.Getenv("SPOT_KUBERNETES"), ownKubernetes) }

// Options configures the control plane that Start starts. The zero value is ready to use.
type Options struct {
	// Root is the checkout with bin, .local/bin, config and manifests. Empty: the result of
	// FindRoot.
	Root string
	// Dir is the directory for logs, kubeconfigs and data: a new or empty directory, or the
	// directory of an earlier lab. Stop does not remove it. Empty: a temporary directory that
	// Stop removes.
	Dir string
	// APIServerFlags are flags of the API server that the lab does not set itself.
	APIServerFlags []string
	// ControllerManagerFlags are flags of the controller manager that the lab does not set
	// itself.
	ControllerManagerFlags []string
	// PodStartup is the time from a pod's binding to its readiness. Zero: one second.
	PodStartup time.Duration
	// RealNodes makes a control plane that kubelets can join. The API server listens on port 443
	// of ServiceAddress, which must be an address of this machine. Pods get the tokens of their
	// ServiceAccounts. KWOK manages only the nodes with FakeNodeAnnotation. The lab does not
	// create the scheduler's ServiceAccount; the caller applies its manifests.
	RealNodes bool
	// NoControllers omits the controller manager and KWOK, for benches in which only the
	// scheduler works. Nodes are Ready from the start. Pods never become Ready. No controller
	// creates pods or collects garbage.
	NoControllers bool
	// Progress, if set, is called with the current step, in a few words.
	Progress func(step string)
}

// ControlPlane is a running control plane. Its methods are safe for concurrent use.
type ControlPlane struct {
	// Root is the checkout in use.
	Root string
	// Dir contains logs and kubeconfigs.
	Dir string
	// Kubeconfig is a file with the administrator's credential.
	Kubeconfig string
	// SchedulerKubeconfig is a file with the credential of the ServiceAccount
	// kube-system/spot-aware-scheduler, which has only the rights that
	// manifests/components/scheduler/rbac.yaml grants. Empty with Options.RealNodes.
	SchedulerKubeconfig string
	// StockKubeconfig is a file with the credential of the user system:kube-scheduler.
	StockKubeconfig string
	// KubeletClientCA is a file with the authority of the certificate that the API server
	// presents to kubelets. Empty without Options.RealNodes.
	KubeletClientCA string

	config                   *rest.Config // the administrator's
	etcd                     string       // the URL for etcd's clients
	client                   kubernetes.Interface
	address                  string // on loopback, where everything listens
	spawner                  spawner
	realNodes, noControllers bool           // see Options
	cleanup                  []func() error // in the order of acquisition; Stop runs it in reverse

	mu          sync.Mutex
	processes   []*Process
	schedulers  []*Process // the schedulers among processes
	controllers []*Process // the controllers among processes
	started     int        // processes started so far; numbers the log files
	stopped     bool
	stopOnce    sync.Once
	stopErr     error

	granting             sync.Mutex // guards the fields below while they are computed
	controllerKubeconfig string     // empty until first needed
	extenders            extenders
}

// Start starts etcd, the API server and, without NoControllers, the controller manager and KWOK.
// It grants the scheduler's ServiceAccount the rights that the manifests ship. It returns when
// the API server is ready and the controllers work. ctx limits only the start. After an error, no
// process and no temporary directory is left.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	if options.PodStartup < 0 {
		return nil, fmt.Errorf("PodStartup: %s: must not be negative", options.PodStartup)
	}
	options.PodStartup = cmp.Or(options.PodStartup, time.Second)
	progress := options.Progress
	if progress == nil {
		progress = func(string) {}
	}
	cp := &ControlPlane{
		Root: options.Root, address: loopback(), spawner: newSpawner(),
		realNodes: options.RealNodes, noControllers: options.NoControllers,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cp.Stop())
		}
	}()
	if cp.Root == "" {
		if cp.Root, err = FindRoot(); err != nil {
			return nil, err
		}
	}
	if cp.Root, err = filepath.Abs(cp.Root); err != nil {
		return nil, fmt.Errorf("the checkout: %w", err)
	}
	if err := cp.checkTools(); err != nil {
		return nil, err
	}
	if err := cp.prepareDir(options.Dir); err != nil {
		return nil, err
	}

	progress("starting etcd and kube-apiserver")
	if err := cp.startAPIServer(ctx, options.APIServerFlags); err != nil {
		return nil, err
	}
	if !cp.noControllers {
		progress("starting kube-controller-manager and the fake kubelets")
		if err := cp.startControllerManager(options.ControllerManagerFlags); err != nil {
			return nil, err
		}
		if err := cp.startKwok(options.PodStartup); err != nil {
			return nil, err
		}
	}
	if !cp.realNodes {
		if cp.SchedulerKubeconfig, err = cp.grant(ctx, schedulerAccount); err != nil {
			return nil, err
		}
	}
	if !cp.noControllers {
		if err := cp.waitForControllers(ctx); err != nil {
			return nil, err
		}
	}
	return cp, nil
}

// Config returns a copy of an administrator's client configuration, without a client-side rate
// limit.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.config) }

// Etcd returns the URL for etcd's clients. Data that a client writes there bypasses the API
// server's checks.
func (cp *ControlPlane) Etcd() string { return cp.etcd }

// Wait blocks until ctx is done or a process ends that was not stopped. It returns nil in the
// first case and the process's *ExitError in the second. It watches the processes that run when
// it is called.
func (cp *ControlPlane) Wait(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan *Process)
	for _, p := range cp.running() {
		go func() {
			select {
			case <-p.Done():
				select {
				case ended <- p:
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case p := <-ended:
		return p.Err()
	}
}

// Stop ends every process of the control plane and removes its directory if that is temporary.
// Later calls return the result of the first call.
func (cp *ControlPlane) Stop() error {
	cp.stopOnce.Do(func() {
		cp.mu.Lock()
		cp.stopped = true
		cp.mu.Unlock()
		var errs []error
		// Kill the processes at once: no data that they write on exit is needed.
		for _, p := range cp.running() {
			errs = append(errs, p.Kill())
		}
		for i := len(cp.cleanup) - 1; i >= 0; i-- {
			errs = append(errs, cp.cleanup[i]())
		}
		close(cp.spawner)
		cp.stopErr = errors.Join(errs...)
	})
	return cp.stopErr
}

// running returns the processes that have not ended yet.
func (cp *ControlPlane) running() []*Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	var running []*Process
	for _, p := range cp.processes {
		if p.Err() == nil {
			running = append(running, p)
		}
	}
	return running
}

// prepareDir makes the lab's directory and locks it for this control plane.
func (cp *ControlPlane) prepareDir(dir string) error {
	if dir == "" {
		temp, remove, err := tempDir()
		if err != nil {
			return err
		}
		cp.Dir = temp
		cp.cleanup = append(cp.cleanup, remove)
	} else {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("the lab's directory: %w", err)
		}
		cp.Dir = abs
		if err := cp.lockDir(); err != nil {
			return err
		}
	}
	for _, name := range []string{"etcd", "logs"} {
		// Remove the data of an earlier control plane: it would mix with the data of this one.
		if err := os.RemoveAll(filepath.Join(cp.Dir, name)); err != nil {
			return fmt.Errorf("clearing the lab's directory: %w", err)
		}
		if err := os.Mkdir(filepath.Join(cp.Dir, name), 0o700); err != nil {
			return fmt.Errorf("making the lab's directory: %w", err)
		}
	}
	return nil
}

// lockDir makes cp.Dir and locks it until the control plane or this process ends. It rejects a
// directory with foreign files, because a lab overwrites files.
func (cp *ControlPlane) lockDir() error {
	const name = "spot-lab.lock"
	if err := os.MkdirAll(cp.Dir, 0o755); err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	entries, err := os.ReadDir(cp.Dir)
	if err != nil {
		return fmt.Errorf("the lab's directory: %w", err)
	}
	isLock := func(entry os.DirEntry) bool { return entry.Name() == name }
	if len(entries) > 0 && !slices.ContainsFunc(entries, isLock) {
		return fmt.Errorf("%s: expected an empty directory or that of an earlier lab", cp.Dir)
	}
	lock, err := os.OpenFile(filepath.Join(cp.Dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("locking the lab's directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return fmt.Errorf("%s is in use by another lab: %w", cp.Dir, err)
	}
	cp.cleanup = append(cp.cleanup, lock.Close)
	return nil
}

// FindRoot returns the checkout that this program belongs to: the parent of the executable's
// directory (bin), or the nearest of the working directory and its parents with the shipped
// manifests.
func FindRoot() (string, error) {
	var candidates []string
	if executable, err := os.Executable(); err == nil {
		candidates = append(candidates, filepath.Dir(filepath.Dir(executable)))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			candidates = append(candidates, dir)
		}
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(schedulerAccount.manifests[0]))); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no checkout around the executable or the working directory: expected a folder with %s",
		schedulerAccount.manifests[0])
}

// versionOf returns the version of Kubernetes with which hack/tools.sh builds a program. Only the
// programs of Kubernetes' control plane depend on the version of the control plane.
func versionOf(program string) string {
	if strings.HasPrefix(program, "kube-") {
		return KubernetesVersion()
	}
	return ownKubernetes
}

// tool returns the path of a program that hack/tools.sh builds.
func (cp *ControlPlane) tool(name string) string {
	folder := versionOf(name)
	if folder == ownKubernetes {
		folder = ""
	}
	return filepath.Join(cp.Root, ".local", "bin", folder, name)
}

// checkTools returns an error with the missing programs, before any process is started.
func (cp *ControlPlane) checkTools() error {
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		if _, err := os.Stat(cp.tool(name)); err != nil {
			return fmt.Errorf("%w: hack/tools.sh %s builds it", err, versionOf(name))
		}
	}
	return nil
}
