package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// KarpenterCapacityLabel says on Karpenter's nodes whether they are Spot or OnDemand.
	KarpenterCapacityLabel = "karpenter.sh/capacity-type"
	// KarpenterPoolLabel names the NodePool of a node and of a NodeClaim.
	KarpenterPoolLabel = "karpenter.sh/nodepool"
	// KarpenterPriceLabel on Karpenter's nodes is what the node costs, in US dollars per hour.
	KarpenterPriceLabel = "eks-node-viewer/instance-price"

	nodeClassName  = "default"
	karpenterGroup = "karpenter.sh"
)

// The kinds of Karpenter, for clients that know no types of theirs.
var (
	NodePoolKind  = schema.GroupVersionKind{Group: karpenterGroup, Version: "v1", Kind: "NodePool"}
	NodeClaimKind = schema.GroupVersionKind{Group: karpenterGroup, Version: "v1", Kind: "NodeClaim"}

	nodeClassKind = schema.GroupVersionKind{Group: "karpenter.kwok.sh", Version: "v1alpha1", Kind: "KWOKNodeClass"}
)

// DefaultKarpenterTypes are the instance types that Karpenter may buy unless the caller names others: 1, 2, 4 and 8 CPUs with 2 GiB each.
// With few types it is clear which one is the cheapest.
var DefaultKarpenterTypes = []string{"c-1x-amd64-linux", "c-2x-amd64-linux", "c-4x-amd64-linux", "c-8x-amd64-linux"}

// KarpenterOptions say which Karpenter StartKarpenter starts. The zero value is ready to use.
type KarpenterOptions struct {
	// InstanceTypes are the names of the instance types that Karpenter may buy. Empty: DefaultKarpenterTypes.
	InstanceTypes []string
	// NodeRegistrationDelay is the time from the launch of a node to its Node object, in whole seconds: what a machine takes to boot.
	NodeRegistrationDelay time.Duration
	// NodePools are created before StartKarpenter returns. Empty: one with the defaults of NodePool.
	NodePools []NodePool
	// Flags are added to those that the lab sets, and win over them.
	Flags []string
}

// NodePool describes a NodePool of Karpenter. The zero value buys spot and on-demand, without a limit, and is not consolidated.
type NodePool struct {
	// Name is default if empty.
	Name string
	// CapacityTypes are Spot and OnDemand if empty.
	CapacityTypes []string
	// Weight orders NodePools: Karpenter tries those with the greatest weight first. Zero: none.
	Weight int
	// CPULimit is the quantity of CPUs that all nodes of the pool may have together. Empty: no limit.
	CPULimit string
	// ConsolidateAfter is how long no pod may have come to a node or gone from it before Karpenter consolidates the node, in whole seconds.
	// Zero: Karpenter consolidates nothing.
	ConsolidateAfter time.Duration
	// ExpireAfter is how old a node may become before Karpenter deletes it, in whole seconds, whatever its budgets are. Zero: it may become
	// any age.
	ExpireAfter time.Duration
	// TerminationGracePeriod is how long Karpenter drains a node before it deletes the pods that are left there, in whole seconds. Zero: until
	// they are evicted.
	TerminationGracePeriod time.Duration
	// Labels are set on the pool's nodes.
	Labels map[string]string
}

// object returns the NodePool as the API server takes it.
func (p NodePool) object() *unstructured.Unstructured {
	capacityTypes := p.CapacityTypes
	if len(capacityTypes) == 0 {
		capacityTypes = []string{Spot, OnDemand}
	}
	requirement := func(key string, values ...string) any {
		return map[string]any{"key": key, "operator": "In", "values": anySlice(values)}
	}
	orNever := func(d time.Duration) string {
		if d == 0 {
			return "Never"
		}
		return d.String()
	}
	labels := map[string]any{}
	for key, value := range p.Labels {
		labels[key] = value
	}
	spec := map[string]any{
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"requirements": []any{
					requirement(corev1.LabelArchStable, "amd64"), requirement(corev1.LabelOSStable, "linux"),
					requirement(KarpenterCapacityLabel, capacityTypes...),
				},
				"nodeClassRef": map[string]any{"group": nodeClassKind.Group, "kind": nodeClassKind.Kind, "name": nodeClassName},
				"expireAfter":  orNever(p.ExpireAfter),
			},
		},
		"disruption": map[string]any{
			"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": orNever(p.ConsolidateAfter),
			// The default of 10 % would slow consolidation down, and hide what it does.
			"budgets": []any{map[string]any{"nodes": "100%"}},
		},
	}
	if p.TerminationGracePeriod != 0 {
		template := spec["template"].(map[string]any)["spec"].(map[string]any)
		template["terminationGracePeriod"] = p.TerminationGracePeriod.String()
	}
	if p.Weight != 0 {
		spec["weight"] = int64(p.Weight)
	}
	if p.CPULimit != "" {
		spec["limits"] = map[string]any{"cpu": p.CPULimit}
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(NodePoolKind)
	object.SetName(p.name())
	return object
}

