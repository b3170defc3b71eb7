package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// The scheduler refuses a bad configuration before it contacts an API server. These tests run none.
func TestBadConfiguration(t *testing.T) {
	const args = "profiles[0].pluginConfig[0].args."
	for name, test := range map[string]struct {
		edits []func(map[string]any)
		want  []string // parts of the output
	}{
		"unknown field":         {edits(set("minOnDemnd", 2)), []string{`unknown field "minOnDemnd"`}},
		"unknown field in rule": {edits(set("rules", rules(map[string]any{"name": "a", "minOnDemand": 1, "namespace": "x"}))), []string{`unknown field "rules[0].namespace"`}},
		"list for a number":     {edits(set("minOnDemand", []any{1})), []string{args + "minOnDemand", "expected a count of 0 or more"}},
		"number for a duration": {edits(set("labelGrace", 30)), []string{args + "labelGrace", "30", "expected a duration"}},
		"text for a list":       {edits(set("rules", "all")), []string{"rules", "string"}},
		"negative count":        {edits(set("minOnDemand", -1)), []string{args + `minOnDemand: Invalid value: "-1"`, "expected a count of 0 or more"}},
		"more than 100%":        {edits(set("minOnDemand", "130%")), []string{args + `minOnDemand: Invalid value: "130%"`, "at most 100%"}},
		"letter O in a percent": {edits(set("minOnDemand", "3O%")), []string{args + `minOnDemand: Invalid value: "3O%"`, `a percentage such as "30%"`}},
		"no such capacity type": {edits(set("unlabeledNodes", "spot")), []string{args + "unlabeledNodes", "OnDemand", "Spot"}},
		"pool cap of 0":         {edits(set("maxPerPool", 0)), []string{args + "maxPerPool", "expected a count of 1 or more"}},
		"rule with the conditions of an earlier one": {
			edits(set("rules", rules(
				map[string]any{"name": "all-of-web", "namespaces": []any{"web"}, "minOnDemand": "50%"},
				map[string]any{"name": "critical-web", "namespaces": []any{"web"}, "minOnDemand": "100%"},
			))),
			[]string{args + `rules[1]: Invalid value: "critical-web"`, "can never match", "all-of-web"},
		},
		"SpotPreference alone": {
			edits(func(config map[string]any) {
				profile := config["profiles"].([]any)[0].(map[string]any)
				profile["plugins"] = map[string]any{"multiPoint": map[string]any{"enabled": []any{map[string]any{"name": "SpotPreference"}}}}
				profile["pluginConfig"] = nil
			}),
			[]string{"profiles[0].plugins.preFilter.enabled", "profiles[0].plugins.filter.enabled", "ReplicaSafety must be enabled"},
		},
		"all errors at once": {
			edits(set("minOnDemand", -1), set("labelGrace", "soon"), set("annotationPolicy", "Forbid"), set("maxPerPool", "3O%"),
				set("rules", rules(map[string]any{"name": "b", "minOnDemand": "200%"}, map[string]any{"name": "b", "maxPerPool": 1}))),
			[]string{args + "minOnDemand", args + "labelGrace", args + "annotationPolicy", args + "maxPerPool",
				args + "rules[0].minOnDemand", args + "rules[1].name: Duplicate value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(controlPlane.Root, "config", "scheduler-config.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			config := map[string]any{}
			if err := yaml.Unmarshal(data, &config); err != nil {
				t.Fatal(err)
			}
			for _, edit := range test.edits {
				edit(config)
			}
			if data, err = yaml.Marshal(config); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "scheduler-config.yaml")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			requireStartFailure(t, file, append(test.want, file)...)
		})
	}
	t.Run("file does not exist", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "missing.yaml")
		requireStartFailure(t, file, file, "no such file or directory")
	})
	t.Run("file cannot be read", func(t *testing.T) {
		folder := t.TempDir() // Tests may run as root, and root can read every file.
		requireStartFailure(t, folder, folder, "is a directory")
	})
	t.Run("unsupported feature gate", func(t *testing.T) {
		requireStartFailureWith(t, []string{"--feature-gates=GenericWorkload=true"}, filepath.Join(controlPlane.Root, "config", "scheduler-config.yaml"),
			"--feature-gates", "GenericWorkload=true is not supported", "expected GenericWorkload=false")
	})
}

func edits(list ...func(map[string]any)) []func(map[string]any) { return list }

func set(field string, value any) func(map[string]any) { return live.Settings{field: value}.EditSafety }

func rules(list ...any) []any { return list }

// requireStartFailure fails unless the scheduler exits with status 1 and prints all parts.
func requireStartFailure(t *testing.T, configFile string, parts ...string) {
	t.Helper()
	requireStartFailureWith(t, nil, configFile, parts...)
}

// requireStartFailureWith is requireStartFailure with additional flags.
func requireStartFailureWith(t *testing.T, flags []string, configFile string, parts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var output bytes.Buffer
	scheduler := exec.CommandContext(ctx, filepath.Join(controlPlane.Root, "bin", "spot-aware-scheduler"), append(flags, "--config="+configFile)...)
	scheduler.Stderr = &output
	err := scheduler.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("exited with %v, want exit status 1", err)
	}
	// The scheduler logs a message of one line as a quoted string.
	message := strings.ReplaceAll(output.String(), `\"`, `"`)
	for _, part := range parts {
		if !strings.Contains(message, part) {
			t.Errorf("output does not contain %q:\n%s", part, message)
		}
	}
	if strings.Contains(message, "goroutine ") {
		t.Errorf("crashed:\n%s", message)
	}
}
