package live

import (
	"maps"
	"strings"
)

// Settings are fields of a configuration, by path. All other fields have their shipped values.
type Settings map[string]any

// Edit sets the fields in a decoded configuration; a nil value removes the field.
func (f Settings) Edit(config map[string]any) {
	for path, value := range f {
		parent, names := config, strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			inner, ok := parent[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				parent[name] = inner
			}
			parent = inner
		}
		if last := names[len(names)-1]; value == nil {
			delete(parent, last)
		} else {
			parent[last] = value
		}
	}
}

// EditSafety sets the fields in the ReplicaSafetyArgs of a scheduler's configuration.
func (f Settings) EditSafety(config map[string]any) {
	for _, plugin := range config["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any) {
		if plugin := plugin.(map[string]any); plugin["name"] == "ReplicaSafety" {
			f.Edit(plugin["args"].(map[string]any))
		}
	}
}

// With returns these settings, overridden by others.
func (f Settings) With(others Settings) Settings {
	all := Settings{}
	maps.Copy(all, f)
	maps.Copy(all, others)
	return all
}
