// Command configreference prints docs/reference/configuration.md: every field of the configuration
// files and every flag of spot-controller and spot-extender. The fields, their values and their
// meaning are the Go types, their constants and their comments. Defaults are the values of an
// object without settings.
//
//	go run ./hack/configreference
package main

import (
	"fmt"
	"os"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/controller"
)

// kind is a kind of configuration.
type kind struct {
	// Kind is the name of the kind.
	Kind string
	// where describes where users set the fields.
	where string
	// defaults is a pointer to an object in which only defaults are set.
	defaults any
}

// kinds returns the kinds in the order of the page. The types of their fields need no entry.
func kinds() []kind {
	safety, preference := &config.ReplicaSafetyArgs{}, &config.SpotPreferenceArgs{}
	safety.SetDefaults()
	preference.SetDefaults()
	args := "Set the fields in `args` of the plugin, in `pluginConfig` of a profile, in the scheduler's file (`config/scheduler-config.yaml`). "
	return []kind{
		{"ReplicaSafetyArgs", args + "The controller and the extender read the same file.", safety},
		{"SpotPreferenceArgs", args + "Only the scheduler reads them.", preference},
		{controller.Kind, fmt.Sprintf("Set `apiVersion: %s`, `kind: %s` and the fields in the controller's file (`config/controller-config.yaml`).",
			controller.GroupVersion, controller.Kind), controller.Default()},
	}
}

// programs have the flags of the page. The scheduler has the flags of kube-scheduler.
var programs = []struct{ name, folder, about string }{
	{"spot-controller", "cmd/controller", "Its other settings are in the file of `--config`."},
	{"spot-extender", "cmd/extender", "The flags are its whole configuration. The policy is in the file of `--scheduler-config`."},
}

const head = `# Configuration reference

**In short:** all fields of the configuration files, and all flags of the controller and the extender. [Tune](../tuning.md) explains which
to change and why, and [Install](../install.md#change-the-configuration) how to apply a change.

` + "`make generate`" + ` writes this page from the Go types, so do not edit it. "none" in the column of defaults means that the field is unset.
Each program also has the flags for logs and versions that all Kubernetes components have; ` + "`--help`" + ` lists them.
`

func main() {
	page, err := newPage()
	if err != nil {
		fmt.Fprintln(os.Stderr, "configreference:", err)
		os.Exit(1)
	}
	fmt.Print(page)
}

// newPage returns the page.
func newPage() (string, error) {
	page := head
	for _, kind := range kinds() {
		section, err := kind.section()
		if err != nil {
			return "", fmt.Errorf("%s: %w", kind.Kind, err)
		}
		page += section
	}
	for _, program := range programs {
		rows, err := flags(program.folder)
		if err != nil {
			return "", fmt.Errorf("%s: %w", program.folder, err)
		}
		page += fmt.Sprintf("\n## Flags of %s\n%s\n\n%s", program.name, program.about, table("flag", rows))
	}
	return page, nil
}
