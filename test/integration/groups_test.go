package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/lab"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/test/live"
)

// TestPlacementGroups: pods whose controller has several templates, or groups of pods as replicas.
// kubectl spot status reports what a loss of all spot nodes then leaves, or that it is unknown.
func TestPlacementGroups(t *testing.T) {
	s := start(t, slices.Concat(live.OnDemand(3, 30), live.Spot(3, 30)))
	s.virtualCluster()
	s.webLogic()
	s.leaderWorkerSet()
	s.jobSet("train", nil)
	s.jobSet("tune", map[string]string{minOnDemand: "100%"})
	for _, app := range []string{"red", "green", "blue"} { // nothing shows which pods are equal
		s.pod(app, "mixed-"+app, func(pod *v1.Pod) { pod.OwnerReferences = []metav1.OwnerReference{unknownKind("Mixed")} })
	}
	want := map[string]split{
		"database": {OnDemand: 1}, "web": {OnDemand: 1, Spot: 2}, "worker": {OnDemand: 2, Spot: 4},
		"admin": {OnDemand: 1}, "managed": {OnDemand: 1, Spot: 2},
		"lws": {OnDemand: 1, Spot: 3}, "lws-0": {OnDemand: 2}, "lws-1": {Spot: 2}, "lws-2": {Spot: 2}, "lws-3": {Spot: 2},
		"train": {Spot: 4}, "tune": {OnDemand: 4}, "red": {OnDemand: 1}, "green": {OnDemand: 1}, "blue": {OnDemand: 1},
	}
	s.Eventually(soon, s.HaveSplits(want))
	for i := range 4 {
		s.Must(s.ordinalsAre("lws", 0, lab.OnDemand, lab.Spot, lab.Spot, lab.Spot)())
		workers := []string{lab.Spot, lab.Spot}
		if i == 0 {
			workers = []string{lab.OnDemand, lab.OnDemand}
		}
		s.Must(s.ordinalsAre(fmt.Sprint("lws-", i), 1, workers...)())
	}
	var status struct {
		Items []struct {
			Kind, Name, Role, State string
			Floor, WithoutSpot      int
		}
	}
	config := filepath.Join(controlPlane.Root, "config", "scheduler-config.yaml")
	s.Must(json.Unmarshal([]byte(s.KubectlSpot("status", "-n", s.Namespace, "-o", "json", "--scheduler-config", config)), &status))
	got := map[string]string{}
	for _, w := range status.Items {
		got[strings.TrimSpace(w.Kind+" "+w.Name+" "+w.Role)] = fmt.Sprintf("%s, floor %d, %d without spot", w.State, w.Floor, w.WithoutSpot)
	}
	if diff := cmp.Diff(map[string]string{
		"Service vc database, default, c, app":                  "OK, floor 1, 1 without spot",
		"Service vc default, web, c, app":                       "OK, floor 1, 1 without spot",
		`Service vc default, worker, c, app, min-on-demand="2"`: "OK, floor 2, 2 without spot",
		"Domain unknown":              "OK, floor 1, 1 without spot",
		"Domain unknown c1":           "OK, floor 1, 1 without spot",
		"StatefulSet lws":             "OK, floor 1, 1 without spot",
		"StatefulSet lws-0":           "OK, floor 2, 2 without spot",
		"StatefulSet lws-1":           "OK, floor 0, 0 without spot",
		"StatefulSet lws-2":           "OK, floor 0, 0 without spot",
		"StatefulSet lws-3":           "OK, floor 0, 0 without spot",
		"Job train-leader-0":          "Unknown, floor 0, 0 without spot",
		"Job train-workers-0":         "Unknown, floor 0, 0 without spot",
		"Job tune-leader-0":           "OK, floor 1, 1 without spot",
		"Job tune-workers-0":          "OK, floor 3, 3 without spot",
		"Mixed unknown red, c, app":   "Unknown, floor 1, 1 without spot",
		"Mixed unknown green, c, app": "Unknown, floor 1, 1 without spot",
		"Mixed unknown blue, c, app":  "Unknown, floor 1, 1 without spot",
	}, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	s.Must(s.Scheduler.Stop()) // no lost pod returns
	s.LoseNodes("spot-1", "spot-2", "spot-3")
	left, err := s.Splits()
	s.Must(err)
	for app, split := range want {
		if left[app].OnDemand != split.OnDemand || left[app].Spot > 0 {
			t.Errorf("%s: %+v after the loss of all spot nodes, want %d pods on on-demand", app, left[app], split.OnDemand)
		}
	}
}

// virtualCluster creates the copies of three workloads in a vcluster. Their Service controls all.
func (s *scenario) virtualCluster() {
	s.Helper()
	service, err := client.CoreV1().Services(s.Namespace).Create(s.Ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "vc"}, Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	s.Must(err)
	for app, n := range map[string]int{"worker": 6, "database": 1, "web": 3} {
		for i := range n {
			s.pod(app, fmt.Sprintf("%s-%d-x-default-x-vc", app, i), func(pod *v1.Pod) {
				pod.Labels["vcluster.loft.sh/namespace"], pod.Labels["name"] = "default", fmt.Sprintf("%s-%d", app, i)
				if app == "worker" {
					pod.Annotations = map[string]string{minOnDemand: "2"}
				}
				pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(service, v1.SchemeGroupVersion.WithKind("Service"))}
			})
		}
	}
}

