package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// karpenterData is the directory for Karpenter's data, other than its binary, that hack/tools.sh
// fills.
func (cp *ControlPlane) karpenterData() string { return filepath.Join(cp.Root, ".local", "karpenter") }

// KarpenterType is an instance type of Karpenter's simulated provider.
type KarpenterType struct {
	Name string
	// CPUMilli, MemoryMiB and Pods are the allocatable resources of a node.
	CPUMilli, MemoryMiB, Pods int64
	// Price is the lowest price in any zone, in US dollars per hour, by capacity type (Spot or
	// OnDemand).
	Price map[string]float64
}

// The provider subtracts these from every node's capacity.
const karpenterReservedCPUMilli, karpenterReservedMemoryMiB = 100, 10

// KarpenterTypes returns the instance types with these names, in the order of the names.
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

// readKarpenterTypes returns the descriptions of the instance types with these names, in the
// order of the names.
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
			return nil, fmt.Errorf("InstanceTypes: Karpenter does not support %q; supported names include %s", name,
				strings.Join(DefaultKarpenterTypes, ", "))
		}
		chosen = append(chosen, one)
	}
	return chosen, nil
}

// writeKarpenterTypes writes the instance types with these names to a file and returns the file's
// name.
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
