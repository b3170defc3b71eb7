package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"sigs.k8s.io/yaml"
)

// checkRelease verifies the files of a release against each other, and runs the images. It prints
// its results, and returns the first violation.
func checkRelease(ctx context.Context, w io.Writer, dir, version string, images []program, plugin program) error {
	all, err := readFolder(dir)
	if err != nil {
		return err
	}
	files := map[string]file{}
	for _, f := range all {
		files[f.name] = f
	}
	sums := files["checksums.txt"].data
	if want := checksums(slices.DeleteFunc(all, func(f file) bool { return f.name == "checksums.txt" })); !bytes.Equal(sums, want) {
		return fmt.Errorf("checksums.txt:\n%swant, from the files:\n%s", sums, want)
	}
	fmt.Fprintf(w, "checksums: %d files\n", len(files)-1)
	for _, p := range images {
		archive := imageFile(p, version)
		digest, err := checkImages(ctx, w, files, p, version)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		fmt.Fprintf(w, "image: %s %s\n", archive, digest)
		// install.yaml contains no extender.
		install, image := string(files["install.yaml"].data), "/"+p.name+":"
		if strings.Contains(install, image) && !strings.Contains(install, image+version+"@"+digest+"\n") {
			return fmt.Errorf("install.yaml: does not pin %s by the digest %s", p.name, digest)
		}
	}
	for _, on := range pluginPlatforms {
		if err := checkPlugin(ctx, w, files, plugin, on, version); err != nil {
			return fmt.Errorf("%s: %w", title(plugin, version, on), err)
		}
	}
	return checkManifests(files, version)
}

// checkImages verifies the image of a program for all architectures, and returns its digest.
func checkImages(ctx context.Context, w io.Writer, files map[string]file, p program, version string) (string, error) {
	index, cleanup, err := openIndex(files[imageFile(p, version)].data)
	if err != nil {
		return "", err
	}
	defer cleanup()
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("contains %d images, want one for all architectures", len(manifest.Manifests))
	}
	digest := manifest.Manifests[0].Digest
	if index, err = index.ImageIndex(digest); err != nil {
		return "", err
	}
	if manifest, err = index.IndexManifest(); err != nil {
		return "", err
	}
	if len(manifest.Manifests) != len(imagePlatforms) {
		return "", fmt.Errorf("has %d architectures, want %d", len(manifest.Manifests), len(imagePlatforms))
	}
	for i, on := range imagePlatforms {
		entry := manifest.Manifests[i]
		if entry.Platform == nil || entry.Platform.OS != on.os || entry.Platform.Architecture != on.arch {
			return "", fmt.Errorf("platform %d: %v, want %v", i, entry.Platform, on)
		}
		image, err := index.Image(entry.Digest)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(w, "image: %s %s/%s\n", p.name, on.os, on.arch)
		content, err := checkImage(ctx, w, image, on.arch, version)
		if err != nil {
			return "", err
		}
		if err := checkContent(ctx, w, files, title(p, version, on), p.name, content); err != nil {
			return "", err
		}
	}
	return digest.String(), nil
}

// openIndex unpacks an OCI image layout. The caller must call cleanup if the error is nil.
func openIndex(archive []byte) (index v1.ImageIndex, cleanup func(), err error) {
	files, err := untar(archive)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, nil, err
	}
	cleanup = func() { os.RemoveAll(dir) }
	for _, f := range files {
		to := filepath.Join(dir, f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.data, 0o600)); err != nil {
			cleanup()
			return nil, nil, err
		}
	}
	index, err = layout.ImageIndexFromPath(dir)
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return index, cleanup, nil
}

// checkPlugin verifies the package of the plugin for a platform, and its entry in krew's manifest.
func checkPlugin(ctx context.Context, w io.Writer, files map[string]file, plugin program, on platform, version string) error {
	name := title(plugin, version, on) + packageExtension(on)
	unpack := untar
	if on.os == "windows" {
		unpack = unzip
	}
	content, err := unpack(files[name].data)
	if err != nil {
		return err
	}
	if _, err := onlyBinaryAndLicense(content, executable(plugin, on)); err != nil {
		return err
	}
	var krew krewPlugin
	if err := yaml.UnmarshalStrict(files[krewFile].data, &krew); err != nil {
		return err
	}
	want := krewPlatform{
		Selector: krewSelector{map[string]string{"os": on.os, "arch": on.arch}},
		URI:      repository + "/releases/download/" + version + "/" + name,
		SHA256:   fmt.Sprintf("%x", sha256.Sum256(files[name].data)),
		Bin:      executable(plugin, on),
	}
	if !slices.ContainsFunc(krew.Spec.Platforms, func(p krewPlatform) bool {
		return maps.Equal(p.Selector.MatchLabels, want.Selector.MatchLabels) && p.URI == want.URI && p.SHA256 == want.SHA256 && p.Bin == want.Bin
	}) {
		return fmt.Errorf("%s: has no platform %+v", krewFile, want)
	}
	return checkContent(ctx, w, files, title(plugin, version, on), executable(plugin, on), content)
}

