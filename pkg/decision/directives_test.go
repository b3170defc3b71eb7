package decision_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/spot"
	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/decision"
)

const annotationPrefix = "spot-aware-scheduler.io/"

// directives change the cluster and print nothing.
var directives = map[string]func(*cluster, command) error{
	"policy":   (*cluster).setPolicy,
	"nodes":    (*cluster).addNodes,
	"create":   (*cluster).create,
	"scale":    onWorkload("replicas", func(c *cluster, w *workload, n int) { w.replicas = n }),
	"finish":   onWorkload("pods", (*cluster).finish),
	"rollout":  onWorkload("", func(c *cluster, w *workload, _ int) { w.addRevision() }),
	"undo":     onWorkload("", func(c *cluster, w *workload, _ int) { w.undo() }),
	"pause":    onWorkload("", func(c *cluster, w *workload, _ int) { w.paused = true }),
	"resume":   onWorkload("", func(c *cluster, w *workload, _ int) { w.paused = false }),
	"ungate":   onWorkload("", func(c *cluster, w *workload, _ int) { w.gated = false }),
	"annotate": (*cluster).annotate,
	"label":    (*cluster).label,
	"signal":   (*cluster).signal,
	"delete":   (*cluster).delete,
	"release":  (*cluster).release,
}

// onWorkload returns a directive whose arguments are the name of a workload and, if number is not
// empty, a number.
func onWorkload(number string, do func(c *cluster, w *workload, n int)) func(*cluster, command) error {
	words := []string{"workload"}
	if number != "" {
		words = append(words, number)
	}
	return func(c *cluster, cmd command) error {
		if err := cmd.args.expect(words...); err != nil {
			return err
		}
		w, err := c.workload(cmd.args.words[0])
		n := 0
		if err == nil && number != "" {
			n, err = strconv.Atoi(cmd.args.words[1])
		}
		if err == nil {
			do(c, w, n)
		}
		return err
	}
}

