package main

import (
	"context"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/protection"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// patience returns how long a replacement may take.
func patience(s *setup) time.Duration {
	if s.Gating {
		return max(s.SurgeTimeout, s.NodeStartup)
	}
	return s.SurgeTimeout
}

// protect returns the writes of protection's PodDisruptionBudgets, and reports workloads that
// cannot have one.
func protect(
	planner *protection.Planner, s *snapshot.Snapshot, requested map[types.UID]bool, writer kubernetes.Interface, recorder events.EventRecorder,
) (writes []loop.Write) {
	changes, refusals := planner.Plan(s, requested)
	for _, r := range refusals {
		if object, err := meta.Accessor(r.Object); err == nil {
			klog.Background().Info("Workload cannot be protected", "workload", klog.KObj(object), "why", r.Why)
		}
		recorder.Eventf(r.Object, nil, v1.EventTypeWarning, spot.ReasonNotProtected, "Protect", "%s", r.Why)
	}
	for _, c := range changes {
		w := loop.Write{Kind: loop.Budget, UID: c.Budget.UID, Version: c.Budget.ResourceVersion, Name: klog.KObj(c.Budget), Why: c.Why}
		if c.Kind == protection.Create {
			w.UID, w.Version = c.Deployment.UID, strconv.FormatInt(c.Deployment.Generation, 10)
		}
		w.Apply = func(ctx context.Context) error {
			if err := c.Apply(ctx, writer); err != nil {
				return err
			}
			switch {
			case c.Kind == protection.Delete:
			case c.Why == "":
				recorder.Eventf(c.Deployment, nil, v1.EventTypeNormal, spot.ReasonProtected, "Protect",
					"PodDisruptionBudget %s blocks evictions until replacements are ready", c.Budget.Name)
			default:
				recorder.Eventf(c.Deployment, nil, v1.EventTypeWarning, spot.ReasonProtectionRelaxed, "Protect",
					"PodDisruptionBudget %s allows %s unavailable: %s", c.Budget.Name, c.Budget.Spec.MaxUnavailable, c.Why)
			}
			return nil
		}
		writes = append(writes, w)
	}
	return writes
}
