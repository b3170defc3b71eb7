package round

import (
	"slices"
	"testing"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
)

// The reasons for which autoscalers add nodes follow from the settings of the autoscaler mode.
func TestProvisioningSettings(t *testing.T) {
	heal := []migration.Reason{migration.Heal, migration.Assign, migration.Drain, migration.Requested}
	all := append(slices.Clone(heal), migration.ReturnToSpot)
	for name, test := range map[string]struct {
		settings     string
		provisioning []migration.Reason
	}{
		"off":                  {"gating: {enabled: false, provisionForReturn: true, healRunning: true}", nil},
		"on":                   {"gating: {enabled: true}", all},
		"no label for spot":    {`gating: {enabled: true, spotLabel: ""}`, heal},
		"not for return":       {"gating: {enabled: true, provisionForReturn: false}", heal},
		"not for running pods": {"gating: {enabled: true, healRunning: false}", all},
		"no heal":              {"gating: {enabled: true}\nrebalance: {heal: false}", all},
	} {
		t.Run(name, func(t *testing.T) {
			const head = "apiVersion: spot-aware-scheduler.io/v1beta1\nkind: SpotControllerConfiguration\n"
			settings, err := controller.Read([]byte(head + test.settings))
			if err != nil {
				t.Fatal(err)
			}
			config := Config{SpotControllerConfiguration: settings}
			moves := config.migrationSettings(true)
			clustertest.Equal(t, "reasons to provision for", test.provisioning, moves.ProvisionFor)
			if ungated := config.migrationSettings(false); ungated.ProvisionFor != nil {
				t.Errorf("without the admission policy autoscalers add nodes for %v", ungated.ProvisionFor)
			}
			if moves.NodeStartup != 3*time.Minute {
				t.Errorf("a node starts within %s, want the default of 3m", moves.NodeStartup)
			}
		})
	}
}
