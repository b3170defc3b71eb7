package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

// ReadPolicy returns the same policy as the scheduler's decoder.
func TestReadPolicy(t *testing.T) {
	allowUnexported := cmp.AllowUnexported(decision.Overrides{}, decision.Quantity{})
	for name, args := range map[string]string{
		"no pluginConfig": "", "no arguments": "null", "everything": everyReplicaSafetyArg, "one": "minOnDemand: 30%",
	} {
		t.Run(name, func(t *testing.T) {
			policy, signals, err := config.ReadPolicy([]byte(file(replicaSafety, args)), "spot-aware-scheduler")
			if err != nil {
				t.Fatal(err)
			}
			wantPolicy, wantSignals, err := decodeArgs(t, replicaSafety, args).(*config.ReplicaSafetyArgs).Policy()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantPolicy, policy, allowUnexported, cmpopts.IgnoreFields(decision.Rule{}, "PodSelector")); diff != "" {
				t.Errorf("policy (-scheduler's +read):\n%s", diff)
			}
			if diff := cmp.Diff(wantSignals, signals); diff != "" {
				t.Errorf("signals (-scheduler's +read):\n%s", diff)
			}
		})
	}
}

func TestReadPolicyShipped(t *testing.T) {
	for _, name := range []string{"scheduler-config.yaml", "gang.yaml"} {
		data, err := os.ReadFile("../../../config/" + name)
		if err != nil {
			t.Fatal(err)
		}
		policy, signals, err := config.ReadPolicy(data, config.DefaultProfile)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		defaults, builtin, err := (&config.ReplicaSafetyArgs{}).Policy()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(defaults, policy, cmp.Comparer(func(a, b decision.Quantity) bool { return a == b })); diff != "" {
			t.Errorf("%s: policy (-defaults +file):\n%s", name, diff)
		}
		if diff := cmp.Diff(builtin, signals); diff != "" {
			t.Errorf("%s: signals (-builtin +file):\n%s", name, diff)
		}
	}
}

// Selection of the profile, and errors that prevent reading it.
func TestReadPolicyOf(t *testing.T) {
	profile := func(name, minOnDemand string) string {
		return fmt.Sprintf(`
- {schedulerName: %s, plugins: {filter: {enabled: [{name: ReplicaSafety}]}}, pluginConfig: [{name: ReplicaSafety, args: {minOnDemand: %s}}]}`,
			name, minOnDemand)
	}
	for name, test := range map[string]struct {
		profiles string
		want     decision.Quantity
		wantErr  string // substring of the error
	}{
		"first profile with the name":       {profile("a", "1") + profile("b", "2") + profile("b", "3"), decision.Count(2), ""},
		"an error in another profile":       {profile("a", "130%") + profile("b", "2"), decision.Count(2), ""},
		"an error":                          {profile("a", "1") + profile("b", "130%"), decision.Quantity{}, `profiles[1].pluginConfig[0].args.minOnDemand: Invalid value: "130%"`},
		"an unknown field":                  {strings.Replace(profile("b", "1"), "minOnDemand", "minDemand", 1), decision.Quantity{}, `unknown field "minDemand"; expected each field of docs/reference/configuration.md`},
		"no profile with the name":          {profile("a", "1") + profile("c", "1"), decision.Quantity{}, `profiles: Invalid value: "a, c": expected a profile whose schedulerName is "b"`},
		"no profile":                        {" []", decision.Quantity{}, `expected a profile whose schedulerName is "b"`},
		"a profile without the plugin":      {"\n- {schedulerName: b}", decision.Quantity{}, "profiles[0].plugins.multiPoint.enabled: Required value"},
		"arguments of a third-party plugin": {profile("b", "2") + "\n- {schedulerName: x, pluginConfig: [{name: Other, args: {any: thing}}]}", decision.Count(2), ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:" + test.profiles
			policy, _, err := config.ReadPolicy([]byte(text), "b")
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("ReadPolicy: %v, want an error with %s", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if policy.Defaults.MinOnDemand != test.want {
				t.Errorf("minOnDemand %s, want %s", policy.Defaults.MinOnDemand, test.want)
			}
		})
	}
}

func TestReadPolicyOfAnotherKind(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string // in the error
	}{
		"arguments alone":     {"apiVersion: kubescheduler.config.k8s.io/v1\nkind: ReplicaSafetyArgs\n", []string{"kind", "expected KubeSchedulerConfiguration"}},
		"something else":      {"apiVersion: v1\nkind: ConfigMap\n", []string{`"ConfigMap"`, "expected apiVersion kubescheduler.config.k8s.io/v1"}},
		"nothing":             {"", nil},
		"an unknown field":    {"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofile: []\n", []string{`unknown field "profile"`, "docs/upgrading.md"}},
		"another API version": {"apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n", []string{"v1beta3", "expected apiVersion kubescheduler.config.k8s.io/v1 "}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := config.ReadPolicy([]byte(test.text), "spot-aware-scheduler")
			if err == nil {
				t.Fatal("ReadPolicy: no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("ReadPolicy: %v, want an error with %q", err, want)
				}
			}
		})
	}
}

// A second document, which the decoder ignores, is an error.
func TestSecondDocument(t *testing.T) {
	const text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	if _, _, err := config.ReadPolicy([]byte(text+"---\n"+text), config.DefaultProfile); err == nil || !strings.Contains(err.Error(), "one YAML document") {
		t.Errorf("error %v, want one that names the problem", err)
	}
}
