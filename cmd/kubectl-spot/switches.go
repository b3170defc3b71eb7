package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kubectl/lister"
)

func (o *options) pauseCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "pause",
		Short: "Stop the controller from removing pods, at once",
		Long: `Stops all evictions, deletions and releases of pods by the controller, and new taints, within
a second. It replaces an earlier pause. Released pods return to their ReplicaSets. Pods on
reclaimed nodes end with their nodes: it prints how many. The end of --for starts the same as
resume. The overlay operator has the right.`,
		Example: `  kubectl spot pause --for 1h --message "INC-42: nodes are tainted by mistake"
  kubectl spot pause --only return-to-spot,heal`,
		Args: cobra.NoArgs,
	}
	newSwitch := o.addFor(command)
	only := command.Flags().StringSlice("only", nil, "Reasons to pause, such as return-to-spot. If empty, everything is paused.")
	message := command.Flags().String("message", "", "Text for other users, such as the name of an incident.")
	command.RunE = func(command *cobra.Command, _ []string) (err error) {
		pause := &safety.Pause{Message: *message}
		for _, cause := range *only {
			pause.Only = append(pause.Only, safety.Cause(cause))
		}
		if err := safety.CheckCauses(pause.Only); err != nil {
			return fmt.Errorf("--only: %w; %w", err, errUsage)
		}
		if pause.Switch, err = newSwitch(command.Context()); err != nil {
			return err
		}
		return o.updateSwitches(command.Context(), func(values *safety.SwitchValues) string {
			values.Pause = pause
			return "Paused: " + comment(pause.String()) +
				".\nPods on reclaimed nodes end with their nodes. The end of the pause (--for, or kubectl spot resume) starts all moves."
		})
	}
	return command
}

func (o *options) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `Ends a pause, and prints what the controller starts, by cause. It never asks. Remove false
signals first: pods are moved off their nodes, although none is deleted if the deadline has
passed and the node is Ready.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return o.updateSwitches(command.Context(), func(values *safety.SwitchValues) string {
				was := values.Pause
				if values.Pause = nil; was == nil {
					return "The controller is not paused."
				}
				return "Resumed. The pause was: " + comment(was.String()) + "."
			})
		},
	}
}

func (o *options) breakerCommand() *cobra.Command {
	states := map[string]string{"open": safety.BreakerOpen, "close": safety.BreakerClosed, "auto": ""}
	command := &cobra.Command{
		Use:   "breaker (close | open | auto)",
		Short: "Close the breaker for reclaim signals, keep it open, or let it decide",
		Long: `The breaker opens by itself if many nodes have a reclaim signal, or if nodes outlive it. close
