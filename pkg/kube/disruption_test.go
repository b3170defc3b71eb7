package kube

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMayDisrupt(t *testing.T) {
	const karpenter, autoscaler = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict"
	started := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }
	for name, test := range map[string]struct {
		key, value string
		start      *metav1.Time
		want       bool
	}{
		"none":                         {"", "", started(time.Minute), true},
		"Karpenter":                    {karpenter, "true", started(time.Hour), false},
		"Karpenter, not":               {karpenter, "false", started(time.Minute), true},
		"Karpenter, for longer":        {karpenter, "1h30m", started(90*time.Minute - 1), false},
		"Karpenter, for so long":       {karpenter, "1h30m", started(90 * time.Minute), true},
		"Karpenter, not started yet":   {karpenter, "5m", nil, false},
		"Karpenter, a number":          {karpenter, "300", nil, true},
		"Karpenter, a negative time":   {karpenter, "-5m", nil, true},
		"Karpenter, no time":           {karpenter, "0s", nil, true},
		"Karpenter, does not parse":    {karpenter, "5 minutes", nil, true},
		"Karpenter, another case":      {karpenter, "True", nil, true},
		"cluster autoscaler":           {autoscaler, "false", started(time.Hour), false},
		"cluster autoscaler, not":      {autoscaler, "true", started(time.Hour), true},
		"cluster autoscaler, for long": {autoscaler, "5m", started(time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Status: v1.PodStatus{StartTime: test.start}}
			if test.key != "" {
				pod.Annotations = map[string]string{test.key: test.value}
			}
			if got := MayDisrupt(pod, now); got != test.want {
				t.Errorf("MayDisrupt = %v, want %v", got, test.want)
			}
		})
	}
}
