// Package scheme registers the plugins' arguments with the scheduler. Importing it is enough: from then on the scheduler decodes
// them strictly, fills in their defaults (also for a plugin without a pluginConfig entry) and can write them back.
package scheme

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	schedulerv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"

	// The args of Coscheduling. They have to be registered before this package's init: the scheduler makes the second of the schemes
	// below once, when it is first asked for, of what is registered by then.
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"
)

func init() {
	// The scheduler decodes with the first scheme, and fills in defaults and converts with the second. One Go type stands for both
	// the v1 and the internal version, so that converting between them has nothing to do.
	for _, scheme := range []*runtime.Scheme{schedulerscheme.Scheme, schedulerv1.GetPluginArgConversionScheme()} {
		utilruntime.Must(config.AddToScheme(scheme))
		scheme.AddKnownTypes(schedulerconfig.SchemeGroupVersion, &config.ReplicaSafetyArgs{}, &config.SpotPreferenceArgs{})
	}
}
