package gating

import (
	"sync"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
)

type Wishes struct{ mu sync.Mutex }

func (w *Wishes) Want(revision kube.OwnerKey, capacity decision.CapacityType, until time.Time) {}
func (w *Wishes) Take(revision kube.OwnerKey, now time.Time) (decision.CapacityType, bool) {
	return 0, false
}
