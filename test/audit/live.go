package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// tickEvery is the period at which the state machine processes the passing of time.
const tickEvery = 250 * time.Millisecond

// Options configures an audit.
type Options struct {
	// Policy is the policy of the scheduler. nil means the defaults.
	Policy *Policy
	// SchedulerName is the profile whose pods are judged, and the name of the scheduler's lease
	// in kube-system if it has one. "" means the constant SchedulerName.
	SchedulerName string
	// Gated means that the scheduler does not know the policy: the controller decides when it
	// removes the gate of a pod. A binding is judged by the values since that decision. A pod
	// without a decision is not judged.
	Gated bool
	// Author returns who wrote this version of a node. The auditor calls it three seconds after it
	// observed the version. nil: the auditor does not check changes of nodes.
	Author func(node string, resourceVersion uint64) Author
	// Forged reports whether a pod's release annotation and label were not set by the controller,
	// so that the auditor ignores them. nil: no pod's are.
	Forged func(*corev1.Pod) bool
	// Patience is the time for which a pod may stay pending although it could run. 0 means 12 s.
	// Tests that interrupt another component for longer, such as an extender, need more.
	Patience time.Duration
}

// Auditor watches one API server. Its methods may be called from any goroutine.
type Auditor struct {
	client  kubernetes.Interface
	running sync.WaitGroup // watches and ticks
	stop    func()         // stops them and waits until they have ended

	stopOnce sync.Once
	stopErr  error

	mu       sync.Mutex // guards the fields below
	core     *core
	report   func(fmt.Stringer) // called once for each finding; may be nil
	reported int                // number of findings passed to report
}

// Start starts an audit. It returns when all existing objects have been observed. These objects
// count, but their bindings are not judged. Stop ends the audit.
func Start(ctx context.Context, config *rest.Config, options Options) (*Auditor, error) {
	return start(ctx, config, options, nil)
}

// Watch audits until the test ends and fails the test at every finding. Call it before the
// scheduler binds any pod.
func Watch(t testing.TB, config *rest.Config, options Options) *Auditor {
	t.Helper()
	// The test's context would end before the last bindings are judged.
	a, err := start(context.Background(), config, options, func(finding fmt.Stringer) { t.Errorf("%s: %s", t.Name(), finding) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func start(ctx context.Context, config *rest.Config, options Options, report func(fmt.Stringer)) (*Auditor, error) {
	policy, profile := options.Policy, options.SchedulerName
	if policy == nil {
		policy = DefaultPolicy()
	}
	if profile == "" {
		profile = SchedulerName
	}
	// An auditor watches all pods. As JSON, that would be a large part of the load of a busy API
	// server.
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("auditor's client: %w", err)
	}
	a := &Auditor{client: client, core: newCore(profile, policy, time.Now()), report: report}
	a.core.moves.forged = options.Forged
	a.core.author, a.core.gated = options.Author, options.Gated
	if options.Patience > 0 {
		a.core.wakeups.patience = options.Patience
	}
	ctx, cancel := context.WithCancel(ctx)
	everywhere := informers.NewSharedInformerFactory(client, 0)
	system := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceSystem))
	// The informer's store is updated before its handlers run, including this auditor's handler.
	pods := everywhere.Core().V1().Pods().Lister()
	a.core.newest = func(namespace, name string) (*corev1.Pod, bool) {
		pod, err := pods.Pods(namespace).Get(name)
		return pod, err == nil
	}
	a.core.fetch = func(namespace, name string) *corev1.Pod {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return pod
	}
	a.stop = func() {
		cancel()
		a.running.Wait()
	}
	if err := a.watch(ctx, everywhere, system); err != nil {
		a.stop()
		return nil, err
	}
	a.running.Go(func() { a.tick(ctx) })
	return a, nil
}

// watch starts the informers, and the informer of pods last: a pod is judged best when its owner
// and node are known.
func (a *Auditor) watch(ctx context.Context, everywhere, system informers.SharedInformerFactory) error {
	err := a.follow(ctx,
		system.Coordination().V1().Leases().Informer(),
		everywhere.Core().V1().Nodes().Informer(),
		everywhere.Core().V1().ReplicationControllers().Informer(),
		everywhere.Apps().V1().Deployments().Informer(),
		everywhere.Apps().V1().ReplicaSets().Informer(),
		everywhere.Apps().V1().StatefulSets().Informer(),
		everywhere.Batch().V1().Jobs().Informer())
	if err != nil {
		return err
	}
	return a.follow(ctx, everywhere.Core().V1().Pods().Informer())
}

