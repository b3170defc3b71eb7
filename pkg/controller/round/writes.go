package round

import (
	"context"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/execution"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/interruption"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/loop"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/protection"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/refusal"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/snapshot"
)

// markWrites returns the writes of marks on nodes. Each emits its events after the write.
func (p *Planner) markWrites(marks []interruption.Mark) (writes []loop.Write) {
	for _, m := range marks {
		var notes []string
		for _, e := range m.Events {
			notes = append(notes, e.Reason+": "+e.Note)
		}
		writes = append(writes, p.clients.newWrite(loop.NodeMark, m.Node.Node, strings.Join(notes, "; "), func(ctx context.Context) error {
			if m.Cause != "" {
				ctx = safety.WithRemoval(ctx, safety.Removal{Cause: m.Cause})
			}
			if err := interruption.Apply(ctx, p.clients.Writer, m); err != nil {
				return err
			}
			for _, e := range m.Events {
				p.clients.Recorder.Eventf(m.Node.Node, nil, e.Type, e.Reason, "Mark", "%s", e.Note)
			}
			return nil
		}))
	}
	return writes
}

func (c *Clients) newWrite(kind loop.WriteKind, object client.Object, why string, apply func(context.Context) error) loop.Write {
	return loop.Write{
		Kind: kind, UID: object.GetUID(), Version: object.GetResourceVersion(), Name: klog.KObj(object), Why: why,
		Apply: apply, Refused: c.reportRefused(object, spot.ReasonRefused),
	}
}

// reportRefused returns a function that emits an event on an object, because a write for it was
// refused.
func (c *Clients) reportRefused(object runtime.Object, reason string) func(error) {
	return func(err error) {
		c.Recorder.Eventf(object, nil, v1.EventTypeWarning, reason, "Write",
			"The controller retries a refused request. Correct what refuses it, or exempt the controller: %s", refusal.Message(err))
	}
}

// budgetWrites returns the writes of PodDisruptionBudgets for protection, and reports workloads
// that cannot have one.
func (p *Planner) budgetWrites(s *snapshot.Snapshot) (writes []loop.Write) {
	changes, refusals := p.protector.Plan(s)
	for _, r := range refusals {
		klog.Background().Info("Workload cannot be protected", "workload", klog.KObj(r.Object), "reason", r.Why)
		p.clients.Recorder.Eventf(r.Object, nil, v1.EventTypeWarning, spot.ReasonNotProtected, "Protect", "%s", r.Why)
	}
	for _, c := range changes {
		w := p.clients.newWrite(loop.Budget, c.Budget, c.Why, func(ctx context.Context) error {
			if err := c.Apply(ctx, p.clients.Writer); err != nil {
				return err
			}
			p.reportProtection(c)
			return nil
		})
		w.Rank = c.Rank()
		if c.Kind == protection.Create {
			w.UID, w.Version = c.Deployment.UID, strconv.FormatInt(c.Deployment.Generation, 10)
			w.Refused = p.clients.reportRefused(c.Deployment, spot.ReasonNotProtected)
		}
		writes = append(writes, w)
	}
	return writes
}

func (p *Planner) reportProtection(c protection.Change) {
	switch {
	case c.Kind == protection.Delete:
	case c.Why == "":
		p.clients.Recorder.Eventf(c.Deployment, nil, v1.EventTypeNormal, spot.ReasonProtected, "Protect",
			"PodDisruptionBudget %s blocks evictions until replacements are ready", c.Budget.Name)
	default:
		p.clients.Recorder.Eventf(c.Deployment, nil, v1.EventTypeWarning, spot.ReasonProtectionRelaxed, "Protect",
			"PodDisruptionBudget %s allows %s unavailable: %s", c.Budget.Name, c.Budget.Spec.MaxUnavailable, c.Why)
	}
}

// costWrites returns the writes of deletion costs. If deletion costs are disabled, it removes the
// existing ones.
func (p *Planner) costWrites(s *snapshot.Snapshot) (writes []loop.Write) {
	for _, c := range rebalance.DeletionCosts(s, p.config.DeletionCosts.Enabled) {
		writes = append(writes, p.clients.newWrite(loop.DeletionCost, c.Pod.Pod, "",
			func(ctx context.Context) error { return execution.Patch(ctx, p.clients.Writer, c.Pod.Pod, c.Patch()) }))
	}
	return writes
}
