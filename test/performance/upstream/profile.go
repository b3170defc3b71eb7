package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/plugins/replicasafety"
)

// writeProfile writes the shipped configuration. Its first profile applies to pods that name no
// scheduler, like the upstream pods. Its labelGrace is 0s, as the file recommends for clusters
// whose nodes have no capacity label, like upstream's.
func writeProfile(file, shipped string) error {
	data, err := os.ReadFile(shipped)
	if err != nil {
		return err
	}
	var config, first map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("%s: %w", shipped, err)
	}
	if profiles, _ := config["profiles"].([]any); len(profiles) > 0 {
		first, _ = profiles[0].(map[string]any)
	}
	if first == nil {
		return fmt.Errorf("%s: profiles: expected a profile", shipped)
	}
	first["schedulerName"] = "default-scheduler"
	for _, each := range first["pluginConfig"].([]any) {
		if plugin := each.(map[string]any); plugin["name"] == replicasafety.Name {
			plugin["args"].(map[string]any)["labelGrace"] = "0s"
		}
	}
	if data, err = yaml.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
