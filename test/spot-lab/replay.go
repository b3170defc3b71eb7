package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab/replay"
)

// replayFlags are the flags of the command replay that are not fields of its options.
type replayFlags struct {
	arms, compare, results, controllerSettings, schedulerSettings []string
	hours                                                         float64
	from                                                          string
	provisioning                                                  time.Duration
	provisioningIsSet                                             bool
	seedTexts                                                     []string
	seeds                                                         []uint64
}

func replayCommand(root *string) *cobra.Command {
	var options replay.Options
	var flags replayFlags
	command := &cobra.Command{
		Use:   "replay",
		Short: "Replay recorded spot capacity under several schedulers, and report cost and availability",
		Long: `Replays recorded spot capacity and replica counts on a local control plane: nodes get notice, vanish and return as
in the trace. Each arm is another way to use spot, from all on-demand to this project with its controller. Writes
report.json, and report.md with its plots. Ctrl-C keeps the partial results.

The files have the columns
  capacity  dataset,pool,offset_seconds,capacity; sorted by time for each pool; its last capacity is "end"
  prices    instance_type,allocatable_cpu_m,allocatable_memory_mib,max_pods,on_demand_usd_per_hour,spot_usd_per_hour_est
  services  service,max_replicas,cpu_cores,memory_gib
  changes   service,offset_seconds,replicas; sorted by time for each service
  pools     dataset,pool,kind,licence,source,note
Without --capacity it replays a small sample.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("compare") {
				return compareReports(flags.compare, cmd.OutOrStdout())
			}
			if cmd.Flags().Changed("results") {
				return writeResults(flags.results)
			}
			options.Root, options.Out, options.Terminal = *root, cmd.OutOrStdout(), isTerminal(cmd.OutOrStdout())
			options.Command = "spot-lab " + strings.Join(os.Args[1:], " ")
			if cmd.Flags().Changed("seed") && cmd.Flags().Changed("seeds") {
				return fmt.Errorf("--seed and --seeds: expected only one")
			}
			flags.provisioningIsSet = cmd.Flags().Changed("provisioning")
			if err := flags.complete(&options); err != nil {
				return err
			}
			if len(flags.seeds) > 0 {
				return replay.RunSeeds(cmd.Context(), options, flags.seeds)
			}
			return replay.Run(cmd.Context(), options)
		},
	}
	addInputFlags(command, &options, &flags)
	addModelFlags(command, &options, &flags)
	return command
}

func addInputFlags(command *cobra.Command, options *replay.Options, flags *replayFlags) {
	f := command.Flags()
	f.StringVar(&options.Files.Capacity, "capacity", "", "CSV file with the spot capacity of the pools (default: the sample)")
	f.StringVar(&options.Dataset, "dataset", replay.SampleDataset, "dataset in the capacity file")
	f.StringVar(&options.Files.Prices, "prices", "", "CSV file with the instance types")
	f.StringVar(&options.Files.Services, "services", "", "CSV file with the services")
	f.StringVar(&options.Files.Changes, "changes", "", "CSV file with the replica changes of the services")
	f.StringVar(&options.Files.Pools, "pools", "", "CSV file with notes about the pools, for the report")
	f.Uint64Var(&options.Settings.Seed, "seed", 1, "selects the services, the window without --from, and the reclaimed nodes")
	f.StringSliceVar(&flags.seedTexts, "seeds", nil, "replay once for each seed, such as 1,2,3, in folders of their own, and write summary.md")
	f.StringVar(&flags.from, "from", "", "begin of the window in the trace, as a duration such as 36h (default: selected by the seed)")
	f.Float64Var(&flags.hours, "hours", 24, "largest length of the window in hours; 0: to the end of the trace")
	f.StringSliceVar(&flags.arms, "arms", nil, "arms to replay (default: all): "+strings.Join(armNames(), ", "))
	f.StringVar(&options.Folder, "out", "replay-report", "output folder for report.json, report.md and its plots")
	f.StringSliceVar(&flags.compare, "compare", nil, "print the differences of two reports, FIRST,SECOND, instead of a replay")
	f.StringSliceVar(&flags.results, "results", nil,
		"write the figures of all reports in a folder into a Markdown page, FOLDER,PAGE, instead of a replay")
}

func addModelFlags(command *cobra.Command, options *replay.Options, flags *replayFlags) {
	f, s := command.Flags(), &options.Settings
	f.DurationVar(&s.Notice, "notice", 2*time.Minute, "time from the notice to the removal of a spot node; 0: none")
	f.DurationVar(&s.Startup, "startup", 5*time.Second, "time from the binding of a pod to its readiness")
	f.DurationVar(&flags.provisioning, "provisioning", 0, "time until a new node is ready (default: as --startup)")
	f.DurationVar(&s.EmptyAfter, "empty-after", 10*time.Minute, "time after which an empty on-demand node is removed")
	f.StringVar(&s.InstanceType, "instance-type", "",
		`type of all nodes in the file of prices (default: m5.xlarge, or the type of the sample)`)
	f.IntVar(&s.VMsPerNode, "vms-per-node", 1, "recorded VMs that one node represents")
	f.IntVar(&s.Services, "services-limit", 30, "largest number of services")
	f.IntVar(&s.Pods, "pods-limit", 300, "largest number of pods")
	f.Float64Var(&s.Demand, "demand", 0.8, "requests of all services as a share of the largest spot capacity")
	f.StringVar(&s.Floor, "floor", "1", "floor of every service, a count or a percentage")
	f.StringVar(&s.Budget, "budget", "50%", "minAvailable of the PodDisruptionBudget of every service, a count or a percentage")
	f.Float64Var(&options.Scales.Busy, "scale", 10, "seconds of the trace per real second during notices, start-up and moves")
	f.Float64Var(&options.Scales.Calm, "calm-scale", 60, "seconds of the trace per real second while only the calm period is awaited")
	f.StringSliceVar(&flags.controllerSettings, "controller-setting", nil,
		"setting of the controller in trace time, such as rebalance.calmPeriod=5m")
	f.StringSliceVar(&flags.schedulerSettings, "scheduler-setting", nil,
		"setting of a plugin of the scheduler in trace time, such as SpotPreference.riskHalfLife=2h")
}

func armNames() []string {
	var names []string
	for _, arm := range replay.Arms {
		names = append(names, arm.Name)
	}
	return names
}

// complete sets the options that depend on the flags.
func (f *replayFlags) complete(options *replay.Options) error {
	s := &options.Settings
	s.From = -1
	if f.from != "" {
		from, err := time.ParseDuration(f.from)
		if err != nil || from < 0 {
			return fmt.Errorf("--from: %q: expected a duration of at least 0, such as 36h", f.from)
		}
		s.From = from
	}
	if !(f.hours >= 0 && f.hours <= 24*366) {
		return fmt.Errorf("--hours: %g: must be between 0 and %d", f.hours, 24*366)
	}
	s.Length = time.Duration(f.hours * float64(time.Hour))
	if f.hours > 0 && s.Length < time.Minute {
		return fmt.Errorf("--hours: %g: must be at least a minute, or 0 for the whole trace", f.hours)
	}
	if options.Folder == "" {
		return fmt.Errorf("--out: expected a folder")
	}
	if s.Provisioning = f.provisioning; !f.provisioningIsSet {
		s.Provisioning = s.Startup
	}
	if s.InstanceType == "" {
		if s.InstanceType = "m5.xlarge"; options.Files.Capacity == "" {
			s.InstanceType = replay.SampleInstanceType
		}
	}
	for _, text := range f.seedTexts {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil || slices.Contains(f.seeds, seed) {
			return fmt.Errorf("--seeds: %q: expected different numbers of at least 0, such as 1,2,3", text)
		}
		f.seeds = append(f.seeds, seed)
	}
	options.Arms = f.arms
	var err error
	if options.ControllerSettings, err = replay.ParseOverrides("controller-setting", f.controllerSettings); err != nil {
		return err
	}
	if options.SchedulerSettings, err = replay.ParseOverrides("scheduler-setting", f.schedulerSettings); err != nil {
		return err
	}
	options.Folder, err = filepath.Abs(options.Folder)
	return err
}

// compareReports prints the differences of two reports.
func compareReports(paths []string, out io.Writer) error {
	if len(paths) != 2 {
		return fmt.Errorf("--compare: %d reports: expected FIRST,SECOND", len(paths))
	}
	var reports [2]*replay.Report
	for i, path := range paths {
		var err error
		if reports[i], err = replay.ReadReport(path); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, replay.Compare(reports[0], reports[1]))
	return err
}

// writeResults writes the figures of a folder of reports into a page.
func writeResults(paths []string) error {
	if len(paths) != 2 {
		return fmt.Errorf("--results: %q: expected FOLDER,PAGE", strings.Join(paths, ","))
	}
	return replay.WriteResults(paths[0], paths[1])
}
