package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/survey"
)

// policy is what a configuration says, and where it is from.
type policy struct {
	*decision.Policy
	signals []kube.Signal
	from    string
}

// connect returns the client.
func (o *options) connect() (kubernetes.Interface, error) {
	cfg, err := o.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.QPS = -1 // a dozen requests, all at a time
	cfg.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfig(cfg)
}

// look reads the cluster and the policy. It says on standard error, and in o.source, what could not be read, and what is not known because of
// it.
func (o *options) look(ctx context.Context, scope survey.Scope) (*report.View, *survey.Survey, error) {
	client, err := o.connect()
	if err != nil {
		return nil, nil, err
	}
	var taken *survey.Survey
	var kept policy
	var assumed error // why the policy had to be assumed
	scope.Read = new(atomic.Int64)
	stop := reportProgress(o.ErrOut, scope.Read)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		taken, err = survey.Take(groupCtx, client, scope)
		return err
	})
	group.Go(func() (err error) {
		kept, assumed, err = o.readPolicy(groupCtx, client)
		return err
	})
	err = group.Wait()
	stop()
	if err != nil {
		return nil, nil, helpful(err, scope.Namespace)
	}
	o.source.noOwners, o.source.Policy = taken.NoOwners, kept.from
	for _, gap := range taken.Gaps {
		o.missed(gap.String())
	}
	if assumed != nil {
		o.source.Assumed = assumed.Error()
		o.warn("the policy could not be read (%v); the defaults are assumed: %s. --scheduler-config FILE names another", assumed, kept.Defaults)
	}
	view, err := o.see(taken, kept)
	return view, taken, err
}

// see returns the cluster as a policy sees it. It says like look what the policy needs that could not be read.
func (o *options) see(taken *survey.Survey, by policy) (*report.View, error) {
	snapshot, err := taken.Snapshot(by.Policy, by.signals, o.profile, time.Now())
	if err != nil {
		return nil, err
	}
	owners, err := taken.Owners(by.Policy)
	if err != nil {
		return nil, err
	}
	wanted, err := taken.Wanted(o.profile)
	if err != nil {
		return nil, err
	}
	needed := func(pod *v1.Pod) bool { return by.NeedsPriorityClass(pod.Spec.PriorityClassName) }
	if taken.Priorities != nil && slices.ContainsFunc(wanted, needed) {
		o.missed(taken.Priorities.String())
	}
	return &report.View{
		Snapshot: snapshot, Policy: by.Policy, Signals: by.signals, Profile: o.profile, Owners: owners, Wanted: wanted,
		NoNodes: taken.Nodes != nil,
	}, nil
}

// readPolicy returns the policy of the file, or of the cluster. Where the cluster's cannot be read it is the defaults, and assumed says why.
func (o *options) readPolicy(ctx context.Context, client kubernetes.Interface) (p policy, assumed, err error) {
	if o.configFile != "" {
		p, err = o.readPolicyFile(o.configFile)
		return p, nil, err
	}
	configuration, assumed := survey.ReadConfiguration(ctx, client)
	if assumed != nil {
		if ctx.Err() != nil || !(apierrors.IsForbidden(assumed) || apierrors.IsNotFound(assumed) || errors.Is(assumed, survey.ErrNoConfiguration)) {
			return p, nil, assumed
		}
		args := config.ReplicaSafetyArgs{}
		args.SetDefaults()
		p.from = "the defaults"
		p.Policy, p.signals, err = args.Policy()
		return p, assumed, err
	}
	p.from = configuration.From
	p.Policy, p.signals, err = config.ReadPolicy(configuration.Data, o.profile)
	if err != nil {
		err = fmt.Errorf("%s: %w", p.from, err)
	}
	return p, nil, err
}

func (o *options) readPolicyFile(file string) (p policy, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return p, fmt.Errorf("configuration file: %w", err)
	}
	p.from = file
	if p.Policy, p.signals, err = config.ReadPolicy(data, o.profile); err != nil {
		err = fmt.Errorf("configuration file %s: %w", file, err)
	}
	return p, err
}

// missed says, once, what could not be read.
func (o *options) missed(gap string) {
	if slices.Contains(o.source.gaps, gap) {
		return
	}
	if len(o.source.gaps) == 0 {
		o.warn("not all could be read: %s", askFor)
	}
	o.source.gaps = append(o.source.gaps, gap)
	o.warn("%s", gap)
}

func (o *options) warn(format string, args ...any) {
	fmt.Fprintf(o.ErrOut, "warning: "+format+"\n", args...)
}

// askFor is what somebody does who lacks rights.
const askFor = "the ClusterRole spot-viewer has all rights that this needs (manifests/overlays/viewer; docs/kubectl-spot.md)"

// helpful adds to an error of the API server what can be done about it.
func helpful(err error, namespace string) error {
	switch {
	case survey.Denied(err) && namespace == "":
		return fmt.Errorf("%w\nWith the rights of one namespace, name it: -n NAMESPACE. %s", err, capital(askFor))
	case survey.Denied(err):
		return fmt.Errorf("%w\n%s", err, capital(askFor))
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server does not know the credential of this context (kubectl config current-context)", err)
	}
	return err
}

func capital(s string) string { return string(s[0]-'a'+'A') + s[1:] }
