package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// installManifest returns the objects of manifests/base with the images of the release. Digests pin
// the images, so a registry cannot replace them.
func installManifest(root, registry, version string, digests map[string]string) ([]byte, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "manifests/base"))
	if err != nil {
		return nil, err
	}
	out, err := objects.AsYaml()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("# spot-aware-scheduler %s: the scheduler and the controller, with the shipped configuration.\n"+
		"# kubectl apply -f install.yaml\n%s", version, out)
	for name, digest := range digests {
		text = strings.ReplaceAll(text, "image: localhost/"+name+":dev\n", fmt.Sprintf("image: %s/%s:%s@%s\n", registry, name, version, digest))
	}
	return []byte(text), nil
}

// The lines of the chart's values.yaml about the registry: without releases, and of a release.
const (
	unpublished = "The registry, and the path in it. Required, because no images are published yet.\n  registry: \"\"\n"
	published   = "The registry, and the path in it.\n  registry: "
)

// packChart returns the Helm chart with the images of the release as defaults.
func packChart(ctx context.Context, root, registry, version string, date time.Time) ([]byte, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	chart := filepath.Join(dir, "spot-aware-scheduler")
	if _, err := run(exec.CommandContext(ctx, "cp", "-R", filepath.Join(root, "manifests/charts/spot-aware-scheduler"), chart)); err != nil {
		return nil, err
	}
	if err := replaceOnce(filepath.Join(chart, "values.yaml"), unpublished, published+registry+"\n"); err != nil {
		return nil, err
	}
	// The README contains the default values.
	if _, err := run(exec.CommandContext(ctx, filepath.Join(root, ".local/bin/helm-docs"),
		"--chart-search-root", chart, "--sort-values-order", "file", "--log-level", "warning")); err != nil {
		return nil, err
	}
	number := strings.TrimPrefix(version, "v")
	_, err = run(exec.CommandContext(ctx, filepath.Join(root, ".local/bin/helm"), "package",
		"--version", number, "--app-version", version, "--destination", dir, chart))
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "spot-aware-scheduler-"+number+".tgz"))
	if err != nil {
		return nil, err
	}
	// Helm writes the times of the files.
	content, err := untar(data)
	if err != nil {
		return nil, err
	}
	return tarGz(content, date)
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

// krewManifest returns the manifest with which kubectl krew installs the packages of the plugin in
// made. Krew's own Go module needs another client-go than the product, so its types are not used.
func krewManifest(version string, made files, plugin program) ([]byte, error) {
	var platforms []any
	for _, on := range pluginPlatforms {
		name := packageFile(plugin, version, on)
		data, err := made.ReadFile(name)
		if err != nil {
			return nil, err
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": on.os, "arch": on.arch}},
			"uri":      fmt.Sprintf("%s/releases/download/%s/%s", repository, version, name),
			"sha256":   fmt.Sprintf("%x", sha256.Sum256(data)),
			"bin":      executable(plugin, on),
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "spot"},
		"spec": map[string]any{
			"version":          version,
			"homepage":         repository,
			"shortDescription": "Show and plan the use of spot nodes",
			"description": "Shows where workloads run, on spot or on-demand nodes, and why.\n" +
				"Assesses which workloads could run on spot and what that would save,\n" +
				"also in clusters without spot-aware-scheduler.\n",
			"platforms": platforms,
		},
	})
}