// follow starts informers and returns when their initial lists have been observed.
func (a *Auditor) follow(ctx context.Context, followed ...cache.SharedIndexInformer) error {
	var synced []cache.InformerSynced
	for _, informer := range followed {
		registration, err := informer.AddEventHandler(handler{a})
		if err != nil {
			return fmt.Errorf("auditor's watch: %w", err)
		}
		synced = append(synced, registration.HasSynced)
		a.running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("auditor's first list: %w", context.Cause(ctx))
	}
	return nil
}

func (a *Auditor) tick(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.do(func(c *core) { c.advance(time.Now()) })
		}
	}
}

// do runs f on the state machine and reports the new findings.
func (a *Auditor) do(f func(*core)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a.core)
	for ; a.reported < len(a.core.findings); a.reported++ {
		if a.report != nil {
			a.report(a.core.findings[a.reported])
		}
	}
}

// Stop checks all bindings so far and ends the audit. If a binding looks like a breach, Stop
// waits a few seconds for slower watches. It does not report a pod whose patience has not run
// out. An error means that the last bindings may not have been judged. Later calls return the
// result of the first call.
func (a *Auditor) Stop() error {
	a.stopOnce.Do(func() {
		a.stopErr = a.settle()
		a.stop()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.report = nil
	})
	return a.stopErr
}

// settle returns when all bindings that were made before the call have been judged or cannot be a
// breach.
func (a *Auditor) settle() error {
	// After an outage, client-go waits for up to a minute before it watches again.
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	pods, err := a.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("auditor's last list of pods: %w", err)
	}
	err = a.until(ctx, func(c *core) bool {
		return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !c.observed(&p) })
	})
	if err != nil {
		return fmt.Errorf("auditor's watch of pods lags behind the API: %w", err)
	}
	end := time.Now().Add(settle)
	return a.until(ctx, func(c *core) bool { return !c.checksPending() || time.Now().After(end) })
}

// until advances the time until a condition is true or ctx is done.
func (a *Auditor) until(ctx context.Context, holds func(*core) bool) error {
	return wait.PollUntilContextCancel(ctx, tickEvery/5, true, func(context.Context) (done bool, _ error) {
		a.do(func(c *core) {
			c.advance(time.Now())
			done = holds(c)
		})
		return done, nil
	})
}

// Require checks all bindings so far and ends the test if there are any findings.
func (a *Auditor) Require(t testing.TB) {
	t.Helper()
	if err := a.settle(); err != nil {
		t.Fatal(err)
	}
	if findings := asTexts(found[fmt.Stringer](a)); len(findings) > 0 {
		t.Fatalf("the auditor found:\n%s", strings.Join(findings, "\n"))
	}
}

func asTexts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, one := range list {
		out = append(out, one.String())
	}
	return out
}

// Breaches returns the breaches so far, in the order of their checks.
func (a *Auditor) Breaches() []Breach { return found[Breach](a) }

// LostWakeups returns the lost wake-ups so far, each pod once.
func (a *Auditor) LostWakeups() []LostWakeup { return found[LostWakeup](a) }

// Released returns the existing pods that were released from their ReplicaSets, as
// namespace/name, in alphabetical order.
func (a *Auditor) Released() (out []string) {
	a.do(func(c *core) { out = c.releasedPods() })
	return out
}

func found[T fmt.Stringer](a *Auditor) (out []T) {
	a.do(func(c *core) { out = findingsOf[T](c) })
	return out
}

// Deficits returns the workloads that are below their floor now, ordered by name.
func (a *Auditor) Deficits() (out []Deficit) {
	a.do(func(c *core) { out = c.deficits(time.Now()) })
	return out
}

// SetPolicy sets the policy of the next scheduler. Call it after the old scheduler has ended and
// before the new scheduler starts.
func (a *Auditor) SetPolicy(policy *Policy) {
	a.do(func(c *core) { c.setPolicy(policy, time.Now()) })
}

// handler receives the events of the watches.
type handler struct{ *Auditor }

func (h handler) OnAdd(object any, initial bool) {
	how := changed
	if initial {
		how = listed
	}
	h.observe(how, object)
}

func (h handler) OnUpdate(_, object any) { h.observe(changed, object) }

func (h handler) OnDelete(object any) {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		// Only the last state is known. Its resourceVersion is not the revision of the deletion.
		last, ok := missed.Obj.(runtime.Object)
		if !ok {
			return
		}
		object = last.DeepCopyObject()
		object.(metav1.Object).SetResourceVersion("")
	}
	h.observe(deleted, object)
}

func (h handler) observe(how change, object any) {
	h.do(func(c *core) { c.observe(time.Now(), how, object.(metav1.Object)) })
}