declares the signals true, open declares them false, and auto lets the controller decide again.
While a user has opened it, no pod of a node with a reclaim signal is removed without a ready
replacement, except from nodes whose kubelet is silent.`,
		Example:   `  kubectl spot breaker close --for 1h`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"close", "open", "auto"},
	}
	newSwitch := o.addFor(command)
	command.RunE = func(command *cobra.Command, args []string) (err error) {
		forced := &safety.ForcedBreaker{State: states[args[0]]}
		if forced.Switch, err = newSwitch(command.Context()); err != nil {
			return err
		}
		return o.updateSwitches(command.Context(), func(values *safety.SwitchValues) string {
			if values.Breaker = forced; forced.State == "" {
				values.Breaker = nil
				return "The controller decides when the breaker is open."
			}
			return fmt.Sprintf("Breaker: %s.\nTo let the controller decide again: kubectl spot breaker auto", forced)
		})
	}
	return command
}

// addFor adds the flag --for to a command. newSwitch connects, and returns a switch of the user
// that begins now.
func (o *options) addFor(command *cobra.Command) (newSwitch func(context.Context) (safety.Switch, error)) {
	duration := command.Flags().Duration("for", 0, "How long it lasts, such as 30m or 4h. Without it, it has no end.")
	return func(ctx context.Context) (s safety.Switch, err error) {
		if command.Flags().Changed("for") && *duration <= 0 {
			return s, fmt.Errorf("--for: invalid value %q: expected more than 0; %w", *duration, errUsage)
		}
		now := metav1.Now()
		if s.Since = &now; *duration > 0 {
			s.Until = &metav1.Time{Time: now.Add(*duration)}
		}
		if err := o.connect(); err != nil {
			return s, err
		}
		review, err := o.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil { // the name is not worth an error
			s.By = review.Status.UserInfo.Username
		}
		return s, nil
	}
}

// updateSwitches changes the switches that are in effect, and prints the text that change returns.
// It repeats this if another client changes them at the same time. It prints what another pause
// starts and costs.
func (o *options) updateSwitches(ctx context.Context, change func(*safety.SwitchValues) string) error {
	if err := o.connect(); err != nil {
		return err
	}
	var before, after safety.SwitchValues
	text := ""
	concurrent := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, concurrent, func() error {
		configMap, err := o.getSwitches(ctx)
		if err != nil {
			return err
		}
		values, invalid := safety.ReadSwitches(configMap)
		if invalid != nil {
			o.warn("ConfigMap %s/%s had an invalid value: %s", configMap.Namespace, configMap.Name, comment(invalid.Error()))
		}
		before = values.At(time.Now())
		after = before
		text = change(&after)
		if err := after.Store(configMap); err != nil {
			return err
		}
		if configMaps := o.client.CoreV1().ConfigMaps(configMap.Namespace); configMap.UID != "" {
			_, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
		} else if len(configMap.Data) > 0 {
			_, err = configMaps.Create(ctx, configMap, metav1.CreateOptions{})
		}
		return err
	})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w\nThe Role spot-operator has this right (%skubectl-spot.md#pause)", err, docsURL)
	}
	if err == nil {
		fmt.Fprintln(o.Out, text)
		o.printEffect(ctx, before.Pause, after.Pause)
	}
	return o.withHint(err, "")
}

// printEffect prints what the controller starts because a pause replaces another, by cause, and
// what it costs. A cluster that cannot be read is no error: the pause is replaced already.
func (o *options) printEffect(ctx context.Context, before, after *safety.Pause) {
	if before == after {
		return
	}
	reading, warnings := *o, &bytes.Buffer{}
	reading.changedSwitches, reading.ErrOut = true, warnings
	view, _, err := reading.readWideView(ctx, lister.Scope{NodesRequired: true, DisruptionBudgets: true, Volumes: true})
	if err == nil {
		err = reading.readController(ctx, view)
	}
	if err != nil {
		o.warn("the effect on pods is unknown: %s", err)
		return
	}
	_, _ = warnings.WriteTo(o.ErrOut) // of what the effect lacks
	for _, line := range view.Effect(before, after) {
		fmt.Fprintln(o.Out, line)
	}
}

// getSwitches returns the ConfigMap with the switches. If it does not exist, it has no UID.
func (o *options) getSwitches(ctx context.Context) (*v1.ConfigMap, error) {
	namespace, err := lister.FindNamespace(ctx, o.client)
	if err != nil {
		return nil, err
	}
	configMap, err := o.client.CoreV1().ConfigMaps(namespace).Get(ctx, safety.SwitchesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: safety.SwitchesName}}, nil
	}
	return configMap, err
}

// useSwitches warns of the switches that are in effect, and adds them to the answer. err is the
// error of getSwitches.
func (o *options) useSwitches(configMap *v1.ConfigMap, err error) {
	if err != nil {
		o.recordGap(lister.Gap{Err: err, Consequence: "whether the controller is paused is unknown"}.String())
		return
	}
	values, _ := safety.ReadSwitches(configMap) // an invalid pause has a message
	values = values.At(time.Now())
	warning := ""
	if values.Pause != nil {
		warning = fmt.Sprintf("the controller is paused: %s; kubectl spot resume ends the pause", values.Pause)
	}
	if values.Breaker != nil {
		warning += fmt.Sprintf("; the breaker is forced: %s; kubectl spot breaker auto ends this", values.Breaker)
	}
	if warning != "" && warning != o.switchWarning && !o.changedSwitches { // -w reads them again and again
		o.warn("%s", comment(strings.TrimPrefix(warning, "; ")))
	}
	o.switchWarning, o.source.Pause, o.source.Breaker = warning, values.Pause, values.Breaker
}