func (p NodePool) name() string {
	if p.Name == "" {
		return "default"
	}
	return p.Name
}

func anySlice(values []string) []any {
	out := make([]any, len(values))
	for i, value := range values {
		out[i] = value
	}
	return out
}

// StartKarpenter installs Karpenter's CRDs, starts Karpenter with its provider of simulated nodes, creates the NodePools, and returns when
// they are ready. KWOK serves the nodes that it buys. It runs as administrator; unlike everything else it serves its metrics and its health
// on all addresses of the machine, because it has no setting for that. Only one can run at a time.
func (cp *ControlPlane) StartKarpenter(ctx context.Context, options KarpenterOptions) (*Process, error) {
	binary := cp.tool("karpenter-kwok")
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w: hack/tools.sh karpenter builds it", err)
	}
	names := options.InstanceTypes
	if len(names) == 0 {
		names = DefaultKarpenterTypes
	}
	types, err := cp.writeKarpenterTypes(names)
	if err != nil {
		return nil, err
	}
	c, err := cp.installKarpenterCRDs(ctx)
	if err != nil {
		return nil, err
	}
	metrics, err := portOnAllAddresses()
	if err != nil {
		return nil, err
	}
	health, err := portOnAllAddresses()
	if err != nil {
		return nil, err
	}
	httpClient, err := metricsClient(cp.config)
	if err != nil {
		return nil, err
	}
	// Karpenter takes its credential from the environment only.
	p, err := cp.start("karpenter", "env", append([]string{
		"KUBECONFIG=" + cp.Kubeconfig, binary,
		"--metrics-port=" + metrics, "--health-probe-port=" + health,
		"--instance-types-file-path=" + types,
		"--disable-leader-election=true",
	}, options.Flags...)...)
	if err != nil {
		return nil, err
	}
	p.url, p.health, p.client = "http://"+cp.host(metrics), "http://"+cp.host(health), httpClient
	if p, err = cp.untilReady(ctx, p); err != nil {
		return nil, err
	}
	if err := cp.applyNodePools(ctx, c, p, options); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// applyNodePools creates the node class and the NodePools and returns when Karpenter says that it can use them.
func (cp *ControlPlane) applyNodePools(ctx context.Context, c client.Client, p *Process, options KarpenterOptions) error {
	if err := applyNodeClass(ctx, c, options.NodeRegistrationDelay); err != nil {
		return err
	}
	pools := options.NodePools
	if len(pools) == 0 {
		pools = []NodePool{{}}
	}
	for _, pool := range pools {
		if err := apply(ctx, c, pool.object()); err != nil {
			return err
		}
	}
	return poll(ctx, "Karpenter's NodePools to be ready", []*Process{p}, func(ctx context.Context) error {
		for _, pool := range pools {
			object := pool.object()
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			if !conditionTrue(object, "Ready") {
				return fmt.Errorf("NodePool %s is not", object.GetName())
			}
		}
		return nil
	})
}

// applyNodeClass creates or replaces the node class of all NodePools.
func applyNodeClass(ctx context.Context, c client.Client, registrationDelay time.Duration) error {
	class := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"nodeRegistrationDelay": registrationDelay.String()},
	}}
	class.SetGroupVersionKind(nodeClassKind)
	class.SetName(nodeClassName)
	return apply(ctx, c, class)
}

