package rebalance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/migration"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/controller/rebalance"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/simulation"
)

// For half an hour a node changes every minute. The controller moves no pod whose replacement the
// scheduler or the API server would reject, as far as objects in the cluster show.
func TestNoMoveInVain(t *testing.T) {
	heal := []string{"node od on-demand", "node sp spot", "statefulset db 2 sp sp volume=a", "statefulset cache 1 od volume=a", "pod other sp"}
	saving := []string{"node od on-demand", "node sp spot", "deployment web 3 od od sp min=1"}
	limits := func(count int32) *storagev1.CSINode {
		return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "od"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "ebs.csi.aws.com", NodeID: "od", Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}}}
	}
	attached := func(volume string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: storagev1.VolumeAttachmentSpec{
			NodeName: "od", Attacher: "ebs.csi.aws.com", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
	}
	limitRange := func(item v1.LimitRangeItem) *v1.LimitRange {
		return &v1.LimitRange{ObjectMeta: clustertest.Meta("range"), Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{item}}}
	}
	cpu := func(amount string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}
	}
	mode := func(m v1.PersistentVolumeAccessMode) func(runtime.Object) {
		return func(object runtime.Object) {
			switch o := object.(type) {
			case *v1.PersistentVolume:
				o.Spec.AccessModes = []v1.PersistentVolumeAccessMode{m}
			case *v1.Pod: // uses the claim of db-0
				if o.Name == "other" {
					o.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
				}
			}
		}
	}
	against := func(app, on string) func(runtime.Object) {
		return func(object runtime.Object) {
			if pod, ok := object.(*v1.Pod); ok && pod.Name == on {
				pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
					{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: v1.LabelHostname}}}}
			}
		}
	}
	for name, test := range map[string]struct {
		lines  []string
		change func(runtime.Object)
		more   []runtime.Object
		want   string
	}{
		"heal":                           {heal, nil, nil, "evict db-0"},
		"heal: a volume can be attached": {heal, nil, []runtime.Object{limits(2)}, "evict db-0"},
		"heal: the node has its limit of attached volumes":       {heal, nil, []runtime.Object{limits(1)}, ""},
		"heal: an attached volume without a pod takes the limit": {heal, nil, []runtime.Object{limits(2), attached("of-no-pod")}, ""},
		"heal: an attached volume of a pod":                      {heal, nil, []runtime.Object{limits(2), attached("pv-cache-0")}, "evict db-0"},
		"heal: the volume of another driver": {heal, func(object runtime.Object) {
			if pv, ok := object.(*v1.PersistentVolume); ok && pv.Name == "pv-cache-0" {
				pv.Spec.CSI.Driver = "other"
			}
		}, []runtime.Object{limits(1)}, "evict db-0"},
		"heal: another pod repels it":                    {heal, against("db", "cache-0"), nil, ""},
		"heal: another pod elsewhere repels it":          {heal, against("db", "other"), nil, "evict db-0"},
		"heal: another pod repels others":                {heal, against("web", "cache-0"), nil, "evict db-0"},
		"heal: another pod repels its namespace by name": {heal, inNamespaces(against("db", "cache-0"), v1.LabelMetadataName, "shop"), nil, ""},
		"heal: another pod repels another namespace":     {heal, inNamespaces(against("db", "cache-0"), v1.LabelMetadataName, "other"), nil, "evict db-0"},
		"heal: another pod repels no namespace by both labels": {heal, func(object runtime.Object) {
			inNamespaces(against("db", "cache-0"), v1.LabelMetadataName, "other")(object)
			if pod, ok := object.(*v1.Pod); ok && pod.Spec.Affinity != nil {
				pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector.MatchLabels["team"] = "x"
			}
		}, nil, "evict db-0"},
		"heal: another pod repels unknown namespaces":         {heal, inNamespaces(against("db", "cache-0"), "team", "shop"), nil, ""},
		"heal: another pod on its node uses its volume":       {heal, mode(v1.ReadWriteOnce), nil, ""},
		"heal: another pod uses its volume, which is for one": {heal, mode(v1.ReadWriteOncePod), nil, ""},
		"heal: another pod uses its volume, which is for all": {heal, mode(v1.ReadWriteMany), nil, "evict db-0"},
		"heal: resource claims": {heal, func(object runtime.Object) {
			if pod, ok := object.(*v1.Pod); ok {
				pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
			}
		}, nil, ""},
		"heal: a LimitRange makes its successor larger": {heal, noRequests, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, DefaultRequest: cpu("2")})}, ""},
		"saving": {saving, nil, nil, "release web-0"},
		"saving: a LimitRange that changes nothing":       {saving, nil, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, DefaultRequest: cpu("8")})}, "release web-0"},
		"saving: a LimitRange makes its successor larger": {saving, noRequests, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, DefaultRequest: cpu("8")})}, ""},
		"saving: a LimitRange forbids its successor": {saving, nil, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, Default: cpu("500m"),
			Max: cpu("500m")})}, ""},
		"saving: a LimitRange forbids its ratio": {saving, nil, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, Default: cpu("5"),
			MaxLimitRequestRatio: cpu("4")})}, ""},
		"saving: a LimitRange permits its ratio, which is no binary fraction": {saving, func(object runtime.Object) {
			if rs, ok := object.(*appsv1.ReplicaSet); ok {
				rs.Spec.Template.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: cpu("300m"), Limits: cpu("900m")}
			}
		}, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, MaxLimitRequestRatio: cpu("3")})}, "release web-0"},
		"saving: a LimitRange permits its ratio": {saving, nil, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, Default: cpu("4"),
			MaxLimitRequestRatio: cpu("4")})}, "release web-0"},
		"saving: a LimitRange of pods forbids its successor":  {saving, nil, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypePod, Max: cpu("500m")})}, ""},
		"saving: a LimitRange requires more of its successor": {saving, nil, []runtime.Object{limitRange(v1.LimitRangeItem{Type: v1.LimitTypeContainer, Min: cpu("2")})}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.NewWorld(t)
			objects := clustertest.Objects(strings.Join(test.lines, "\n"))
			for _, object := range objects {
				switch o := object.(type) {
				case *v1.PersistentVolume:
					o.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: o.Name}
				case *v1.Pod:
					clustertest.Run(o.Spec.NodeName, o)
				case *appsv1.ReplicaSet:
					o.Spec.Template.Spec = clustertest.NewPod("template").Spec
				}
				if test.change != nil {
					test.change(object)
				}
			}
			w.Put(append(objects, test.more...)...)
			p := rebalance.NewPlanner(settings)
			var got []string
			for minute := range 30 {
				w.Put(clustertest.NewNode("changing", "on-demand", "m/a", "cpu=0", fmt.Sprintf("label=minute=%d", minute)))
				s := w.SnapshotAt(clustertest.Now.Add(time.Duration(minute) * time.Minute))
				for _, a := range migration.Plan(s, simulation.NewRoom(s), p.Plan(s, simulation.NewRoom(s)), migration.Settings{}, nil) {
					if a.Kind != migration.Stay && len(got) == 0 {
						got = append(got, string(a.Kind)+" "+a.Pod.Name)
					}
				}
			}
			clustertest.Equal(t, "first move", test.want, strings.Join(got, ", "))
		})
	}
}

// inNamespaces makes the anti-affinity that change adds select namespaces by a label.
func inNamespaces(change func(runtime.Object), key, value string) func(runtime.Object) {
	return func(object runtime.Object) {
		change(object)
		if pod, ok := object.(*v1.Pod); ok && pod.Spec.Affinity != nil {
			terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			terms[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		}
	}
}

// noRequests removes the requests of pods and of their templates.
func noRequests(object runtime.Object) {
	spec := &v1.PodSpec{}
	switch o := object.(type) {
	case *v1.Pod:
		spec = &o.Spec
	case *appsv1.StatefulSet:
		spec = &o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		spec = &o.Spec.Template.Spec
	}
	for i := range spec.Containers {
		spec.Containers[i].Resources = v1.ResourceRequirements{}
	}
}
