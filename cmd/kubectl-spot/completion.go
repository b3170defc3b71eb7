package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/report"
)

// completionTimeout is the maximum time that a user waits after pressing Tab.
const completionTimeout = 3 * time.Second

// completing returns options that print only the choices, and a context with completionTimeout.
func (o *options) completing(command *cobra.Command) (*options, context.Context, context.CancelFunc) {
	quiet := *o
	quiet.ErrOut = io.Discard
	ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
	return &quiet, ctx, cancel
}

// completionView reads the requested namespace; nil if that fails.
func (o *options) completionView(command *cobra.Command) *report.View {
	o, ctx, cancel := o.completing(command)
	defer cancel()
	view, _, _ := o.readNamespaceView(ctx, lister.Scope{}) // nil if there is an error
	return view
}

func (o *options) completeWorkloads(command *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, nothing
	}
	view := o.completionView(command)
	if view == nil {
		return nil, nothing
	}
	var choices []string
	kind, _, named := strings.Cut(toComplete, "/")
	if named && kindOf(kind) == "Pod" {
		for _, p := range view.Snapshot.Pods {
			if p.Subject != nil && p.Workload.InScope {
				choices = append(choices, kind+"/"+p.Name)
			}
		}
		return choices, nothing
	}
	all, _ := view.Statuses()
	for i := range all {
		ref := all[i].Ref.String()
		if named && kindOf(kind) == all[i].Kind {
			ref = kind + "/" + all[i].Name // keeps the user's kind: deploy/web stays deploy/web
		}
		choices = append(choices, ref)
	}
	return append(choices, "pod/"), nothing | cobra.ShellCompDirectiveNoSpace
}

func (o *options) completeLosses(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var choices []string
	if view := o.completionView(command); view != nil {
		choices = view.LossChoices()
	}
	return choices, cobra.ShellCompDirectiveNoFileComp
}

func (o *options) completeNamespaces(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	o, ctx, cancel := o.completing(command)
	defer cancel()
	var names []string
	if o.connect() == nil {
		list, _ := o.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // empty if there is an error
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