// SetNodeRegistrationDelay changes KarpenterOptions.NodeRegistrationDelay of a running Karpenter, for nodes that it launches afterwards.
func (cp *ControlPlane) SetNodeRegistrationDelay(ctx context.Context, delay time.Duration) error {
	c, err := client.New(cp.config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return applyNodeClass(ctx, c, delay)
}

// ApplyNodePool creates a NodePool of a running Karpenter, or replaces the specification of the one with that name. Karpenter caches for up
// to five minutes that it need not consolidate a node; a changed specification voids that.
func (cp *ControlPlane) ApplyNodePool(ctx context.Context, pool NodePool) error {
	c, err := client.New(cp.config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return apply(ctx, c, pool.object())
}

// apply creates an object, or replaces the specification of the one that exists.
func apply(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	err := c.Create(ctx, object.DeepCopy())
	for apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(object.GroupVersionKind())
		if err = c.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
			break
		}
		current.Object["spec"] = object.DeepCopy().Object["spec"]
		err = c.Update(ctx, current)
	}
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// installKarpenterCRDs creates those CRDs that do not exist and returns, with a client that knows them, when the API server serves them.
func (cp *ControlPlane) installKarpenterCRDs(ctx context.Context) (client.Client, error) {
	files, err := filepath.Glob(filepath.Join(cp.karpenterData(), "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s has no CRDs (%v): hack/tools.sh karpenter copies them", cp.karpenterData(), err)
	}
	c, err := client.New(cp.config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for _, file := range files {
		crds, err := readManifest(file)
		if err != nil {
			return nil, err
		}
		for _, crd := range crds {
			if err := c.Create(ctx, crd.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
				return nil, fmt.Errorf("applying %s: %w", file, err)
			}
			err := poll(ctx, "CRD "+crd.GetName()+" to be established", cp.running(), func(ctx context.Context) error {
				if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
					return err
				}
				if !conditionTrue(crd, "Established") {
					return errors.New("it is not")
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// conditionTrue reports whether the object's status has this condition with the status True.
func conditionTrue(object *unstructured.Unstructured, conditionType string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == conditionType && condition["status"] == "True"
	})
}

// karpenterData is where hack/tools.sh puts what Karpenter needs besides its binary.
func (cp *ControlPlane) karpenterData() string { return filepath.Join(cp.Root, ".local", "karpenter") }

// KarpenterType is an instance type of Karpenter's simulated provider.
type KarpenterType struct {
	Name string
	// CPUMilli, MemoryMiB and Pods are what pods may use of a node.
	CPUMilli, MemoryMiB, Pods int64
	// Price is the lowest in any zone by capacity type, Spot or OnDemand, in US dollars per hour.
	Price map[string]float64
}

// The provider takes this off every node's capacity.
const karpenterReservedCPUMilli, karpenterReservedMemoryMiB = 100, 10

// KarpenterTypes returns the instance types with these names, in the same order.
func (cp *ControlPlane) KarpenterTypes(names ...string) ([]KarpenterType, error) {
	raw, err := cp.readKarpenterTypes(names)
	if err != nil {
		return nil, err
	}
	var types []KarpenterType
	for _, data := range raw {
		var t struct {
			Name      string                       `json:"name"`
			Resources map[string]resource.Quantity `json:"resources"`
			Offerings []struct {
				Price        float64
				Requirements []corev1.NodeSelectorRequirement
			} `json:"offerings"`
		}
		if err := json.Unmarshal(data, &t); err != nil {
			return nil, fmt.Errorf("reading Karpenter's instance types: %w", err)
		}
		cpu, memory, pods := t.Resources["cpu"], t.Resources["memory"], t.Resources["pods"]
		out := KarpenterType{
			Name: t.Name, CPUMilli: cpu.MilliValue() - karpenterReservedCPUMilli,
			MemoryMiB: memory.Value()>>20 - karpenterReservedMemoryMiB, Pods: pods.Value(), Price: map[string]float64{},
		}
		for _, offering := range t.Offerings {
			for _, requirement := range offering.Requirements {
				if requirement.Key != KarpenterCapacityLabel {
					continue
				}
				for _, capacity := range requirement.Values {
					if known, ok := out.Price[capacity]; !ok || offering.Price < known {
						out.Price[capacity] = offering.Price
					}
				}
			}
		}
		types = append(types, out)
	}
	return types, nil
}

// readKarpenterTypes returns the descriptions of the instance types with these names, in the same order.
func (cp *ControlPlane) readKarpenterTypes(names []string) ([]json.RawMessage, error) {
	data, err := os.ReadFile(filepath.Join(cp.karpenterData(), "instance_types.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: hack/tools.sh karpenter copies it", err)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("reading Karpenter's instance types: %w", err)
	}
	byName := map[string]json.RawMessage{}
	for _, one := range all {
		var named struct{ Name string }
		if err := json.Unmarshal(one, &named); err != nil {
			return nil, fmt.Errorf("reading Karpenter's instance types: %w", err)
		}
		byName[named.Name] = one
	}
	var chosen []json.RawMessage
	for _, name := range names {
		one, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("InstanceTypes: Karpenter has no %q; it has names such as %s", name, strings.Join(DefaultKarpenterTypes, ", "))
		}
		chosen = append(chosen, one)
	}
	return chosen, nil
}

// writeKarpenterTypes writes a file with the instance types of these names and returns its name.
func (cp *ControlPlane) writeKarpenterTypes(names []string) (string, error) {
	chosen, err := cp.readKarpenterTypes(names)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(chosen)
	if err != nil {
		return "", fmt.Errorf("writing Karpenter's instance types: %w", err)
	}
	file := filepath.Join(cp.Dir, "karpenter-types.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", fmt.Errorf("writing Karpenter's instance types: %w", err)
	}
	return file, nil
}

// portOnAllAddresses returns a TCP port on which nothing listens on any address of this machine. It is below those that the system gives to
// clients, so that no connection takes it before it is used.
func portOnAllAddresses() (string, error) {
	const first, ports = 10000, 20000
	for try := range ports {
		port := strconv.Itoa(first + (os.Getpid()*64+try)%ports)
		listener, err := net.Listen("tcp", net.JoinHostPort("", port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return "", err
		}
		if _, taken := handedOut.LoadOrStore(listener.Addr().String(), true); !taken {
			return port, nil
		}
	}
	return "", fmt.Errorf("no port from %d to %d is free on all addresses", first, first+ports-1)
}
