package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// KarpenterCapacityLabel is Karpenter's label for the capacity type of a node, Spot or
	// OnDemand.
	KarpenterCapacityLabel = "karpenter.sh/capacity-type"
	// KarpenterPoolLabel names the NodePool of a node and of a NodeClaim.
	KarpenterPoolLabel = "karpenter.sh/nodepool"
	// KarpenterPriceLabel is Karpenter's label for the price of a node, in US dollars per hour.
	KarpenterPriceLabel = "eks-node-viewer/instance-price"

	nodeClassName  = "default"
	karpenterGroup = "karpenter.sh"
)

// The kinds of Karpenter, for clients that do not have its types.
var (
	NodePoolKind  = schema.GroupVersionKind{Group: karpenterGroup, Version: "v1", Kind: "NodePool"}
	NodeClaimKind = schema.GroupVersionKind{Group: karpenterGroup, Version: "v1", Kind: "NodeClaim"}

	nodeClassKind = schema.GroupVersionKind{Group: "karpenter.kwok.sh", Version: "v1alpha1", Kind: "KWOKNodeClass"}
)

// DefaultKarpenterTypes are the instance types that Karpenter launches by default: 1, 2, 4 and 8
// CPUs with 2 GiB of memory per CPU. With few types it is clear which type is the cheapest.
var DefaultKarpenterTypes = []string{"c-1x-amd64-linux", "c-2x-amd64-linux", "c-4x-amd64-linux", "c-8x-amd64-linux"}

// KarpenterOptions configures the Karpenter that StartKarpenter starts. The zero value is ready
// to use.
type KarpenterOptions struct {
	// InstanceTypes are the names of the instance types that Karpenter may launch. Empty:
	// DefaultKarpenterTypes.
	InstanceTypes []string
	// NodeRegistrationDelay is the time from the launch of a node to its Node object, in whole
	// seconds. It simulates the boot time of a machine.
	NodeRegistrationDelay time.Duration
	// NodePools are created before StartKarpenter returns. Empty: one NodePool with default
	// values.
	NodePools []NodePool
	// Flags are appended to the flags of the lab and override them.
	Flags []string
}

// NodePool describes a NodePool of Karpenter. By default, Karpenter launches spot and on-demand
// nodes for it without a limit and does not consolidate them.
type NodePool struct {
	// Name is default if empty.
	Name string
	// CapacityTypes are Spot and OnDemand if empty.
	CapacityTypes []string
	// Requirements restrict the values of more labels of the nodes, such as the zone.
	Requirements map[string][]string
	// Weight orders NodePools: Karpenter tries the pool with the greatest weight first. Zero: no
	// weight.
	Weight int
	// CPULimit limits the number of CPUs of all nodes of the pool together. Empty: no limit.
	CPULimit string
	// ConsolidateAfter is the time without a new or removed pod after which Karpenter may
	// consolidate a node, in whole seconds. Zero: Karpenter does not consolidate nodes.
	ConsolidateAfter time.Duration
	// ExpireAfter is the age at which Karpenter deletes a node regardless of its budgets, in
	// whole seconds. Zero: nodes do not expire.
	ExpireAfter time.Duration
	// TerminationGracePeriod limits the time for which Karpenter drains a node, in whole seconds.
	// After that, Karpenter deletes the remaining pods. Zero: Karpenter waits until all pods are
	// evicted.
	TerminationGracePeriod time.Duration
	// Labels and Taints are set on the pool's nodes.
	Labels map[string]string
	Taints []corev1.Taint
}

// object returns the NodePool as an API object.
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
	requirements := []any{
		requirement(corev1.LabelArchStable, "amd64"), requirement(corev1.LabelOSStable, "linux"),
		requirement(KarpenterCapacityLabel, capacityTypes...),
	}
	for key, values := range p.Requirements {
		requirements = append(requirements, requirement(key, values...))
	}
	spec := map[string]any{
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"requirements": requirements,
				"nodeClassRef": map[string]any{"group": nodeClassKind.Group, "kind": nodeClassKind.Kind, "name": nodeClassName},
				"expireAfter":  orNever(p.ExpireAfter),
			},
		},
		"disruption": map[string]any{
			"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": orNever(p.ConsolidateAfter),
			// The default of 10 % would slow consolidation down and hide its effects.
			"budgets": []any{map[string]any{"nodes": "100%"}},
		},
	}
	template := spec["template"].(map[string]any)["spec"].(map[string]any)
	if len(p.Taints) > 0 {
		template["taints"] = p.taints()
	}
	if p.TerminationGracePeriod != 0 {
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

// taints returns the taints as in an API object.
func (p NodePool) taints() (taints []any) {
	for _, t := range p.Taints {
		taints = append(taints, map[string]any{"key": t.Key, "value": t.Value, "effect": string(t.Effect)})
	}
	return taints
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

// StartKarpenter installs Karpenter's CRDs, starts Karpenter with its provider of simulated
// nodes, and creates the NodePools. It returns when they are ready. KWOK simulates the kubelets
// of the nodes that Karpenter launches. Karpenter runs with the administrator's credential. It
// serves metrics and health on all addresses of the machine, because it has no flag for the
// address. Only one Karpenter can run at a time.
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
	metrics, err := PortOnAllAddresses()
	if err != nil {
		return nil, err
	}
	health, err := PortOnAllAddresses()
	if err != nil {
		return nil, err
	}
	httpClient, err := metricsClient(cp.config)
	if err != nil {
		return nil, err
	}
	// Karpenter reads its credential only from the environment.
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

// applyNodePools creates the node class and the NodePools. It returns when Karpenter reports that
// they are ready.
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
				return fmt.Errorf("NodePool %s is not ready", object.GetName())
			}
		}
		return nil
	})
}

// applyNodeClass creates or replaces the node class that all NodePools use.
func applyNodeClass(ctx context.Context, c client.Client, registrationDelay time.Duration) error {
	class := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"nodeRegistrationDelay": registrationDelay.String()},
	}}
	class.SetGroupVersionKind(nodeClassKind)
	class.SetName(nodeClassName)
	return apply(ctx, c, class)
}

// SetNodeRegistrationDelay changes KarpenterOptions.NodeRegistrationDelay of a running Karpenter,
// for nodes that it launches later.
func (cp *ControlPlane) SetNodeRegistrationDelay(ctx context.Context, delay time.Duration) error {
	c, err := client.New(cp.config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return applyNodeClass(ctx, c, delay)
}

// ApplyNodePool creates a NodePool of a running Karpenter, or replaces its specification.
// Karpenter caches for up to five minutes that it cannot consolidate a node. A changed
// specification invalidates that cache.
func (cp *ControlPlane) ApplyNodePool(ctx context.Context, pool NodePool) error {
	c, err := client.New(cp.config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return apply(ctx, c, pool.object())
}

// apply creates an object or replaces the specification of an existing object.
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

// installKarpenterCRDs creates the CRDs that do not exist. It returns a client with these kinds
// when the API server serves them.
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
					return errors.New("it is not established")
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

// conditionTrue reports whether the object's status has this condition with status True.
func conditionTrue(object *unstructured.Unstructured, conditionType string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == conditionType && condition["status"] == "True"
	})
}

// PortOnAllAddresses returns a TCP port on which no process listens on any address of this
// machine. The port is below the range that the kernel assigns to clients, so no connection uses
// it before the program listens.
func PortOnAllAddresses() (string, error) {
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
		if _, taken := usedAddresses.LoadOrStore(listener.Addr().String(), true); !taken {
			return port, nil
		}
	}
	return "", fmt.Errorf("no port from %d to %d is free on all addresses", first, first+ports-1)
}
