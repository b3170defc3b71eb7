package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// writeProfile writes the shipped configuration with its first profile as the one of pods that name no scheduler, as upstream's do.
func writeProfile(file, shipped string) error {
	data, err := os.ReadFile(shipped)
	if err != nil {
		return err
	}
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("%s: %w", shipped, err)
	}
	profiles, _ := config["profiles"].([]any)
	if len(profiles) == 0 {
		return fmt.Errorf("%s: profiles: expected at least one", shipped)
	}
	profiles[0].(map[string]any)["schedulerName"] = "default-scheduler"
	if data, err = yaml.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}
