package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

type policy struct {
	*decision.Policy
	signals []providers.Signal
	source  policySource
}

func (o *options) connect() error {
	cfg, err := o.flags.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.QPS = -1 // a dozen requests, in parallel
	cfg.WarningHandler = rest.NoWarnings{}
	o.client, err = kubernetes.NewForConfig(cfg)
	return err
}

// readView reads the cluster and the policy. It prints on standard error, and records in o.source,
// what could not be read and what is unknown because of this.
func (o *options) readView(ctx context.Context, scope lister.Scope) (*report.View, *lister.Objects, error) {
	if err := o.connect(); err != nil {
		return nil, nil, err
	}
	var gatingGaps []lister.Gap
	var reading errgroup.Group
	switches, switchesErr := &v1.ConfigMap{}, error(nil)
	if !o.beforeInstall {
		reading.Go(func() error {
			switches, switchesErr = o.getSwitches(ctx)
			return nil // a gap
		})
	}
	reading.Go(func() (err error) {
		o.gating, o.interruption, gatingGaps, err = lister.ReadSections(ctx, o.client)
		return err
	})
	current, err := o.readPolicy(ctx) // first, because it is small and may be invalid
	var listed *lister.Objects
	if err == nil {
		listed, err = lister.List(ctx, o.client, scope)
	}
	if err = cmp.Or(err, reading.Wait()); err != nil {
		return nil, nil, o.withHint(err, scope.Namespace)
	}
	o.source.noOwners, o.source.Policy = listed.OwnersMissing, current.source
	for _, gap := range listed.Gaps {
		o.recordGap(gap.String())
	}
	o.useSwitches(switches, switchesErr)
	if gap := listed.GapOf("Node"); gap != nil && scope.NodesRequired {
		return nil, nil, fmt.Errorf("nodes cannot be read, and this command needs them: %s", gap.Err) // fewer pods would not help
	}
	if assumed := current.source.AssumedReason; assumed != "" {
		o.warn("the policy could not be read (%s); the defaults are assumed: %s. Use --scheduler-config FILE to set the policy", assumed,
			current.Defaults)
	}
	view, err := o.viewOf(listed, current)
	if err == nil {
		o.reportBreaker(view)
	}
	keepsScheduler := func(w *snapshot.Workload) bool { return w.KeepsScheduler }
	if err == nil && !o.beforeInstall && slices.ContainsFunc(view.Snapshot.Workloads, keepsScheduler) {
		for _, gap := range gatingGaps {
			o.recordGap(gap.String())
		}
	}
	return view, listed, err
}

// reportBreaker warns if the breaker for reclaim signals is open, and again if it changes (-w).
func (o *options) reportBreaker(view *report.View) {
	n := len(view.Breaker().Unconfirmed)
	if n != o.source.UnconfirmedNodes && n > 0 {
		o.warn("the breaker for reclaim signals is open: %s a signal that nothing else confirms, and only pods whose replacement is ready are "+
			"evicted from them", report.Count(n, "node has", "nodes have"))
	}
	o.source.UnconfirmedNodes = n
}

// readNamespaceView is like readView, for the requested namespace.
func (o *options) readNamespaceView(ctx context.Context, scope lister.Scope) (view *report.View, listed *lister.Objects, err error) {
	if scope.Namespace, err = o.namespace(); err != nil {
		return nil, nil, err
	}
	return o.readView(ctx, scope)
}

// viewOf returns the cluster under a policy. Like readView, it reports objects that the policy
// needs and that could not be read.
func (o *options) viewOf(listed *lister.Objects, current policy) (*report.View, error) {
	scope := workload.NewScope(o.profile, o.gating.Enabled, listed.Factory().Core().V1().Namespaces().Lister())
	read, err := listed.Snapshot(current.Policy, current.signals, scope, time.Now())
	owners, ownersErr := listed.Owners(current.Policy)
	if err = cmp.Or(err, ownersErr); err != nil {
		return nil, err
	}
	if gap := listed.GapOf("Namespace"); gap != nil && o.gating.Enabled {
		o.recordGap(gap.String())
	}
	wanted := listed.TemplatePods()
	needed := func(pod *v1.Pod) bool {
		return scope.Includes(pod) && current.NeedsPriorityClass(pod.Spec.PriorityClassName)
	}
	if gap := listed.GapOf("PriorityClass"); gap != nil && slices.ContainsFunc(wanted, needed) {
		o.recordGap(gap.String())
	}
	return &report.View{
		Snapshot: read, Policy: current.Policy, Signals: current.signals, Scope: scope, Owners: owners, TemplatePods: wanted,
		Pools:  listed.Pools(),
		Gating: o.gating, Interruption: o.interruption, Pause: o.source.Pause, ForcedBreaker: o.source.Breaker.Open(),
		NodesUnknown: listed.GapOf("Node") != nil, Namespace: listed.Scope.Namespace, Object: listed.Object,
	}, nil
}

