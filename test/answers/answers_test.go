// Package answers_test runs one list of cases through every component that decides where a pod may
// run: the plugin, the extender, `kubectl spot explain` and the rebalancer. Their answers,
// including the reasons, must match the list, and therefore each other.
//
//	cases_test.go       the list
//	objects_test.go     the objects of its clusters
//	plugin_test.go      the plugins in the scheduler's framework and cache
//	extender_test.go    the extender behind its HTTP handler
//	explain_test.go     the output of kubectl spot explain
//	rebalancer_test.go  spot-controller's search for replacements
package answers_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/providers"
)

func TestMain(m *testing.M) {
	schedulermetrics.Register()
	os.Exit(m.Run())
}

// answers maps each node to the reason why the pod may not run there; "" if the node admits the
// pod.
type answers map[string]string

// scenario is a cluster, a policy, and a pod to place.
type scenario struct {
	// policy contains the fields of ReplicaSafetyArgs, in the flow style of YAML and without
	// braces; "" for the defaults, with fallbackAfter never.
	policy  string
	objects []runtime.Object
	pod     *v1.Pod

	want answers
	// first lists the admitted nodes that rank highest by capacity type, signals and cap. The
	// extender returns only these.
	first []string
	// closed lists nodes that the other components admit, but the rebalancer does not use, because
	// their capacity labels may still arrive.
	closed []string
	// settings are effective settings in the format of decision.WorkloadSettings; "" for the
	// defaults.
	settings string
}

const (
	defaultSettings = "minOnDemand=1 maxPerPool=no cap whenUnsatisfiable=DoNotSchedule fallbackAfter=never" + others
	// others are the defaults of the settings that few cases change.
	others = " rolloutRelief=30s overflow=Allow exemptions=Allow protect=false"
)

