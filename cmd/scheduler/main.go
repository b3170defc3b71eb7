// Command spot-aware-scheduler is kube-scheduler with the plugins ReplicaSafety and SpotPreference, and with Coscheduling for
// gangs.
package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/kube"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/gang"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"

	// The plugins' args, for the scheduler's own decoder.
	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

func main() {
	os.Exit(cli.Run(newCommand()))
}

func newCommand() *cobra.Command {
	labels := &kube.LabelHistory{}
	return newSchedulerCommand(labels, plugins(labels)...)
}

// plugins returns the plugins that a profile may enable beside those of kube-scheduler. They share labels.
func plugins(labels *kube.LabelHistory) []app.Option {
	return []app.Option{
		app.WithPlugin(replicasafety.Name, replicasafety.With(labels, placesGangs)),
		app.WithPlugin(spotpreference.Name, spotpreference.New),
		app.WithPlugin(gang.Name, gang.New),
	}
}

// placesGangs reports whether the profile has pods of gangs wait for each other at Permit. A profile may have Coscheduling in queueSort
// alone: the order of the queue is the same in all profiles.
func placesGangs(handle fwk.Handle) bool {
	profile, ok := handle.(framework.Framework)
	return ok && has(profile.ListPlugins().Permit.Enabled, gang.Name)
}

// checkFlags checks the configuration file that --config names. Without one this would be a second stock scheduler, competing for the
// stock scheduler's lock.
func checkFlags(command *cobra.Command) error {
	file := command.Flag("config").Value.String()
	if file == "" {
		return errors.New("--config is required: the file with the profile that enables ReplicaSafety and SpotPreference " +
			"(config/scheduler-config.yaml is one to start from)")
	}
	return checkConfig(file)
}
