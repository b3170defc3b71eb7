package workload_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/workload"
)

// The label of a pod has priority over that of its namespace, and the name of our scheduler over
// both.
func TestScope(t *testing.T) {
	const none = ""
	for name, test := range map[string]struct {
		namespace, namespaceLabel, podLabel, scheduler string
		includes, keeps, ignored                       bool
	}{
		"nothing":                                {"shop", none, none, "default-scheduler", false, false, false},
		"namespace":                              {"shop", "keep-scheduler", none, "default-scheduler", true, true, false},
		"namespace, a scheduler of others":       {"shop", "keep-scheduler", none, "volcano", true, true, false},
		"namespace, our scheduler":               {"shop", "keep-scheduler", none, "spot-aware-scheduler", true, false, false},
		"namespace, the pod opts out":            {"shop", "keep-scheduler", "false", "default-scheduler", false, false, false},
		"namespace, an unknown value of the pod": {"shop", "keep-scheduler", "yes", "default-scheduler", true, true, true},
		"namespace, true of the pod":             {"shop", "keep-scheduler", "true", "default-scheduler", true, true, true},
		"namespace with our scheduler":           {"shop", "true", none, "default-scheduler", false, false, false},
		"pod":                                    {"shop", none, "keep-scheduler", "default-scheduler", true, true, false},
		"pod, namespace with our scheduler":      {"shop", "true", "keep-scheduler", "default-scheduler", true, true, false},
		"pod, namespace opts out":                {"shop", "false", "keep-scheduler", "default-scheduler", true, true, false},
		"true of the pod alone":                  {"shop", none, "true", "default-scheduler", false, false, true},
		"pod opts out, but names our scheduler":  {"shop", none, "false", "spot-aware-scheduler", true, false, true},
		"pod in kube-system":                     {"kube-system", "keep-scheduler", "keep-scheduler", "default-scheduler", false, false, true},
		"pod, unknown namespace":                 {"other", none, "keep-scheduler", "default-scheduler", true, true, false},
		"pod, but names our scheduler":           {"shop", none, "keep-scheduler", "spot-aware-scheduler", true, false, true},
		"an unknown value of the pod alone":      {"shop", none, "yes", "default-scheduler", false, false, true},
		"unknown namespace":                      {"other", none, none, "default-scheduler", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			if test.namespace != "other" {
				clustertest.Fill(t, factory, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
					Name: test.namespace, Labels: map[string]string{spot.OptInLabel: test.namespaceLabel},
				}})
			}
			pod := &v1.Pod{Spec: v1.PodSpec{SchedulerName: test.scheduler}}
			pod.Namespace, pod.Labels = test.namespace, map[string]string{spot.OptInLabel: test.podLabel}
			scope := workload.Scope{Profile: "spot-aware-scheduler", Namespaces: factory.Core().V1().Namespaces().Lister()}
			if includes, keeps := scope.Includes(pod), scope.KeepsScheduler(pod); includes != test.includes || keeps != test.keeps {
				t.Errorf("includes %t, keeps its scheduler %t, want %t and %t", includes, keeps, test.includes, test.keeps)
			}
			if why := scope.IgnoredOptIn(pod); (why != "") != test.ignored {
				t.Errorf("ignored because %q, want ignored = %t", why, test.ignored)
			}
			scope.Namespaces = nil
			if keeps := scope.KeepsScheduler(pod); keeps {
				t.Error("the pod keeps its scheduler although the mode is off")
			}
		})
	}
}
