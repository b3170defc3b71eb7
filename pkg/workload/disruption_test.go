package workload

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMayDisrupt(t *testing.T) {
	const karpenter, autoscaler = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict"
	started := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: testNow.Add(-ago)} }
	for name, test := range map[string]struct {
		key, value string
		start      *metav1.Time
		want       bool
	}{
		"none":                              {"", "", started(time.Minute), true},
		"Karpenter":                         {karpenter, "true", started(time.Hour), false},
		"Karpenter, false":                  {karpenter, "false", started(time.Minute), true},
		"Karpenter, duration has not ended": {karpenter, "1h30m", started(90*time.Minute - 1), false},
		"Karpenter, duration has ended":     {karpenter, "1h30m", started(90 * time.Minute), true},
		"Karpenter, not started yet":        {karpenter, "5m", nil, false},
		"Karpenter, a number":               {karpenter, "300", nil, true},
		"Karpenter, negative duration":      {karpenter, "-5m", nil, true},
		"Karpenter, zero duration":          {karpenter, "0s", nil, true},
		"Karpenter, does not parse":         {karpenter, "5 minutes", nil, true},
		"Karpenter, another case":           {karpenter, "True", nil, true},
		"cluster autoscaler":                {autoscaler, "false", started(time.Hour), false},
		"cluster autoscaler, true":          {autoscaler, "true", started(time.Hour), true},
		"cluster autoscaler, a duration":    {autoscaler, "5m", started(time.Minute), true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Status: v1.PodStatus{StartTime: test.start}}
			if test.key != "" {
				pod.Annotations = map[string]string{test.key: test.value}
			}
			if got := MayDisrupt(pod, testNow); got != test.want {
				t.Errorf("MayDisrupt = %v, want %v", got, test.want)
			}
		})
	}
}

func TestLosesLocalData(t *testing.T) {
	var (
		hostPath = v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}}
		emptyDir = v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
		memory   = v1.Volume{Name: "shm", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}
		pages    = v1.Volume{Name: "pages", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}}}
		claim    = v1.Volume{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
		token    = v1.Volume{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}}
	)
	const safe, volumes = "cluster-autoscaler.kubernetes.io/safe-to-evict", "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
	for name, test := range map[string]struct {
		key, value string
		volumes    []v1.Volume
		want       bool
	}{
		"no volumes":         {"", "", nil, false},
		"hostPath":           {"", "", []v1.Volume{token, hostPath}, true},
		"emptyDir":           {"", "", []v1.Volume{emptyDir}, true},
		"huge pages":         {"", "", []v1.Volume{pages}, true},
		"no local data":      {"", "", []v1.Volume{memory, claim, token}, false},
		"safe":               {safe, "true", []v1.Volume{hostPath, emptyDir}, false},
		"not safe":           {safe, "false", []v1.Volume{hostPath}, true},
		"safe, misspelled":   {safe, "True", []v1.Volume{hostPath}, true},
		"all named":          {volumes, "scratch,host", []v1.Volume{hostPath, emptyDir, memory}, false},
		"one named":          {volumes, "scratch", []v1.Volume{hostPath, emptyDir}, true},
		"others named":       {volumes, "scratches,", []v1.Volume{emptyDir}, true},
		"named with a space": {volumes, "host, scratch", []v1.Volume{hostPath, emptyDir}, true}, // as in the cluster autoscaler
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Volumes: test.volumes}}
			if test.key != "" {
				pod.Annotations = map[string]string{test.key: test.value}
			}
			if got := LosesLocalData(pod); got != test.want {
				t.Errorf("LosesLocalData = %v, want %v", got, test.want)
			}
		})
	}
}
