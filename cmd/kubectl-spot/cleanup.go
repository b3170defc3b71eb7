package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/failsafe"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
)

// The cluster is read again after cleanupPause, because objects change between reading and writing,
// and because some changes need others: a pod may be deleted only when our budget is gone.
const cleanupRounds, cleanupPause = 5, time.Second

// maxWaitingNames is how many waiting pods a warning names.
const maxWaitingNames = 5

func (o *options) cleanupCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what an uninstallation left on objects",
		Long: `Lists what the programs wrote on objects of other owners, and with --yes removes it: gates,
released pods, deletion costs, PodDisruptionBudgets, and the marks of nodes. Released pods are
restored. It does not restart running pods. With -n, it ignores nodes and other namespaces. It
refuses if the controller may still run, or if new pods still get gates. With --yes, it prints the
changes that it made, and the exit status is 1 if an object could not be changed.`,
		Example: `  kubectl spot cleanup
  kubectl spot cleanup --yes`,
		Args: cobra.NoArgs,
	}
	p := newPrinting(command)
	yes := command.Flags().Bool("yes", false, "Make the changes. Without it, they are only listed.")
	command.RunE = func(command *cobra.Command, _ []string) error {
		err := o.cleanup(command.Context(), p, *yes)
		if apierrors.IsForbidden(err) {
			return err // the ClusterRole spot-viewer would not be sufficient
		}
		return o.withHint(err, "")
	}
	return command
}

// cleanup lists the changes, or makes them and prints the successful ones.
func (o *options) cleanup(ctx context.Context, p *printing, yes bool) error {
	if err := o.connect(); err != nil {
		return err
	}
	found, err := o.readCleanup(ctx)
	done, failed := []report.CleanupItem{}, map[report.Ref]error{}
	for round := 0; yes && err == nil && round < cleanupRounds && len(found.Items) > len(failed); round++ {
		done = append(done, o.change(ctx, found.Items, failed)...)
		if err = leader.Sleep(ctx, cleanupPause); err == nil {
			found, err = o.readCleanup(ctx)
		}
	}
	if err != nil {
		return errors.Join(p.cleanup(o.Out, done), err)
	}
	last, errs := "Nothing is left.", []error(nil)
	switch {
	case !yes && len(found.Items) > 0:
		last, done = "Nothing was changed. To make these changes, run the same command with --yes.", found.Items
	case len(found.Items) > 0:
		last = "These changes are not complete."
		for i := range found.Items {
			ref := found.Items[i].Ref
			changing := errors.New("it changes too often; run the command again")
			errs = append(errs, fmt.Errorf("%s was not changed: %w", nameOf(ref), cmp.Or(failed[ref], changing)))
		}
	case len(found.Left) > 0:
		last = "Nothing else is left."
	}
	found.Items = done
	return errors.Join(append(errs, o.printCleanup(p, found, last))...)
}

// readCleanup returns what is left in the cluster. It returns an error if the programs may still
// run, or if the user may not list all kinds, because a ReplicaSet that is not listed would seem to
// be gone.
func (o *options) readCleanup(ctx context.Context) (*report.Cleanup, error) {
	now := time.Now()
	if err := lister.CheckUninstalled(ctx, o.client, now); err != nil {
		return nil, err
	}
	o.beforeInstall = true // the cluster has no configuration: the defaults have the signals
	current, err := o.readPolicy(ctx)
	if err != nil {
		return nil, err
	}
	o.source.Policy = current.source
	listed, err := lister.List(ctx, o.client, lister.Scope{Namespace: o.givenNamespace(), DisruptionBudgets: true})
	if err == nil && len(listed.Gaps) > 0 {
		err = listed.Gaps[0].Err
	}
	if err != nil {
		return nil, err
	}
	return report.NewCleanup(listed.Factory(), o.givenNamespace(), current.signals, o.profile, now), nil
}

// change makes the changes of items that have not failed, and returns the successful ones. It adds
// errors to failed, unless the object is gone or was changed meanwhile.
func (o *options) change(ctx context.Context, items []report.CleanupItem, failed map[report.Ref]error) (done []report.CleanupItem) {
	for i := range items {
		item, err := &items[i], error(nil)
		switch {
		case failed[item.Ref] != nil || ctx.Err() != nil:
			continue
		case item.Mark != nil:
			err = interruption.Apply(ctx, o.client, *item.Mark)
		case item.Pod != nil:
			err = failsafe.EndRelease(ctx, o.client, item.Pod, item.Patch)
		default:
			err = o.client.PolicyV1().PodDisruptionBudgets(item.Namespace).Delete(ctx, item.Name,
				*metav1.NewPreconditionDeleteOptions(string(item.UID)))
		}
		if err == nil {
			done = append(done, *item)
		} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed[item.Ref] = err
		}
	}
	return done
}

// printCleanup prints warnings, and after them the answer for programs, or the last line for a
// person.
func (o *options) printCleanup(p *printing, c *report.Cleanup, last string) error {
	for _, mark := range c.Left {
		o.warn("%s keeps a mark: %s", nameOf(mark.Ref), mark.Reason)
	}
	if n := len(c.Waiting); n > 0 {
		o.warn("%s for scheduler %s and cannot start without it: %s (%suninstall.md)", report.Count(n, "pod waits", "pods wait"), o.profile,
			strings.Join(c.Waiting[:min(n, maxWaitingNames)], ", "), docsURL)
	}
	if p.humanReadable() {
		err := p.cleanup(o.Out, c.Items)
		fmt.Fprintln(o.Out, last)
		return err
	}
	return p.object(o.Out, "SpotCleanup", &o.source, c, refsOf(c.Items, func(i *report.CleanupItem) report.Ref { return i.Ref }))
}

func (p *printing) cleanup(out io.Writer, items []report.CleanupItem) error {
	if !p.humanReadable() {
		return nil
	}
	t := &table{}
	t.columns(always, "kind", "namespace", "name", "change")
	for i := range items {
		t.row(items[i].Kind, cell(items[i].Namespace), items[i].Name, items[i].Change)
	}
	return p.table(out, t)
}

func nameOf(ref report.Ref) string { return ref.String() + ofNamespace(ref.Namespace) }