// onlyBinaryAndLicense is onlyBinary for a package, which also has the license of the project at
// its top.
func onlyBinaryAndLicense(files []file, binary string) (file, error) {
	inner := slices.DeleteFunc(slices.Clone(files), func(f file) bool { return f.name == "LICENSE" })
	if len(inner) != len(files)-1 {
		return file{}, errors.New("does not contain LICENSE")
	}
	return onlyBinary(inner, "/"+binary)
}

// checkContent compares the modules that go version lists for a binary with its SBOM and with the
// licences beside it.
func checkContent(ctx context.Context, w io.Writer, files map[string]file, title, binary string, content []file) error {
	at := slices.IndexFunc(content, func(f file) bool { return f.name == binary })
	want, err := goVersion(ctx, content[at].data)
	if err != nil {
		return err
	}
	doc, err := spdxjson.Read(bytes.NewReader(files[title+".spdx.json"].data))
	if err == nil {
		err = spdxlib.ValidateDocument(doc)
	}
	if err != nil {
		return fmt.Errorf("%s.spdx.json: %w", title, err)
	}
	main := doc.Packages[0].PackageChecksums
	if sum := fmt.Sprintf("%x", sha256.Sum256(content[at].data)); len(main) != 1 || main[0].Value != sum {
		return fmt.Errorf("%s.spdx.json: is about a binary with %v, want %s", title, main, sum)
	}
	var got []string
	for _, p := range doc.Packages[2:] { // after the binary and the standard library
		hash := strings.TrimPrefix(p.PackageSourceInfo, "Hash of the Go module, as in go.sum: ")
		got = append(got, p.PackageName+" "+p.PackageVersion+" "+hash)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s.spdx.json: lists %q, want the modules of the binary %q", title, got, want)
	}
	for _, module := range want {
		fields := strings.Fields(module)
		folder := path.Join("licenses", fields[0]+"@"+fields[1]) + "/"
		if !slices.ContainsFunc(content, func(f file) bool { return strings.HasPrefix(f.name, folder) }) {
			return fmt.Errorf("%s: contains no licence of %s %s", title, fields[0], fields[1])
		}
	}
	fmt.Fprintf(w, "sbom: %s: all %d modules of the binary, each with a licence\n", title, len(want))
	return nil
}

// goVersion returns "path version hash" of each module that go version -m lists for a binary,
// replacements instead of what they replace.
func goVersion(ctx context.Context, binary []byte) ([]string, error) {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "binary")
	if err := os.WriteFile(name, binary, 0o700); err != nil {
		return nil, err
	}
	out, err := run(exec.CommandContext(ctx, "go", "version", "-m", name))
	if err != nil {
		return nil, err
	}
	var modules []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if module, ok := strings.CutPrefix(line, "dep\t"); ok {
			modules = append(modules, strings.ReplaceAll(module, "\t", " "))
		} else if module, ok := strings.CutPrefix(line, "=>\t"); ok {
			modules[len(modules)-1] = strings.ReplaceAll(module, "\t", " ")
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("go version -m lists no module:\n%s", out)
	}
	return modules, nil
}

// checkManifests verifies that the manifests name images of the release only.
func checkManifests(files map[string]file, version string) error {
	install := string(files["install.yaml"].data)
	if !strings.Contains(install, "\nkind: Deployment\n") || strings.Contains(install, "localhost/") {
		return errors.New("install.yaml: want Deployments, and no image in localhost")
	}
	name := "spot-aware-scheduler-" + strings.TrimPrefix(version, "v") + ".tgz"
	content, err := untar(files[name].data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, f := range content {
		var values struct {
			Version, AppVersion string
			Image               struct{ Registry string }
		}
		if f.name != "spot-aware-scheduler/Chart.yaml" && f.name != "spot-aware-scheduler/values.yaml" {
			continue
		}
		if err := yaml.Unmarshal(f.data, &values); err != nil {
			return fmt.Errorf("%s: %s: %w", name, f.name, err)
		}
		if path.Base(f.name) == "Chart.yaml" && ("v"+values.Version != version || values.AppVersion != version) {
			return fmt.Errorf("%s: version %s, appVersion %s; want %s for both", name, values.Version, values.AppVersion, version)
		}
		if path.Base(f.name) == "values.yaml" && !strings.Contains(install, " "+values.Image.Registry+"/spot-controller:") {
			return fmt.Errorf("%s: image.registry: %s; want the registry of install.yaml", name, values.Image.Registry)
		}
	}
	return nil
}
