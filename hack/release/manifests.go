package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// installManifest returns the objects of manifests/base with the images of the release. Digests pin
// the images, so a registry cannot replace them.
func installManifest(root, registry, version string, digests map[string]string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// kustomize resolves symbolic links, and rejects absolute paths.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	base, err := filepath.Abs(filepath.Join(root, "manifests", "base"))
	if err != nil {
		return nil, err
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return nil, err
	}
	if base, err = filepath.Rel(dir, base); err != nil {
		return nil, err
	}
	k := kustomize.Kustomization{Resources: []string{base}}
	for name, digest := range digests {
		k.Images = append(k.Images, kustomize.Image{
			Name: "localhost/" + name, NewName: registry + "/" + name, NewTag: version, Digest: digest,
		})
	}
	data, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), data, 0o600); err != nil {
		return nil, err
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	out, err := objects.AsYaml()
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("# spot-aware-scheduler %s: the scheduler and the controller, with the shipped configuration.\n"+
		"# kubectl apply -f install.yaml\n", version)
	return append([]byte(head), out...), nil
}

// packChart returns the Helm chart with the images of the release as defaults.
func packChart(ctx context.Context, root, registry, version string, date time.Time) (file, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return file{}, err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return file{}, err
	}
	defer os.RemoveAll(dir)
	chart := filepath.Join(dir, "spot-aware-scheduler")
	// -L copies the manifests to which the chart has links.
	if _, err := run(exec.CommandContext(ctx, "cp", "-RL", filepath.Join(root, "manifests/charts/spot-aware-scheduler"), chart)); err != nil {
		return file{}, err
	}
	if err := replaceOnce(filepath.Join(chart, "values.yaml"), "\n  registry: localhost\n", "\n  registry: "+registry+"\n"); err != nil {
		return file{}, err
	}
	// The README contains the default values.
	if _, err := run(exec.CommandContext(ctx, filepath.Join(root, ".local/bin/helm-docs"),
		"--chart-search-root", chart, "--sort-values-order", "file", "--log-level", "warning")); err != nil {
		return file{}, err
	}
	number := strings.TrimPrefix(version, "v")
	_, err = run(exec.CommandContext(ctx, filepath.Join(root, ".local/bin/helm"), "package",
		"--version", number, "--app-version", version, "--destination", dir, chart))
	if err != nil {
		return file{}, err
	}
	name := "spot-aware-scheduler-" + number + ".tgz"
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return file{}, err
	}
	// Helm writes the times of the files.
	files, err := untar(data)
	if err != nil {
		return file{}, err
	}
	data, err = tarGz(files, date)
	return file{name: name, data: data}, err
}

// replaceOnce replaces a text that the file must contain exactly once.
func replaceOnce(path, old, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := bytes.Count(data, []byte(old)); n != 1 {
		return fmt.Errorf("%s: found %q %d times, expected once", path, old, n)
	}
	return os.WriteFile(path, bytes.Replace(data, []byte(old), []byte(text), 1), 0o644)
}

// krewFile is the manifest's name in krew's index.
const krewFile = "spot.yaml"

// pluginPackage is an archive of the plugin for one platform.
type pluginPackage struct {
	platform
	name   string
	sha256 [32]byte
}

// krewPlugin is a Plugin of krew. Krew's own Go module needs another client-go than the product.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krewManifest returns the manifest with which kubectl krew installs the packages.
func krewManifest(version string, packages []pluginPackage) ([]byte, error) {
	p := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: krewMetadata{Name: "spot"}}
	p.Spec = krewSpec{
		Version:          version,
		Homepage:         repository,
		ShortDescription: "Show and plan the use of spot nodes",
		Description: "Shows where workloads run, on spot or on-demand nodes, and why.\n" +
			"Assesses which workloads could run on spot and what that would save,\n" +
			"also in clusters without spot-aware-scheduler.\n",
	}
	for _, on := range packages {
		p.Spec.Platforms = append(p.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": on.os, "arch": on.arch}},
			URI:      fmt.Sprintf("%s/releases/download/%s/%s", repository, version, on.name),
			SHA256:   fmt.Sprintf("%x", on.sha256),
			Bin:      executable(plugin, on.platform),
		})
	}
	return yaml.Marshal(p)
}
