package replay

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
)

// decoded returns a shipped configuration.
func decoded(t *testing.T, file string) map[string]any {
	t.Helper()
	data, err := os.ReadFile("../../../config/" + file)
	must(t, err)
	var config map[string]any
	must(t, yaml.Unmarshal(data, &config))
	return config
}

// TestScaledController checks that the controller accepts the scaled configuration, and that every
// time of the shipped file is scaled or exempt.
func TestScaledController(t *testing.T) {
	for _, scales := range []Scales{{Busy: 1, Calm: 1}, {Busy: 10, Calm: 300}, {Busy: 1000, Calm: 100000}} {
		config := decoded(t, "controller-config.yaml")
		if got := fmt.Sprint(config["requestsPerSecond"]); got != fmt.Sprint(requestRate) {
			t.Fatalf("the shipped requestsPerSecond is %s, want %d", got, requestRate)
		}
		changed := editController(config, Overrides{"rebalance.calmPeriod": "5m", "rebalance.maxMoves": "20"}, scales)
		data, err := yaml.Marshal(config)
		must(t, err)
		settings, err := controller.Read(data)
		if err != nil {
			t.Fatalf("%+v: %v", scales, err)
		}
		if got, want := settings.Rebalance.CalmPeriod.Duration, scales.realWait(5*time.Minute).Round(time.Millisecond); got != want {
			t.Errorf("%+v: calm period %s, want %s", scales, got, want)
		}
		if got, want := settings.RequestsPerSecond, int32(requestRate*scales.Busy); got != want {
			t.Errorf("%+v: %d requests per second, want %d", scales, got, want)
		}
		if settings.Rebalance.MaxMoves != 20 {
			t.Errorf("maxMoves %d, want 20", settings.Rebalance.MaxMoves)
		}
		for _, want := range []ScaledSetting{
			{"rebalance.calmPeriod", "5m", scales.realWait(5 * time.Minute).Round(time.Millisecond).String()}, {"rebalance.maxMoves", "20", "20"},
			{"migration.surgeTimeout", "2m", max(5*time.Second, realTime(2*time.Minute, scales.Busy)).String()},
		} {
			if !slices.Contains(changed, want) {
				t.Errorf("%+v: the report does not list %+v in %+v", scales, want, changed)
			}
		}
	}
	exempt := map[string]bool{"leaderElection.leaseDuration": true, "interruption.notReadyAfter": true}
	for _, s := range controllerTimes {
		exempt[s.path] = true
	}
	config := decoded(t, "controller-config.yaml")
	for section, object := range config {
		settings, _ := object.(map[string]any)
		for key, value := range settings {
			text, _ := value.(string)
			if _, err := time.ParseDuration(text); err == nil && !exempt[section+"."+key] {
				t.Errorf("%s.%s: %s is neither scaled nor exempt", section, key, text)
			}
		}
	}
}

func TestScaledScheduler(t *testing.T) {
	config := decoded(t, "scheduler-config.yaml")
	editScheduler(config, Overrides{"SpotPreference.riskHalfLife": "2h", "NodeResourcesFit.x": "y"}, Scales{Busy: 10, Calm: 200})
	if config["podMaxBackoffSeconds"] != podBackoff {
		t.Errorf("podMaxBackoffSeconds %v", config["podMaxBackoffSeconds"])
	}
	got := map[string]any{}
	for _, plugin := range config["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any) {
		plugin := plugin.(map[string]any)
		for key, value := range plugin["args"].(map[string]any) {
			got[plugin["name"].(string)+"."+key] = value
		}
	}
	for path, want := range map[string]any{
		"ReplicaSafety.fallbackAfter": "30s", "ReplicaSafety.rolloutRelief": "3s", "SpotPreference.riskHalfLife": "36s",
		"ReplicaSafety.gateTimeout": "30s", "NodeResourcesFit.x": "y",
	} {
		if got[path] != want {
			t.Errorf("%s is %v, want %v in %v", path, got[path], want, slices.Sorted(maps.Keys(got)))
		}
	}
	never := decoded(t, "scheduler-config.yaml")
	changed := editScheduler(never, Overrides{"ReplicaSafety.fallbackAfter": "never"}, Scales{Busy: 10, Calm: 10})
	if changed[0] != (ScaledSetting{"ReplicaSafety.fallbackAfter", "never", "never"}) {
		t.Errorf("never becomes %+v", changed[0])
	}
}

func TestOverrides(t *testing.T) {
	for _, argument := range []string{"calmPeriod=1m", "rebalance.calmPeriod", ""} {
		if _, err := ParseOverrides("controller-setting", []string{argument}); err == nil {
			t.Errorf("%q: no error", argument)
		}
	}
	for _, scales := range []Scales{{Busy: 0, Calm: 300}, {Busy: 10, Calm: 5}, {Busy: 2000, Calm: 3000}} {
		if scales.validate() == nil {
			t.Errorf("%+v: no error", scales)
		}
	}
}

// TestRealWait: a wait takes quietReaction at the busy rate, and the rest at the calm rate.
func TestRealWait(t *testing.T) {
	for name, test := range map[string]struct {
		scales     Scales
		wait, want time.Duration
	}{
		"calm rate":           {Scales{Busy: 10, Calm: 290}, 10 * time.Minute, 4 * time.Second},
		"one rate":            {Scales{Busy: 10, Calm: 10}, 10 * time.Minute, time.Minute},
		"within the reaction": {Scales{Busy: 10, Calm: 300}, 10 * time.Second, time.Second},
	} {
		if got := test.scales.realWait(test.wait); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
