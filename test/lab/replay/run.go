package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// Options configures a replay.
type Options struct {
	// Root is the checkout, as in lab.Options.
	Root     string
	Files    Files
	Dataset  string
	Settings Settings
	Scales   Scales
	// Arms are names of arms. Empty: all that are not Extra.
	Arms []string
	// ControllerSettings and SchedulerSettings override the shipped settings, in trace time.
	ControllerSettings, SchedulerSettings Overrides
	// Folder is the output folder.
	Folder string
	// Command is the command line, for the report.
	Command string
	// Out receives the progress.
	Out io.Writer
	// Terminal reports that the progress may be rewritten in place.
	Terminal bool
}

// Run replays the plan with each arm, one after another, and writes the report to the folder after
// each arm. If an arm fails, the others still run. If ctx ends, they do not. In both cases the
// report contains the partial results and is marked as partial. No process is left. The error
// describes the invalid input or the failed arms.
func Run(ctx context.Context, options Options) error {
	r, err := newRunner(options)
	if err != nil {
		return err
	}
	return r.run(ctx)
}

// runner runs the arms of a replay.
type runner struct {
	options  Options
	arms     []Arm
	plan     *Plan
	report   *Report
	progress *progress
}

// newRunner reads the inputs and makes the plan. An error is about invalid options or inputs.
func newRunner(options Options) (*runner, error) {
	if err := options.Scales.validate(); err != nil {
		return nil, err
	}
	arms, err := SelectArms(options.Arms)
	if err != nil {
		return nil, err
	}
	in, err := ReadInputs(options.Files, options.Dataset)
	if err != nil {
		return nil, err
	}
	p, err := NewPlan(in, options.Settings)
	if err != nil {
		return nil, err
	}
	if err := PrepareFolder(options.Folder); err != nil {
		return nil, err
	}
	report := NewReport(p, in)
	report.Command, report.Machine = options.Command, machine()
	report.Scale, report.CalmScale = options.Scales.Busy, options.Scales.Calm
	return &runner{options: options, arms: arms, plan: p, report: report,
		progress: newProgress(options.Out, options.Terminal, len(arms), p.Window.Length)}, nil
}

