package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
)

// arm is a scheduler with a configuration, and with pods for it.
type arm struct {
	name, explain string
	schedulerName string
	// config is a file in the folder config beside this file, for kube-scheduler. Empty means this
	// project's scheduler as shipped.
	config string
	// shape modifies the pods unless it is nil.
	shape func(*corev1.PodTemplateSpec)
	// extended means kube-scheduler with this project's extender, both as shipped.
	extended bool
	// gated means that the pods have the capacity gate, which this project's controller removes. So
	// kube-scheduler respects floors too.
	gated bool
	// ceiling, if set, are the flags of the program that decides nothing (runCeiling).
	ceiling []string
	// checkout, if set, is the folder of another checkout of this project. The arm is the scheduler
	// of that checkout, as shipped there.
	checkout string
}

// before returns the arm of -before.
func before(checkout string) arm {
	return arm{name: "before", explain: "the scheduler built in " + checkout, schedulerName: "spot-aware-scheduler", checkout: checkout}
}

const (
	spotAware      = "spot-aware"
	gated          = "gated"
	anyScheduler   = "any-scheduler"
	extended       = "extender"
	bindAndEvent   = "bind-and-event"
	bindOnly       = "bind"
	stockScheduler = corev1.DefaultSchedulerName
)

var arms = []arm{
	{name: spotAware, explain: "this scheduler as shipped", schedulerName: "spot-aware-scheduler"},
	{name: gated, explain: "the same in the autoscaler mode: the controller removes a gate from each pod",
		schedulerName: "spot-aware-scheduler", shape: addGate, gated: true},
	{name: anyScheduler, explain: "kube-scheduler with its own defaults; the controller removes a gate from each pod",
		schedulerName: stockScheduler, config: "default.yaml", shape: addGate, gated: true},
	{name: extended, explain: "kube-scheduler with spot-extender", schedulerName: "spot-aware-scheduler", extended: true},
	{name: "default", explain: "kube-scheduler with its own defaults", schedulerName: stockScheduler, config: "default.yaml"},
	{name: "default-no-spreading", explain: "kube-scheduler without default spreading", schedulerName: stockScheduler,
		config: "default-no-spreading.yaml"},
	{name: "affinity", explain: "kube-scheduler; pods prefer spot by node affinity", schedulerName: stockScheduler, config: "default.yaml",
		shape: preferSpot},
	{name: "affinity+spread", explain: "the same, and pods spread over capacity types", schedulerName: stockScheduler, config: "default.yaml",
		shape: preferSpotAndSpread},
	{name: bindAndEvent, explain: "a program that binds each pod to the next node, and then creates its event",
		schedulerName: "ceiling", ceiling: []string{ceilingFlag, "--events"}},
	{name: bindOnly, explain: "the same without events: the ceiling", schedulerName: "ceiling", ceiling: []string{ceilingFlag}},
}

// hasEvents reports whether the arm creates an event for each binding.
func (a arm) hasEvents() bool { return a.ceiling == nil || slices.Contains(a.ceiling, "--events") }

// addGate adds the gate like the admission policy of manifests/overlays/autoscaler.
func addGate(pod *corev1.PodTemplateSpec) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: spot.CapacityGate}}
}

// preferSpot adds the node affinity that users commonly write to run pods on spot.
func preferSpot(pod *corev1.PodTemplateSpec) {
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: lab.CapacityLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{lab.Spot}},
			}},
		}},
	}}
}

// preferSpotAndSpread also adds the constraint that users commonly write to run some pods on
// on-demand.
func preferSpotAndSpread(pod *corev1.PodTemplateSpec) {
	preferSpot(pod)
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: lab.CapacityLabel, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
	}}
}

// start starts the arm's scheduler and the programs that it needs: the extender or the controller.
// It returns them with the scheduler first. If one does not start, it stops the others.
// clientConnection limits the requests of the scheduler, unless its file has other limits.
func (a arm) start(ctx context.Context, plane *lab.ControlPlane, clientConnection map[string]any) (programs []*lab.Process, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, kill(programs))
		}
	}()
	options := a.scheduler(plane, clientConnection)
	if a.extended {
		extender, err := plane.StartExtender(ctx, lab.ExtenderOptions{})
		if err != nil {
			return nil, err
		}
		programs = append(programs, extender.Process)
		if options, err = plane.ExtendedScheduler(extender.Address); err != nil {
			return programs, err
		}
		edit := options.Edit
		options.Edit = func(config map[string]any) {
			edit(config)
			config["clientConnection"] = maps.Clone(clientConnection)
		}
	}
	scheduler, err := plane.StartScheduler(ctx, options)
	if err != nil {
		return programs, err
	}
	programs = append([]*lab.Process{scheduler}, programs...)
	if a.gated {
		controller, err := plane.StartController(ctx, lab.ControllerOptions{Edit: func(config map[string]any) {
			config["gating"] = map[string]any{"enabled": true, "labels": []any{lab.CapacityLabel}, "spotLabel": lab.CapacityLabel}
		}})
		if err != nil {
			return programs, err
		}
		programs = append(programs, controller)
	}
	return programs, nil
}

// kill kills programs.
func kill(programs []*lab.Process) error {
	var errs []error
	for _, p := range programs {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}

// scheduler returns the options of the arm's scheduler. clientConnection limits its requests,
// unless its file has other limits.
func (a arm) scheduler(plane *lab.ControlPlane, clientConnection map[string]any) lab.SchedulerOptions {
	options := lab.SchedulerOptions{
		Edit: func(config map[string]any) {
			if a.config == "" || config["clientConnection"] == nil {
				config["clientConnection"] = maps.Clone(clientConnection)
			}
		},
	}
	if a.checkout != "" {
		options.Binary = filepath.Join(a.checkout, "bin", "spot-aware-scheduler")
		options.ConfigFile = filepath.Join(a.checkout, "config", "scheduler-config.yaml")
	}
	if a.ceiling != nil {
		options.Binary, options.Flags = os.Args[0], a.ceiling
	}
	if a.config != "" {
		options.Binary = stockBinary(plane.Root)
		options.Kubeconfig = plane.StockKubeconfig
		options.ConfigFile = filepath.Join(plane.Root, "test", "performance", "config", a.config)
	}
	return options
}

func stockBinary(root string) string {
	return filepath.Join(root, ".local", "bin", "kube-scheduler")
}