// configuration returns the configuration file that every program reads.
func (c *scenario) configuration() string {
	args := c.policy
	if !strings.Contains(args, "fallbackAfter") {
		args = strings.TrimPrefix(args+", fallbackAfter: never", ", ")
	}
	return fmt.Sprintf(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: %s
  plugins: {multiPoint: {enabled: [{name: ReplicaSafety}, {name: SpotPreference, weight: 40}]}}
  pluginConfig: [{name: ReplicaSafety, args: {%s}}]
`, profile, args)
}

// readPolicy reads the configuration like the programs other than the scheduler.
func (c *scenario) readPolicy(t *testing.T) (*decision.Policy, []providers.Signal) {
	t.Helper()
	policy, signals, err := config.ReadPolicy([]byte(c.configuration()), profile)
	if err != nil {
		t.Fatal(err)
	}
	return policy, signals
}

// nodes returns the names of all nodes, sorted.
func (c *scenario) nodes() (names []string) {
	for _, object := range c.objects {
		if node, ok := object.(*v1.Node); ok {
			names = append(names, node.Name)
		}
	}
	slices.Sort(names)
	return names
}

// client returns a client of an API server that has the objects and the pod.
func (c *scenario) client() kubernetes.Interface {
	return fake.NewClientset(append(slices.Clone(c.objects), c.pod)...)
}

// start starts informers and waits until their handlers have processed all objects. It stops the
// informers when the test ends.
func start(t *testing.T, factory informers.SharedInformerFactory) {
	t.Helper()
	t.Cleanup(factory.Shutdown)
	factory.Start(t.Context().Done())
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("the informer of %v is not in sync", kind)
		}
	}
	synctest.Wait()
}

func requireEqual(t *testing.T, component string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", component, diff)
	}
}

// ofRoom returns the answers of Room that correspond to the other components' answers. Room rejects
// a node with a signal, or whose capacity label may still arrive, and gives no specific reason.
func (c *scenario) ofRoom() answers {
	of := maps.Clone(c.want)
	for name, why := range of {
		if slices.Contains([]string{reclaimed, drained, settling, held}, why) || slices.Contains(c.closed, name) {
			of[name] = noRoom
		}
	}
	return of
}

func TestAnswers(t *testing.T) {
	for name, c := range cases() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scheduler := newScheduler(t, &c)
				attempt := scheduler.try(c.pod)
				if attempt.rejected != "" {
					t.Fatalf("PreFilter: %s", attempt.rejected)
				}
				requireEqual(t, "plugin", c.want, attempt.answers)
				extender := newExtending(t, &c)
				feasible := extender.feasible(c.pod)
				requireEqual(t, "extender", c.want, extender.answers(c.pod))
				explanation := explain(t, &c)
				requireEqual(t, "explain", c.want, explained(t, explanation))
				rebalancer := newRebalancing(t, &c)
				requireEqual(t, "rebalancer", c.ofRoom(), rebalancer.answers())

				// All components agree on the best node, as far as each names one.
				requireEqual(t, "the nodes that the extender returns", c.first, feasible)
				for _, name := range scheduler.best(c.pod, attempt) {
					if !slices.Contains(c.first, name) {
						t.Errorf("the plugins score %s highest, want one of %v", name, c.first)
					}
				}
				if to := rebalancer.best(); to != "" && !slices.Contains(c.first, to) || to == "" && len(c.first) > 0 {
					t.Errorf("the rebalancer would place it on %q, want one of %v", to, c.first)
				}

				// They also agree on the effective settings and the plan of the pod's workload.
				state := attempt.planned(t)
				if c.settings == "" {
					c.settings = defaultSettings
				}
				for word := range strings.FieldsSeq(c.settings) {
					if got := state.Settings.String(); !strings.Contains(got+" ", word+" ") {
						t.Errorf("settings %s, want %s in them", got, word)
					}
				}
				// The rebalancer and reports compare pods with the floor of the settings.
				if floor := state.Settings.Floor(state.Subject.Pod.Workload.Desired); floor != state.Plan.Floor {
					t.Errorf("the plan has a floor of %d, but WorkloadSettings.Floor returns %d", state.Plan.Floor, floor)
				}
				requireEqual(t, "the plan that explain shows", numbersPlanned(state.Settings, state.Subject.Pod.Workload.Desired, &state.Plan),
					numbersShown(explanation))
			})
		})
	}
}

// The list contains every verdict.
func TestCasesCoverEveryVerdict(t *testing.T) {
	// constant returns the part of a verdict's reason that does not depend on numbers.
	constant := func(v decision.Verdict) string {
		words, _, _ := strings.Cut((&decision.Plan{}).Reason(v), ":")
		return words
	}
	missing := map[decision.Verdict]bool{}
	for v := range decision.Verdict(decision.Verdicts) {
		missing[v] = true
	}
	all := slices.Collect(maps.Values(cases()))
	for _, c := range heldCases() {
		all = append(all, c.scenario)
	}
	for _, c := range all {
		for _, why := range c.want {
			for v := range missing {
				if v == decision.Admitted && why == "" || v != decision.Admitted && strings.HasPrefix(why, constant(v)) {
					delete(missing, v)
				}
			}
		}
	}
	// This verdict occurs only while preemption is simulated, which explain and the rebalancer do
	// not do. Each component that does has its own test.
	delete(missing, decision.OverflowPreempts)
	for v := range missing {
		t.Errorf("no case expects the answer %q", constant(v))
	}
}

// A long wait admits a pod to the same nodes in the three components that consider it. The
// rebalancer plans as if no pod had waited: it never moves a pod to a node that only a long wait
// admits.
func TestWaiting(t *testing.T) {
	for name, c := range waitingCases() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The nodes that the policy admits from the start have no room.
				left := slices.DeleteFunc(c.nodes(), func(name string) bool { return c.want[name] == "" })
				scheduler, extender, rebalancer := newScheduler(t, &c.scenario), newExtending(t, &c.scenario), newRebalancing(t, &c.scenario)
				requireEqual(t, "plugin at first", c.want, scheduler.try(c.pod).answers)
				requireEqual(t, "extender at first", 0, len(*extender.filter(c.pod, left...).NodeNames))
				since := metav1.NewTime(time.Now().Add(-time.Second)) // explain rounds up to the next second
				scheduler.waits(c.pod)

				time.Sleep(c.waits)
				requireEqual(t, "plugin", c.then, scheduler.try(c.pod).answers)
				requireEqual(t, "extender", c.then, extender.answers(c.pod))
				waiting := c.scenario
				waiting.pod = c.pod.DeepCopy()
				waiting.pod.Generation = 1
				waiting.pod.Status.Conditions = []v1.PodCondition{{
					Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: since,
				}}
				requireEqual(t, "explain", c.then, explained(t, explain(t, &waiting)))
				requireEqual(t, "rebalancer", c.ofRoom(), rebalancer.answers())
			})
		})
	}
}

// A node whose capacity label may still arrive is reserved for a pod that waits for on-demand and
// fits on it.
func TestReservedNodes(t *testing.T) {
	for name, c := range heldCases() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.objects = append(c.objects, c.waits)
				scheduler, extender, rebalancer := newScheduler(t, &c.scenario), newExtending(t, &c.scenario), newRebalancing(t, &c.scenario)
				scheduler.waits(c.waits)
				requireEqual(t, "nodes that the extender returns for the waiting pod", 0, len(*extender.filter(c.waits, c.nodes()...).NodeNames))

				attempt := scheduler.try(c.pod)
				requireEqual(t, "plugin", c.want, attempt.answers)
				requireEqual(t, "plugins' best", c.first, scheduler.best(c.pod, attempt))
				requireEqual(t, "the nodes that the extender returns", c.first, extender.feasible(c.pod)) // before extender.answers, because repeated requests get all admitted nodes
				requireEqual(t, "extender", c.want, extender.answers(c.pod))
				requireEqual(t, "explain", c.want, explained(t, explain(t, &c.scenario)))
				requireEqual(t, "rebalancer", c.ofRoom(), rebalancer.answers())
			})
		})
	}
}

// A pod with an unknown owner is admitted to no node, with the same reason everywhere. For the
// rebalancer it belongs to no workload, so no plan is made for it.
func TestUnknownOwner(t *testing.T) {
	another := revision("web", 1, 3)
	another.UID = "another"
	for name, test := range map[string]struct {
		owners []runtime.Object
		want   string
	}{
		"no ReplicaSet": {want: "owner not known yet: waits for ReplicaSet shop/web-1 to appear in the cache"},
		"no Deployment": {
			owners: objects(revision("web", 1, 3)),
			want:   "owner not known yet: waits for Deployment shop/web to appear in the cache",
		},
		"another ReplicaSet of the same name": {
			owners: objects(deployment("web", 3), another),
			want:   "owner not known yet: waits for ReplicaSet shop/web-1 to appear in the cache",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &scenario{objects: objects(onDemand("od"), spotNode("sp"), test.owners), pod: next()}
				requireEqual(t, "plugin", test.want, newScheduler(t, c).try(c.pod).rejected)
				requireEqual(t, "extender", test.want, newExtending(t, c).filter(c.pod, "od", "sp").Error)
				explanation := explain(t, c)
				requireEqual(t, "explain", test.want, explanation.Answer)
				requireEqual(t, "nodes that explain lists", 0, len(explanation.Nodes))
				if p, _ := newRebalancing(t, c).find(); p.Workload != nil {
					t.Errorf("rebalancer: the pod belongs to %s %s, want no workload", p.Workload.Kind, p.Workload.Name)
				}
			})
		})
	}
}

// No component rejects a node for a pod to which the policy does not apply.
func TestPolicyDoesNotApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &scenario{objects: objects(onDemand("od"), spotNode("sp")), pod: podOf(by("DaemonSet", "agent"), "x")}
		want := answers{"od": "", "sp": ""}
		requireEqual(t, "plugin", want, newScheduler(t, c).try(c.pod).answers)
		requireEqual(t, "extender", want, newExtending(t, c).answers(c.pod))
		explanation := explain(t, c)
		requireEqual(t, "explain", "the policy does not apply to it: pods of DaemonSets and static pods are bound to their nodes", explanation.Answer)
		requireEqual(t, "nodes that explain lists", 0, len(explanation.Nodes))
		requireEqual(t, "rebalancer", want, newRebalancing(t, c).answers())
	})
}