// webLogic creates the admin server and the managed servers of a domain.
func (s *scenario) webLogic() {
	s.Helper()
	domain := ownerOf("weblogic.oracle/v9", "Domain")
	s.pod("admin", "domain-admin", func(pod *v1.Pod) { pod.OwnerReferences = domain })
	for i := range 3 {
		s.pod("managed", fmt.Sprint("domain-managed", i), func(pod *v1.Pod) {
			pod.Labels["weblogic.clusterName"], pod.Labels["weblogic.serverName"] = "c1", fmt.Sprint("managed", i)
			pod.OwnerReferences = domain
		})
	}
}

// leaderWorkerSet creates four groups of a leader and two workers, with a floor of one group.
func (s *scenario) leaderWorkerSet() {
	s.Helper()
	s.statefulSet("lws", 4, func(set *appsv1.StatefulSet) { set.Annotations[minOnDemand] = "25%" })
	for i := range 4 {
		var leader *v1.Pod
		s.Eventually(soon, func() (err error) {
			leader, err = client.CoreV1().Pods(s.Namespace).Get(s.Ctx, fmt.Sprint("lws-", i), metav1.GetOptions{})
			return err
		})
		s.statefulSet(leader.Name, 2, func(set *appsv1.StatefulSet) {
			set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
			set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(leader, v1.SchemeGroupVersion.WithKind("Pod"))}
		})
	}
}

// jobSet creates the Jobs of a JobSet with a leader and three workers, which Kubernetes does not
// retry.
func (s *scenario) jobSet(name string, annotations map[string]string) {
	s.Helper()
	for role, pods := range map[string]int32{"leader": 1, "workers": 3} {
		template := live.PodTemplate(name)
		template.Spec.RestartPolicy = v1.RestartPolicyNever
		template.Annotations = map[string]string{lab.RunTimeAnnotation: "1h"}
		template.Labels["jobset.sigs.k8s.io/replicatedjob-name"] = role
		_, err := client.BatchV1().Jobs(s.Namespace).Create(s.Ctx, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role + "-0", Annotations: annotations, OwnerReferences: ownerOf("jobset.x-k8s.io/v1alpha2", "JobSet")},
			Spec:       batchv1.JobSpec{Parallelism: &pods, Completions: &pods, BackoffLimit: new(int32(0)), Template: template},
		}, metav1.CreateOptions{})
		s.Must(err)
	}
}

// ownerOf returns a controller of a kind that the API server does not know; see unknownKind.
func ownerOf(version, kind string) []metav1.OwnerReference {
	owner := unknownKind(kind)
	owner.APIVersion = version
	return []metav1.OwnerReference{owner}
}
