package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is the time that a process has to end after SIGTERM. After that, it is killed.
const stopTimeout = 15 * time.Second

// Process is a program of the control plane that this lab started and watches.
type Process struct {
	// Name identifies the process in messages.
	Name string
	// Log is the file with its standard output and error, in the control plane's directory.
	Log string
	// PID is its process ID, valid until Done.
	PID int

	cmd  *exec.Cmd
	done chan struct{}

	url    string       // of its HTTP port; empty if it has none
	health string       // of its health port; empty if that is the HTTP port
	client *http.Client // with the admin's credential
}

// ExitError reports that a process ended although it was not stopped.
type ExitError struct {
	Name string
	// Code is its exit status, or -1 if a signal ended it.
	Code int
	// Tail is the end of its log.
	Tail string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s ended with status %d; its log ends with:\n%s", e.Name, e.Code, e.Tail)
}

// start runs a program. Its output is written to a new file in the control plane's log directory.
func (cp *ControlPlane) start(name, binary string, args ...string) (*Process, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return nil, fmt.Errorf("starting %s: the control plane is stopped", name)
	}
	cp.started++
	path := filepath.Join(cp.Dir, "logs", fmt.Sprintf("%02d-%s.log", cp.started, name))
	log, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer log.Close() // the child has its own copy

	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, childAttr()
	if err := cp.spawner.do(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{Name: name, Log: path, PID: cmd.Process.Pid, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // Err reads the result from cmd.ProcessState
		close(p.done)
	}()
	cp.processes = append(cp.processes, p)
	return p, nil
}

// Done is closed when the process has ended for any reason.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns nil while the process runs, and an *ExitError afterwards, even if it was stopped.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return &ExitError{Name: p.Name, Code: p.cmd.ProcessState.ExitCode(), Tail: tail(p.Log)}
	default:
		return nil
	}
}

// Stop sends SIGTERM to the process and waits; after 15 s it kills the process. It returns nil if
// the process has already ended.
func (p *Process) Stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.Name, stopTimeout), p.Kill())
	}
}

// Kill ends the process with SIGKILL and waits until it has ended. It returns nil if the process
// has already ended.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Pause suspends the process (SIGSTOP): its connections stay open, but it does not answer. Resume
// continues it.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume continues a suspended process. It returns nil if the process is not suspended.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Process returns the process with this name, such as etcd or kube-apiserver, that was started
// last. It returns nil if none was started.
func (cp *ControlPlane) Process(name string) *Process {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, p := range slices.Backward(cp.processes) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// StartAgain restarts a process that has ended, with the same arguments. It does not wait until
// the process is ready.
func (cp *ControlPlane) StartAgain(p *Process) (*Process, error) {
	if p.Err() == nil {
		return nil, fmt.Errorf("starting %s again: it still runs", p.Name)
	}
	again, err := cp.start(p.Name, p.cmd.Path, p.cmd.Args[1:]...)
	if err != nil {
		return nil, err
	}
	again.url, again.health, again.client = p.url, p.health, p.client
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, started := range []*[]*Process{&cp.schedulers, &cp.controllers} {
		if slices.Contains(*started, p) {
			*started = append(*started, again)
		}
	}
	return again, nil
}

func (p *Process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s: %w", sig, p.Name, err)
	}
	return nil
}

// URL returns the address of the process's metrics port. It is empty if the process has none.
func (p *Process) URL() string { return p.url }

// Metrics returns the response of the process at /metrics, in the Prometheus text format. It uses
// the administrator's credential. Only schedulers and controllers serve metrics.
func (p *Process) Metrics(ctx context.Context) (string, error) { return p.Get(ctx, "/metrics") }

// Get returns the response of the process at a path with a query. It uses the administrator's
// credential. A status other than 200 is an error.
func (p *Process) Get(ctx context.Context, path string) (string, error) {
	if p.url == "" {
		return "", fmt.Errorf("%s: %s serves no HTTP", path, p.Name)
	}
	url := p.url
	if p.health != "" && (path == "/readyz" || path == "/healthz") {
		url = p.health
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return "", err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("%s: reading %s: %w", p.Name, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s: %s", p.Name, path, response.Status, bytes.TrimSpace(body))
	}
	return string(body), nil
}

// tail returns the last lines of a log, for messages.
func tail(path string) string {
	const most = 15
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
