// Command spot-aware-scheduler is kube-scheduler with the plugins ReplicaSafety and SpotPreference, and with the Coscheduling
// plugin of scheduler-plugins for gangs.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/spotpreference"

	// The plugins' args, for the scheduler's own decoder; and those of scheduler-plugins.
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"

	_ "github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config/scheme"
)

func main() {
	os.Exit(cli.Run(newCommand()))
}

func newCommand() *cobra.Command {
	command := app.NewSchedulerCommand(
		app.WithPlugin(replicasafety.Name, replicasafety.New),
		app.WithPlugin(spotpreference.Name, spotpreference.New),
		app.WithPlugin(coscheduling.Name, coscheduling.New),
	)
	command.Use = "spot-aware-scheduler"
	run := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		if file := command.Flag("config").Value.String(); file != "" {
			// Mistakes are told before anything is asked of the API server.
			if err := checkConfig(file); err != nil {
				return err
			}
		}
		return run(command, args)
	}
	return command
}
