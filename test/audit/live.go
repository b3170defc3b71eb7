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

// tickEvery is how often time passes for the state machine.
const tickEvery = 250 * time.Millisecond

// Options say what is audited.
type Options struct {
	// Policy is what the scheduler runs with; nil means the defaults.
	Policy *Policy
	// SchedulerName is the profile whose pods are judged, and the name of the scheduler's lease in kube-system, if there is
	// one; "" means SchedulerName.
	SchedulerName string
	// Wrote says whether spot-controller wrote this version of a node. It is asked a second after the version was seen. nil: nobody
	// knows, and who changes nodes is not audited.
	Wrote func(node string, resourceVersion uint64) bool
	// Forged reports whether the marks of a release on a pod are not the controller's, so that they say nothing; nil: none are.
	Forged func(*corev1.Pod) bool
	// Patience is how long a pod may stay pending although it could run; 0 means 12 s. Whatever else than the scheduler may be away for
	// longer, such as an extender, needs more.
	Patience time.Duration
}

// Auditor watches one API server. Its methods may be called from any goroutine.
type Auditor struct {
	client  kubernetes.Interface
	running sync.WaitGroup // watches and ticks
	stop    func()         // ends them and waits for them

	stopOnce sync.Once
	stopErr  error

	mu     sync.Mutex // guards what follows
	core   *core
	report func(fmt.Stringer) // told of each finding once; nil tells nobody
	told   int
}

// Start begins to watch. It returns when everything that exists has been seen: that counts from then on, but was not
// bound under this audit and is not judged. The audit ends with Stop.
func Start(ctx context.Context, config *rest.Config, options Options) (*Auditor, error) {
	return start(ctx, config, options, nil)
}

// Watch audits until the test ends and fails it at every finding. It starts when Watch is called: call
// it before the scheduler places anything.
func Watch(t testing.TB, config *rest.Config, options Options) *Auditor {
	t.Helper()
	// Not the test's context: that ends before the last bindings are judged.
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
	// An auditor watches all pods: as JSON that would be much of what a busy API server does.
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("auditor's client: %w", err)
	}
	a := &Auditor{client: client, core: newCore(profile, policy, time.Now()), report: report}
	a.core.moves.forged = options.Forged
	a.core.wrote = options.Wrote
	if options.Patience > 0 {
		a.core.wakeups.patience = options.Patience
	}
	ctx, cancel := context.WithCancel(ctx)
	everywhere := informers.NewSharedInformerFactory(client, 0)
	system := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceSystem))
	// The informer's store is filled before its handlers, such as this auditor's, have had their turn.
	pods := everywhere.Core().V1().Pods().Lister()
	a.core.newest = func(namespace, name string) (*corev1.Pod, bool) {
		pod, err := pods.Pods(namespace).Get(name)
		return pod, err == nil
	}
	a.core.ask = func(namespace, name string) *corev1.Pod {
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

// watch starts the informers, pods last: a pod is best read when its owner and node are known.
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

// follow starts informers and returns when their first lists have been observed.
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

// do runs f on the state machine and reports what it found.
func (a *Auditor) do(f func(*core)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a.core)
	for ; a.told < len(a.core.findings); a.told++ {
		if a.report != nil {
			a.report(a.core.findings[a.told])
		}
	}
}

// Stop judges what has been bound so far and ends the audit. It waits a few seconds where something looks like a breach,
// until slower watches have had their say. A pod whose patience is not over is not reported. An error says why the last
// bindings may not have been judged. Further calls return what the first one did.
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

// settle returns when no binding made before it was called may still turn out to be a breach.
func (a *Auditor) settle() error {
	// After an outage client-go waits for up to a minute before it watches again.
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	pods, err := a.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("auditor's last look at the pods: %w", err)
	}
	err = a.until(ctx, func(c *core) bool {
		return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !c.knows(&p) })
	})
	if err != nil {
		return fmt.Errorf("auditor's watch of pods lags behind the API: %w", err)
	}
	end := time.Now().Add(settle)
	return a.until(ctx, func(c *core) bool { return !c.unsettled() || time.Now().After(end) })
}

// until lets time pass until a condition holds or ctx is done.
func (a *Auditor) until(ctx context.Context, holds func(*core) bool) error {
	return wait.PollUntilContextCancel(ctx, tickEvery/5, true, func(context.Context) (done bool, _ error) {
		a.do(func(c *core) {
			c.advance(time.Now())
			done = holds(c)
		})
		return done, nil
	})
}

// Require ends the test with all findings so far, if there are any, after what has been bound so far was judged.
func (a *Auditor) Require(t testing.TB) {
	t.Helper()
	if err := a.settle(); err != nil {
		t.Fatal(err)
	}
	if findings := texts(found[fmt.Stringer](a)); len(findings) > 0 {
		t.Fatalf("the auditor found:\n%s", strings.Join(findings, "\n"))
	}
}

func texts[T fmt.Stringer](list []T) []string {
	var out []string
	for _, one := range list {
		out = append(out, one.String())
	}
	return out
}

// Breaches returns the breaches found so far, in the order of judgement.
func (a *Auditor) Breaches() []Breach { return found[Breach](a) }

// LostWakeups returns the lost wake-ups found so far, each pod once.
func (a *Auditor) LostWakeups() []LostWakeup { return found[LostWakeup](a) }

// Released returns the pods, as namespace/name, that were released from their ReplicaSets and exist, in alphabetical order.
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

// SetPolicy tells the auditor what the next scheduler runs with. Call it after the old scheduler has ended and before the
// new one starts.
func (a *Auditor) SetPolicy(policy *Policy) {
	a.do(func(c *core) { c.setPolicy(policy, time.Now()) })
}

// handler receives what the watches deliver.
type handler struct{ *Auditor }

func (h handler) OnAdd(object any, initial bool) {
	how := changed
	if initial {
		how = listed
	}
	h.take(how, object)
}

func (h handler) OnUpdate(_, object any) { h.take(changed, object) }

func (h handler) OnDelete(object any) {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		// Only the last state is known, so its resourceVersion is not that of the deletion.
		last, ok := missed.Obj.(runtime.Object)
		if !ok {
			return
		}
		object = last.DeepCopyObject()
		object.(metav1.Object).SetResourceVersion("")
	}
	h.take(deleted, object)
}

func (h handler) take(how change, object any) {
	h.do(func(c *core) { c.observe(time.Now(), how, object.(metav1.Object)) })
}
