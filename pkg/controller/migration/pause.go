package migration

import "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/safety"

// isPaused reports whether removals and releases with the cause are paused.
func (p *planner) isPaused(cause safety.Cause) bool {
	return p.settings.Paused != nil && p.settings.Paused(cause)
}

// isPausedFor reports whether the release and the eviction of a pod are paused.
func (p *planner) isPausedFor(o *observation) bool {
	return p.isPaused((&Action{Move: o.Move, Kind: EvictPod}).cause())
}

// removes reports whether the action removes or releases its pod.
func (a *Action) removes() bool {
	return a.Kind == Release || a.Kind == EvictPod || a.Kind == DeletePod
}