// run runs the arms and writes the report, as described at Run.
func (r *runner) run(ctx context.Context) error {
	report, p := r.report, r.plan
	report.Created = time.Now().UTC().Truncate(time.Second)
	r.progress.line("replaying %s of %s from %s: %d spot nodes at most, %d services with up to %d pods; source: %s",
		p.Window.Length, p.Dataset, p.Window.From, report.SpotNodes, report.Services, report.Pods, report.Source)
	var failed []error
	for _, arm := range r.arms {
		if err := ctx.Err(); err != nil {
			failed = append(failed, fmt.Errorf("arm %s and the following were not replayed: %w", arm.Name, cause(ctx, err)))
			break
		}
		result, err := r.runArm(ctx, arm)
		if arm.checksFloors() {
			result.Broken = result.broken()
		}
		report.Arms = append(report.Arms, result)
		if err != nil {
			failed = append(failed, fmt.Errorf("arm %s: %w", arm.Name, err))
			r.progress.line("%s: %s", arm.Name, err)
		}
		report.Partial = len(failed) > 0 || len(report.Arms) < len(r.arms)
		if err := r.write(failed); err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	if len(failed) > 0 {
		return errors.Join(append(failed, r.write(failed))...)
	}
	r.progress.line("report: %s", filepath.Join(r.options.Folder, "report.md"))
	return nil
}

// write writes the report with the failures so far.
func (r *runner) write(failed []error) error {
	if len(failed) > 0 {
		r.report.Problem = errors.Join(failed...).Error()
	}
	return r.report.Write(r.options.Folder)
}

// runArm replays the plan with an arm on a new control plane. After an error the result contains
// what was measured before it.
func (r *runner) runArm(ctx context.Context, arm Arm) (result ArmResult, err error) {
	result = ArmResult{Name: arm.Name, Title: arm.Title, Partial: true}
	r.progress.begin(arm.Name)
	begin := time.Now()
	defer func() {
		result.RealSeconds = time.Since(begin).Seconds()
		result.Partial = err != nil
		if err != nil {
			result.Problem = err.Error()
		}
	}()
	plane, err := lab.Start(ctx, lab.Options{
		Root: r.options.Root, PodStartup: max(realTime(r.plan.Settings.Startup, r.options.Scales.Busy), time.Millisecond),
		Progress: func(step string) { r.progress.line("%s: %s", arm.Name, step) },
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cancelOnExit := func() {
		if err := plane.Wait(ctx); err != nil {
			cancel(err) // a process ended
		}
	}
	go cancelOnExit()
	waits, err := r.startPrograms(ctx, plane, arm)
	if err != nil {
		return result, cause(ctx, err)
	}
	go cancelOnExit() // also of the programs that started since
	clients, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return result, fmt.Errorf("making a client: %w", err)
	}
	d := newDriver(arm, r.plan, r.options.Scales, waits, clients)
	d.report = func(at time.Duration) { r.progress.figures(at, d.recorder.Current()) }
	_, err = clients.CoreV1().Namespaces().Create(ctx, arm.namespace(), metav1.CreateOptions{})
	if err != nil {
		return result, cause(ctx, fmt.Errorf("creating the namespace: %w", err))
	}
	if err := d.observer.watch(clients, ctx.Done()); err != nil {
		return result, cause(ctx, err)
	}
	r.progress.line("%s: placing the services", arm.Name)
	if err := d.place(ctx); err != nil {
		return result, cause(ctx, err)
	}
	r.progress.line("%s: replaying", arm.Name)
	err = d.replay(ctx)
	result.Result = d.recorder.Result(d.clock.At(time.Now())) // before the control plane stops
	result.SkippedSeconds = d.clock.Skipped().Seconds()
	result.CalmPeriods = newCalmPeriods(waits.periods, waits.calm.trace)
	return result, cause(ctx, err)
}

// cause returns the cause of the end of ctx, if ctx has ended: the interrupt or the ended process
// also caused err.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// startPrograms starts the schedulers and the controller of an arm. It returns the waits of the
// controller, which are zero without it.
func (r *runner) startPrograms(ctx context.Context, plane *lab.ControlPlane, arm Arm) (*waits, error) {
	r.addSettings(commonSettings(r.plan, r.options.Scales))
	editPolicy := func(config map[string]any) {
		r.addSettings(editScheduler(config, r.options.SchedulerSettings, r.options.Scales))
	}
	start := startStockScheduler
	if arm.Scheduler {
		start = func(ctx context.Context, plane *lab.ControlPlane) error {
			_, err := plane.StartScheduler(ctx, lab.SchedulerOptions{Edit: editPolicy})
			return err
		}
	}
	if err := start(ctx, plane); err != nil || !arm.Controller {
		return newWaits(scaledTime{}, scaledTime{}), err
	}
	if arm.Gating {
		if _, err := plane.ControllerKubeconfig(ctx); err != nil { // creates the controller's account
			return nil, err
		}
		if err := applyGating(ctx, plane); err != nil {
			return nil, err
		}
	}
	overrides := maps.Clone(r.options.ControllerSettings)
	if arm.Gating {
		// All spot nodes of the trace exist already, so there is no spot to provision.
		overrides = Overrides{"gating.enabled": "true", "gating.provisionForReturn": "false"}
		maps.Copy(overrides, r.options.ControllerSettings)
	}
	var calm, pause scaledTime
	_, err := plane.StartController(ctx, lab.ControllerOptions{EditScheduler: editPolicy, Edit: func(config map[string]any) {
		changed := editController(config, overrides, r.options.Scales)
		calm, pause = findTime(changed, calmPeriodPath), findTime(changed, pausePath)
		r.addSettings(changed)
	}})
	return newWaits(calm, pause), err
}

// addSettings adds settings to the report that it does not have.
func (r *runner) addSettings(settings []ScaledSetting) {
	for _, s := range settings {
		if !slices.ContainsFunc(r.report.ScaledSettings, func(other ScaledSetting) bool { return other.Name == s.Name }) {
			r.report.ScaledSettings = append(r.report.ScaledSettings, s)
		}
	}
}

// startStockScheduler starts kube-scheduler with the default configuration, except for the rate of
// its requests and the pod back-off.
func startStockScheduler(ctx context.Context, plane *lab.ControlPlane) error {
	config := filepath.Join(plane.Dir, "kube-scheduler-replay.yaml")
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {qps: 500, burst: 1000}
podMaxBackoffSeconds: %d
`, podBackoff)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the configuration of kube-scheduler: %w", err)
	}
	_, err := plane.StartScheduler(ctx, lab.SchedulerOptions{
		Name: "kube-scheduler", Binary: filepath.Join(plane.Root, ".local", "bin", "kube-scheduler"),
		ConfigFile: config, Kubeconfig: plane.StockKubeconfig,
	})
	return err
}

// gatingManifests are the manifests of the autoscaler mode.
var gatingManifests = []string{"manifests/overlays/autoscaler/policy.yaml", "manifests/overlays/autoscaler/rbac.yaml"}

// applyGating applies the manifests of the autoscaler mode. It returns when the API server applies
// the policy to new pods. Pods that are created earlier do not require on-demand, and the
// controller would replace them later.
func applyGating(ctx context.Context, plane *lab.ControlPlane) error {
	if err := plane.Apply(ctx, gatingManifests...); err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return plane.WaitFor(ctx, "the admission policy of the autoscaler mode", func(ctx context.Context) error {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault},
			Spec: corev1.PodSpec{SchedulerName: schedulerName,
				Containers: []corev1.Container{{Name: "main", Image: "registry.example/replay:1"}}},
		}
		probe, err := clients.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if len(probe.Spec.SchedulingGates) == 0 {
			return errors.New("a new pod has no scheduling gate")
		}
		return nil
	})
}

// machine describes this machine.
func machine() string {
	name := runtime.GOOS + "/" + runtime.GOARCH
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		data = nil
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			name += ", " + strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %d CPUs", name, runtime.NumCPU())
}
