// Command spot-aware-scheduler is kube-scheduler with the plugins ReplicaSafety and SpotPreference,
// and with Coscheduling for gangs.
package main

import (
	"os"
	"runtime/debug"

	"k8s.io/component-base/cli"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/leader"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/gang"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"

	// The plugins' args, for the scheduler's own decoder.
	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

// gcPercent is the default of GOGC. Compared with Go's 100, it saves an eighth of the CPU time per
// pod for a tenth more memory (docs/design/throughput.md). GOMEMLIMIT still limits the memory.
const gcPercent = 150

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(cli.Run(newCommand()))
}

// plugins returns the plugins that a profile may enable in addition to kube-scheduler's.
func plugins(memory *leader.Memory) []app.Option {
	return []app.Option{
		app.WithPlugin(replicasafety.Name, replicasafety.NewFactory(schedulesGangs, memory)),
		app.WithPlugin(spotpreference.Name, spotpreference.New),
		app.WithPlugin(gang.Name, gang.New),
	}
}

// schedulesGangs reports whether the profile enables Coscheduling at Permit, where pods of a gang
// wait for each other. A profile may have Coscheduling in queueSort only, because all profiles must
// have the same queue order.
func schedulesGangs(handle fwk.Handle) bool {
	profile, ok := handle.(framework.Framework)
	return ok && has(profile.ListPlugins().Permit.Enabled, gang.Name)
}
