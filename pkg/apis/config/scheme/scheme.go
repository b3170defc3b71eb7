// Package scheme registers the plugins' arguments with the scheduler when it is imported. The
// scheduler then decodes them strictly, sets their defaults (also for a plugin without a
// pluginConfig entry) and can encode them.
package scheme

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	schedulerv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"

	// Registers the args of Coscheduling. This must happen before the init function of this package
	// runs: the scheduler builds the second scheme below on first use, from the types registered
	// then.
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"
)

func init() {
	// The scheduler decodes with the first scheme, and sets defaults and converts with the second.
	// The same Go type serves as the v1 and as the internal version, so no conversion is needed.
	for _, scheme := range []*runtime.Scheme{schedulerscheme.Scheme, schedulerv1.GetPluginArgConversionScheme()} {
		utilruntime.Must(config.AddToScheme(scheme))
		scheme.AddKnownTypes(schedulerconfig.SchemeGroupVersion, &config.ReplicaSafetyArgs{}, &config.SpotPreferenceArgs{})
	}
}
