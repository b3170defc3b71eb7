package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/app"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/pricing"
)

const (
	shipped          = "../../config/controller-config.yaml"
	shippedScheduler = "../../config/scheduler-config.yaml"
)

func TestMain(m *testing.M) {
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged // a process has one command line, but not this one
	os.Exit(m.Run())
}

func fileWith(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Wrong usage and invalid files have different exit codes. Both are reported before any request to
// the API server.
func TestExitStatus(t *testing.T) {
	both := []string{"--config=" + shipped, "--scheduler-config=" + shippedScheduler}
	and := func(more string) []string { return append(slices.Clone(both), more) }
	bad := fileWith(t, "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\nconcurrency: 0\n")
	for name, test := range map[string]struct {
		args []string
		want int
	}{
		"help":                           {[]string{"--help"}, 0},
		"no file":                        {nil, app.ExitUsage},
		"no scheduler's file":            {[]string{"--config=" + shipped}, app.ExitUsage},
		"no file but the scheduler's":    {[]string{"--scheduler-config=" + shippedScheduler}, app.ExitUsage},
		"an unknown flag":                {[]string{"--config=" + shipped, "--dryrun"}, app.ExitUsage},
		"an argument":                    {and("now"), app.ExitUsage},
		"an unknown format of logs":      {and("--logging-format=xml"), app.ExitUsage},
		"a file that is not there":       {[]string{"--config=nowhere", "--scheduler-config=" + shippedScheduler}, app.ExitFailed},
		"a bad value":                    {[]string{"--config=" + bad, "--scheduler-config=" + shippedScheduler}, app.ExitFailed},
		"a profile that is not there":    {and("--profile=other"), app.ExitFailed},
		"a kubeconfig that is not there": {and("--kubeconfig=nowhere"), app.ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if got := newCommand().Execute(t.Context(), test.args, &stderr); got != test.want {
				t.Errorf("exit status %d, want %d\n%s", got, test.want, stderr.String())
			}
		})
	}
}

// The errors in both files are reported together, each with its path.
func TestReadFiles(t *testing.T) {
	head := "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"
	badPolicy := strings.Replace(read(t, shippedScheduler), "minOnDemand: 1\n", "minOnDemand: 130%\n", 1)
	for name, test := range map[string]struct {
		config, scheduler string
		want              []string // in the error
	}{
		"as shipped": {read(t, shipped), read(t, shippedScheduler), nil},
		"two errors in one and one in the other": {head + "dryRun: perhaps\nrebalance: {maxMoves: 0}\n", badPolicy, []string{
			`dryRun: Invalid value: "perhaps": expected true or false`,
			`rebalance.maxMoves: Invalid value: 0: expected a whole number of 1 or more`,
			`profiles[0].pluginConfig[0].args.minOnDemand: Invalid value: "130%"`,
		}},
		"labels without a capacity type": {
			head + "gating: {enabled: true, labels: [karpenter.sh/capacity-type, scheduling.cast.ai/spot], spotLabel: a.example/b}\n", read(t, shippedScheduler), []string{
				`gating.labels[1]: Invalid value: "scheduling.cast.ai/spot": expected a capacity label`,
				`gating.spotLabel: Invalid value: "a.example/b": expected a capacity label`,
			},
		},
		"labels without gating": {head + "gating: {labels: [a.example/b]}\n", read(t, shippedScheduler), nil},
		"unknown fields": {head + "dryrun: true\ninterruption: {advisory: {limit: 1h}}\n", read(t, shippedScheduler), []string{
			`unknown field "dryrun"`, `unknown field "interruption.advisory.limit"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{
				PolicyFlags: app.PolicyFlags{SchedulerConfigFile: fileWith(t, test.scheduler), Profile: "spot-aware-scheduler"},
				configFile:  fileWith(t, test.config),
			}
			_, err := o.read()
			if (err != nil) != (test.want != nil) {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nis without %s", err, want)
				}
			}
		})
	}
}

func TestDryRun(t *testing.T) {
	on := fileWith(t, "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\ndryRun: true\n")
	for name, test := range map[string]struct {
		file string
		flag bool
		want bool
	}{
		"neither": {shipped, false, false}, "flag": {shipped, true, true}, "file": {on, false, true}, "both": {on, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{configFile: test.file, PolicyFlags: app.PolicyFlags{SchedulerConfigFile: shippedScheduler, Profile: "spot-aware-scheduler"}, dryRun: test.flag}
			setup, err := o.read()
			if err != nil {
				t.Fatal(err)
			}
			if setup.DryRun != test.want {
				t.Errorf("dry run: %t, want %t", setup.DryRun, test.want)
			}
		})
	}
}

// The path of the price list is relative to the configuration file. Errors in the list are
// reported at start, with the field, the file, the row and the value.
func TestPriceFile(t *testing.T) {
	const head = "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"
	for name, test := range map[string]struct {
		setting, prices string
		want            string // part of the error; empty for no error
	}{
		"none":         {"", "", ""},
		"empty":        {`costs: {priceFile: ""}`, "", ""},
		"YAML":         {"costs: {priceFile: prices.yaml}", "- {instanceType: m, onDemand: 1}\n", ""},
		"other file":   {"costs: {priceFile: prices}", "", `costs.priceFile: Invalid value: "prices": expected the path of a file that ends in .csv, .yaml or .yml, or ""`},
		"missing file": {"costs: {priceFile: other.yaml}", "", "costs.priceFile: price list: open"},
		"bad row": {
			"costs: {priceFile: prices.yaml}", "- {instanceType: m, onDemand: 1}\n- {instanceType: n, onDemand: -1}\n",
			`row 2: onDemand: invalid value "-1": expected US dollars per hour, 0 or more`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := fileWith(t, head+test.setting)
			if err := os.WriteFile(filepath.Join(filepath.Dir(config), "prices.yaml"), []byte(test.prices), 0o600); err != nil {
				t.Fatal(err)
			}
			o := options{configFile: config, PolicyFlags: app.PolicyFlags{SchedulerConfigFile: shippedScheduler, Profile: "spot-aware-scheduler"}}
			setup, err := o.read()
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), config) || !strings.Contains(err.Error(), "costs.priceFile: ") {
					t.Errorf("%v, want an error about costs.priceFile of %s with %q", err, config, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if builtIn := setup.prices.From == pricing.BuiltIn().From; builtIn != (test.prices == "") {
				t.Errorf("prices from %q", setup.prices.From)
			}
		})
	}
}