func (c *cluster) setPolicy(cmd command) (err error) {
	c.policy = newCluster().policy
	for _, line := range cmd.block {
		switch line.first() {
		case "rule":
			err = c.addRule(line)
		case "capacityLabel":
			row := decision.CapacityLabel{Key: line.after().first()}
			err = line.each(func(key, value string) error {
				switch key {
				case "spot":
					row.Spot = strings.Split(value, ",")
				case "onDemand":
					row.OnDemand = strings.Split(value, ",")
				default:
					return fmt.Errorf("no such key")
				}
				return nil
			})
			c.policy.CapacityLabels = append(c.policy.CapacityLabels, row)
		default:
			err = line.each(func(key, value string) (err error) {
				values := map[string]string{}
				if ok, err := override(values, key, value); ok {
					o, _ := decision.ParseOverrides(values)
					c.policy.Defaults = o.Apply(c.policy.Defaults)
					return err
				}
				switch key {
				case "unlabeledNodes":
					c.policy.UnlabeledNodes, err = oneOf(value, map[string]decision.CapacityType{"OnDemand": decision.OnDemand, "Spot": decision.Spot})
				case "labelGrace":
					c.policy.LabelGrace, err = time.ParseDuration(value)
				case "annotationPolicy":
					c.policy.Annotations, err = oneOf(value, annotationPolicies)
				default:
					return fmt.Errorf("no such key")
				}
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var annotationPolicies = map[string]decision.AnnotationPolicy{
	"Allow": decision.AllowAnnotations, "StricterOnly": decision.StricterOnly, "Ignore": decision.IgnoreAnnotations,
}

// override parses a setting that rules may set, and reports whether key is such a setting.
func override(values map[string]string, key, value string) (ok bool, err error) {
	values[key] = value
	_, invalid := decision.ParseOverrides(values)
	if len(invalid) > 0 {
		return true, errors.New(invalid[0].Expected)
	}
	return slices.ContainsFunc(decision.Settings, func(s decision.Setting) bool { return s.Name == key }), nil
}

func (c *cluster) addRule(line args) error {
	if err := line.expect("rule", "name"); err != nil {
		return err
	}
	rule := decision.Rule{Name: line.words[1]}
	values := map[string]string{}
	err := line.each(func(key, value string) error {
		if ok, err := override(values, key, value); ok {
			return err
		}
		switch list := strings.Split(value, ","); key {
		case "namespaces":
			rule.Namespaces = list
		case "priorityClasses":
			rule.PriorityClasses = list
		case "qosClasses":
			rule.QOSClasses = list
		case "ownerKinds":
			rule.OwnerKinds = list
		case "podSelector":
			name, want, _ := strings.Cut(value, "=")
			rule.PodSelector = func(labels map[string]string) bool { return labels[name] == want }
		case "minPriority":
			n, err := strconv.ParseInt(value, 10, 32)
			rule.MinPriority = new(int32(n))
			return err
		case "annotationPolicy":
			policy, err := oneOf(value, annotationPolicies)
			rule.Annotations = &policy
			return err
		default:
			return fmt.Errorf("no such key")
		}
		return nil
	})
	rule.Overrides, _ = decision.ParseOverrides(values)
	c.policy.Rules = append(c.policy.Rules, rule)
	return err
}

func (c *cluster) addNodes(cmd command) error {
	for _, line := range cmd.block {
		if err := line.expect("name", "type", "pool"); err != nil {
			return err
		}
		instanceType, zone, _ := strings.Cut(line.words[2], "/")
		proto := node{labels: map[string]string{}, slots: 1, created: c.now - time.Hour, pool: decision.NewPool(instanceType, zone)}
		switch capacity := line.words[1]; capacity {
		case "spot", "on-demand":
			proto.labels[spot.CapacityLabel] = capacity
		case "unlabeled":
		default:
			return fmt.Errorf("a node is spot, on-demand or unlabeled, not %q", capacity)
		}
		n := 0
		err := line.each(func(key, value string) (err error) {
			switch key {
			case "slots":
				proto.slots, err = strconv.Atoi(value)
			case "count":
				n, err = strconv.Atoi(value)
			case "age":
				var age time.Duration
				age, err = time.ParseDuration(value)
				proto.created = c.now - age
			case "risk":
				proto.risk, err = strconv.ParseFloat(value, 64)
			case "signal":
				proto.signal, err = oneOf(value, signals)
			case "label":
				key, value, _ := strings.Cut(value, "=")
				proto.labels[key] = value
			default:
				return fmt.Errorf("no such key")
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range numbered(line.words[0], n) {
			added := proto
			added.name, added.labels = name, maps.Clone(proto.labels)
			c.nodes = append(c.nodes, &added)
		}
	}
	return nil
}

var signals = map[string]decision.SignalClass{
	"none": decision.NoSignal, "advisory": decision.Advisory, "drain": decision.Drain, "reclaim": decision.Reclaim,
}

func (c *cluster) create(cmd command) error {
	if err := cmd.args.expect("kind", "name"); err != nil {
		return err
	}
	namespace, name, ok := strings.Cut(cmd.args.words[1], "/")
	if !ok {
		namespace, name = "default", namespace
	}
	n := 0
	proto := workload{
		kind: cmd.args.words[0], namespace: namespace, family: name, replicas: 1, maxSurge: -1, maxUnavailable: -1, backoffLimit: 6,
		annotations: map[string]string{}, podAnnotations: map[string]string{}, labels: map[string]string{},
	}
	numbers := map[string]*int{
		"replicas": &proto.replicas, "parallelism": &proto.replicas, "completions": &proto.completions, "backoffLimit": &proto.backoffLimit,
		"maxSurge": &proto.maxSurge, "maxUnavailable": &proto.maxUnavailable, "start": &proto.start, "count": &n,
	}
	err := cmd.args.each(func(key, value string) (err error) {
		if number := numbers[key]; number != nil {
			*number, err = strconv.Atoi(value)
			return err
		}
		if annotation, ok := strings.CutPrefix(key, "pod:"); ok {
			proto.podAnnotations[annotationPrefix+annotation] = value
			return nil
		}
		switch key {
		case "priorityClass":
			proto.priorityClass = value
		case "priority":
			var priority int64
			priority, err = strconv.ParseInt(value, 10, 32)
			proto.priority = int32(priority)
		case "qos":
			proto.qosClass = value
		case "zone":
			proto.zone = value
		case "label":
			key, value, _ := strings.Cut(value, "=")
			proto.labels[key] = value
		case "requires":
			proto.onlySpot, err = oneOf(value, map[string]bool{"spot": true, "on-demand": false})
			proto.onlyOnDemand = value == "on-demand"
		case "gated":
			proto.gated, err = strconv.ParseBool(value)
		case "podManagement":
			proto.parallel, err = oneOf(value, map[string]bool{"Parallel": true, "OrderedReady": false})
		case "onDisruption":
			proto.ignoresDisruption, err = oneOf(value, map[string]bool{"Ignore": true})
		default:
			annotation := annotationPrefix + key
			isSetting := slices.ContainsFunc(decision.Settings, func(s decision.Setting) bool { return s.Annotation == annotation })
			if !isSetting && annotation != spot.DisruptionsAnnotation {
				return fmt.Errorf("no such key")
			}
			proto.annotations[annotation] = value
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range numbered(name, n) {
		w := proto
		w.name, w.annotations = name, maps.Clone(proto.annotations)
		c.workloads = append(c.workloads, &w)
		w.addRevision()
		if w.kind == "Pod" {
			w.revisions[0].add(0, 0)
		}
	}
	return nil
}

// finish lets n pods of a Job succeed.
func (c *cluster) finish(w *workload, n int) {
	for _, p := range w.pods() {
		if p.node != nil && n > 0 {
			p.remove()
			w.succeeded++
			n--
		}
	}
}

func (c *cluster) annotate(cmd command) error {
	w, err := c.workload(cmd.args.first())
	if err != nil {
		return err
	}
	for _, key := range cmd.args.after().words { // "key-" removes the annotation
		delete(w.annotations, annotationPrefix+strings.TrimSuffix(key, "-"))
	}
	return cmd.args.each(func(key, value string) error {
		w.annotations[annotationPrefix+key] = value
		return nil
	})
}

func (c *cluster) label(cmd command) error {
	n, err := c.node(cmd.args.first())
	if err != nil {
		return err
	}
	return cmd.args.each(func(key, value string) error {
		n.labels[key] = value
		return nil
	})
}

func (c *cluster) signal(cmd command) error {
	if err := cmd.args.expect("node", "class"); err != nil {
		return err
	}
	n, err := c.node(cmd.args.first())
	if err == nil {
		n.signal, err = oneOf(cmd.args.words[1], signals)
	}
	return err
}

// delete removes pods, or nodes with their pods, or workloads with their pods.
func (c *cluster) delete(cmd command) error {
	if len(cmd.args.words) < 2 {
		return fmt.Errorf("expected <pod|node|workload> <name>...")
	}
	for _, name := range cmd.args.words[1:] {
		switch cmd.args.words[0] {
		case "pod":
			p, err := c.pod(name)
			if err != nil {
				return err
			}
			p.remove()
		case "node":
			n, err := c.node(name)
			if err != nil {
				return err
			}
			c.removeNode(n)
		case "workload":
			w, err := c.workload(name)
			if err != nil {
				return err
			}
			for _, p := range w.pods() {
				p.remove()
			}
			c.workloads = slices.DeleteFunc(c.workloads, func(other *workload) bool { return other == w })
		default:
			return fmt.Errorf("expected pod, node or workload")
		}
	}
	return nil
}

// release detaches a pod from its workload: the pod still uses its slot, but is not counted
// anywhere.
func (c *cluster) release(cmd command) error {
	p, err := c.pod(cmd.args.first())
	if err != nil {
		return err
	}
	if p.node != nil {
		p.node.used++ // remove decrements it again
	}
	p.remove()
	return nil
}

func (a args) each(do func(key, value string) error) error {
	for _, pair := range a.pairs {
		if err := do(pair[0], pair[1]); err != nil {
			return fmt.Errorf("%s=%s: %w", pair[0], pair[1], err)
		}
	}
	return nil
}

func oneOf[T any](value string, values map[string]T) (T, error) {
	v, ok := values[value]
	if !ok {
		return v, fmt.Errorf("expected one of %v", slices.Sorted(maps.Keys(values)))
	}
	return v, nil
}

// numbered returns n names with the suffixes -1 to -n, or just name if n is 0.
func numbered(name string, n int) []string {
	if n == 0 {
		return []string{name}
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", name, i+1))
	}
	return names
}
