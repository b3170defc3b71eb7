package gang

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/clustertest"
)

func pod(name, group, node string, edits ...func(*v1.Pod)) *v1.Pod {
	p := clustertest.NewPod(name)
	p.Spec.NodeName = node
	if group != "" {
		p.Labels[v1alpha1.PodGroupLabel] = group
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func cpu(quantity string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(quantity)}
	}
}

func terminating(p *v1.Pod) { clustertest.Terminate(p) }
func running(p *v1.Pod)     { p.Status.Phase = v1.PodRunning }
func annotated(p *v1.Pod)   { p.Annotations = map[string]string{"a": "b"} }
func labelled(p *v1.Pod)    { p.Labels["tier"] = "front" }
func owned(p *v1.Pod)       { p.OwnerReferences = []metav1.OwnerReference{{UID: "rs"}} }
func besideOthers(p *v1.Pod) {
	p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{}}
}
func spreads(p *v1.Pod) { p.Spec.TopologySpreadConstraints = make([]v1.TopologySpreadConstraint, 1) }

func group(namespace, name string) *v1alpha1.PodGroup {
	return &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestEvents(t *testing.T) {
	waiting := pod("waiting", "g", "")
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for name, test := range map[string]struct {
		pod            *v1.Pod // nil: waiting
		oldObj, newObj any
		want           bool
	}{
		"node added":                                  {nil, nil, node, true},
		"node changed":                                {nil, node, node, true},
		"node deleted":                                {nil, node, nil, true},
		"claim changed":                               {nil, &v1.PersistentVolumeClaim{}, &v1.PersistentVolumeClaim{}, true},
		"its PodGroup added":                          {nil, nil, group("shop", "g"), true},
		"its PodGroup changed":                        {nil, group("shop", "g"), group("shop", "g"), true},
		"another PodGroup":                            {nil, nil, group("shop", "h"), false},
		"a PodGroup of that name elsewhere":           {nil, nil, group("market", "g"), false},
		"pod of the gang added":                       {nil, nil, pod("new", "g", ""), true},
		"other pod added":                             {nil, nil, pod("new", "h", ""), false},
		"other pod bound":                             {nil, nil, pod("new", "", "n"), false},
		"other pod bound, pod has affinity":           {pod("w", "g", "", besideOthers), nil, pod("new", "", "n"), true},
		"other pod bound, pod has spread constraints": {pod("w", "g", "", spreads), nil, pod("new", "", "n"), true},
		"other pod added, pod has affinity":           {pod("w", "g", "", besideOthers), nil, pod("new", "", ""), false},
		"pod deleted":                                 {nil, pod("gone", "", "n"), nil, true},
		"pod of the gang deleted":                     {nil, pod("gone", "g", "n"), nil, true},
		"pod of the gang rejected":                    {nil, pod("rejected", "g", "n"), nil, false},
		"pod of another gang rejected":                {nil, pod("rejected", "h", "n"), nil, false},
		"pod deleted and recreated":                   {nil, pod("rejected", "", "n", func(p *v1.Pod) { p.UID = "old" }), nil, true},
		"bound pod deleted":                           {nil, pod("bound", "h", "n"), nil, true},
		"its own status":                              {nil, waiting, pod("waiting", "g", "", running), false},
		"its own annotation":                          {nil, waiting, pod("waiting", "g", "", annotated), true},
		"its own label":                               {nil, waiting, pod("waiting", "g", "", labelled), true},
		"its own owner":                               {nil, waiting, pod("waiting", "g", "", owned), true},
		"its own request":                             {nil, pod("waiting", "g", "", cpu("2")), pod("waiting", "g", "", cpu("1")), true},
		"status of a bound pod":                       {nil, pod("a", "", "n"), pod("a", "", "n", running), false},
		"annotation of a bound pod":                   {nil, pod("a", "", "n"), pod("a", "", "n", annotated), false},
		"bound pod terminates":                        {nil, pod("a", "", "n"), pod("a", "", "n", terminating), true},
		"bound pod released":                          {nil, pod("a", "", "n", owned), pod("a", "", "n"), true},
		"label of a bound pod":                        {nil, pod("a", "", "n"), pod("a", "", "n", labelled), true},
		"bound pod requests less":                     {nil, pod("a", "", "n", cpu("2")), pod("a", "", "n", cpu("1")), true},
		"pod without a node changes":                  {nil, pod("a", "", ""), pod("a", "", "", labelled), false},
		"flush of unschedulable pods":                 {nil, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _ := newTestBackoffs()
			p := &Plugin{backoffs: r, pods: corelisters.NewPodLister(indexer(t, pod("rejected", "h", ""), pod("bound", "h", "n")))}
			r.NoNode("shop/g", "no room")
			r.Rejected("shop/g", "victim")
			waitingPod := test.pod
			if waitingPod == nil {
				waitingPod = waiting
			}
			events, err := p.EventsToRegister(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			logger, _ := ktesting.NewTestContext(t)
			podGroups, everything := events[0], events[1]
			if everything.Event != (fwk.ClusterEvent{Resource: fwk.WildCard, ActionType: fwk.All}) {
				t.Fatalf("the second event is %v", everything.Event)
			}
			event := everything
			if _, ok := test.newObj.(*v1alpha1.PodGroup); ok {
				event = podGroups
			}
			hint, err := event.QueueingHintFn(logger, waitingPod, test.oldObj, test.newObj)
			if err != nil || (hint == fwk.Queue) != test.want {
				t.Errorf("hint %v, %v, want queue %t", hint, err, test.want)
			}
			if _, paused := r.Paused("shop/g", "unfit"); paused == test.want {
				t.Errorf("gang paused: %t", paused)
			}
		})
	}
}

// Only a change of the spec of a PodGroup rejects pods that wait at Permit.
func TestPodGroupChanges(t *testing.T) {
	changed := group("shop", "g")
	changed.Generation = 2
	for name, test := range map[string]struct {
		oldObj, newObj any
		want           bool
	}{
		"spec":    {group("shop", "g"), changed, true},
		"status":  {changed, changed, false},
		"created": {nil, changed, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _ := newTestBackoffs()
			p := &Plugin{backoffs: r}
			r.Refused("shop/g")
			logger, _ := ktesting.NewTestContext(t)
			if _, err := p.podGroupHint(logger, pod("waiting", "g", ""), test.oldObj, test.newObj); err != nil {
				t.Fatal(err)
			}
			if got := r.gangs["shop/g"].changed; got != test.want {
				t.Errorf("changed = %t, want %t", got, test.want)
			}
		})
	}
}

// The hint for all events also receives PodGroups. PodGroups of other gangs must not retry this
// gang.
func TestPodGroupsAreJudgedOnce(t *testing.T) {
	p, group := &Plugin{}, &unstructured.Unstructured{}
	if p.afterEvent(&v1.Pod{}, nil, group) || p.afterEvent(&v1.Pod{}, group, group) || p.afterEvent(&v1.Pod{}, group, nil) {
		t.Error("any PodGroup retries every gang")
	}
}

func indexer(t *testing.T, pods ...*v1.Pod) cache.Indexer {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, pod := range pods {
		if err := index.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	return index
}