// readPolicy returns the policy of the file or of the cluster. If the cluster's policy cannot be
// read, it returns the defaults, and the reason in their source.
func (o *options) readPolicy(ctx context.Context) (policy, error) {
	if o.configFile != "" {
		return o.readPolicyFile(o.configFile)
	}
	found, err := lister.ReadConfiguration(ctx, o.client)
	if err == nil {
		return o.parsePolicy(found.Data, found.From)
	}
	none := errors.Is(err, lister.ErrNoConfiguration)
	if ctx.Err() != nil || !none && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return policy{}, err
	}
	defaults, defaultsErr := defaultPolicy()
	if !none || !o.beforeInstall {
		defaults.source.AssumedReason = err.Error()
	}
	return defaults, defaultsErr
}

// defaultPolicy returns the policy of a configuration without settings.
func defaultPolicy() (p policy, err error) {
	var args config.ReplicaSafetyArgs
	p.source.Name = "the defaults"
	p.Policy, p.signals, err = args.Policy()
	return p, err
}

func (o *options) readPolicyFile(file string) (policy, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return policy{}, fmt.Errorf("configuration file: %w", err)
	}
	p, err := o.parsePolicy(data, file)
	if err != nil {
		err = fmt.Errorf("configuration file %w", err)
	}
	return p, err
}

func (o *options) parsePolicy(data []byte, from string) (p policy, err error) {
	p.source.Name = from
	if p.Policy, p.signals, err = config.ReadPolicy(data, o.profile); err != nil {
		err = fmt.Errorf("%s: %w", from, err)
	}
	return p, err
}

// recordGap is like lacks, for an object that could not be read.
func (o *options) recordGap(gap string) {
	if len(o.source.ReadErrors) == 0 {
		o.warn("not everything could be read: %s", rightsHint)
	}
	o.lacks(gap)
}

// lacks reports once what the answer lacks.
func (o *options) lacks(gap string) {
	if !slices.Contains(o.source.ReadErrors, gap) {
		o.source.ReadErrors = append(o.source.ReadErrors, gap)
		o.warn("%s", gap)
	}
}

func (o *options) warn(format string, args ...any) {
	fmt.Fprintf(o.ErrOut, "warning: "+format+"\n", args...)
}

const rightsHint = "the ClusterRole spot-viewer has all required rights (" + docsURL + "kubectl-spot.md#rights)"

const docsURL = "https://github.com/spot-aware-scheduler/spot-aware-scheduler/blob/main/docs/"

// withHint adds advice to an error of the API server, and makes a sentence of an error of the
// connection.
func (o *options) withHint(err error, namespace string) error {
	var failed *url.Error
	switch {
	case errors.As(err, &failed) && !errors.Is(err, context.Canceled):
		config, loadErr := o.flags.ToRawKubeConfigLoader().RawConfig()
		if loadErr == nil && len(config.Clusters) == 0 && *o.flags.APIServer == "" {
			return errors.New("no cluster is configured: set KUBECONFIG or --kubeconfig, or use kubectl spot assess --from with a dump")
		}
		server := o.client.CoreV1().RESTClient().Get().URL().Host
		const hint = "check the context (kubectl config current-context), and whether kubectl get nodes works"
		return fmt.Errorf("the API server %s does not answer (%w): %s", server, failed.Err, hint)
	case apierrors.IsForbidden(err) && namespace == "":
		return fmt.Errorf("%w\nIf you have rights in one namespace only, use -n NAMESPACE. %s", err, sentence(rightsHint))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\n%s", err, sentence(rightsHint))
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server rejected the credential of the current context (kubectl config current-context)", err)
	}
	return err
}
