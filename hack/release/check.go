package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// checkRelease verifies the files of a release against each other, and runs the images. It prints
// its results, and returns the first violation.
func checkRelease(ctx context.Context, w io.Writer, dir, version string, images []program, plugin program) error {
	all, err := readAll(os.DirFS(dir))
	if err != nil {
		return err
	}
	sums := content(all, "checksums.txt")
	delete(all, "checksums.txt")
	if want := checksums(all); !bytes.Equal(sums, want) {
		return fmt.Errorf("checksums.txt:\n%swant, from the files:\n%s", sums, want)
	}
	fmt.Fprintf(w, "checksums: %d files\n", len(all))
	install := content(all, "install.yaml")
	if !bytes.Contains(install, []byte("\nkind: Deployment\n")) || bytes.Contains(install, []byte("localhost/")) {
		return errors.New("install.yaml: want Deployments, and no image in localhost")
	}
	for _, p := range images {
		archive := imageFile(p, version)
		digest, err := checkImages(ctx, w, all, p, version)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		fmt.Fprintf(w, "image: %s %s\n", archive, digest)
		// install.yaml contains no extender.
		image := "/" + p.name + ":"
		if bytes.Contains(install, []byte(image)) && !bytes.Contains(install, []byte(image+version+"@"+digest+"\n")) {
			return fmt.Errorf("install.yaml: does not pin %s by the digest %s", p.name, digest)
		}
	}
	for _, on := range pluginPlatforms {
		if err := checkPlugin(w, all, plugin, on, version); err != nil {
			return fmt.Errorf("%s: %w", packageFile(plugin, version, on), err)
		}
	}
	want, err := krewManifest(version, all, plugin)
	if got := content(all, krewFile); err == nil && !bytes.Equal(got, want) {
		return fmt.Errorf("%s:\n%swant, from the packages:\n%s", krewFile, got, want)
	}
	return err
}

// content returns the content of a file. A missing file has none, so every check of it fails.
func content(all files, name string) []byte {
	if f := all[name]; f != nil {
		return f.Data
	}
	return nil
}

// checkImages verifies the image of a program for all architectures, and returns its digest.
func checkImages(ctx context.Context, w io.Writer, all files, p program, version string) (string, error) {
	parts, err := untar(content(all, imageFile(p, version)))
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, parts); err != nil {
		return "", err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", err
	}
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
	for _, on := range imagePlatforms {
		found, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: on.os, Architecture: on.arch}))
		if err != nil {
			return "", err
		}
		if len(found) != 1 {
			return "", fmt.Errorf("has %d images for %s/%s, want 1", len(found), on.os, on.arch)
		}
		fmt.Fprintf(w, "image: %s %s/%s\n", p.name, on.os, on.arch)
		unpacked, err := checkImage(ctx, w, found[0], on.arch, version)
		if err != nil {
			return "", err
		}
		if err := checkModules(w, all, title(p, version, on), unpacked, p.name); err != nil {
			return "", err
		}
	}
	return digest.String(), nil
}

// checkPlugin verifies the package of the plugin for a platform.
func checkPlugin(w io.Writer, all files, plugin program, on platform, version string) error {
	unpack := untar
	if on.os == "windows" {
		unpack = unzip
	}
	unpacked, err := unpack(content(all, packageFile(plugin, version, on)))
	if err != nil {
		return err
	}
	if unpacked["LICENSE"] == nil {
		return errors.New("does not contain LICENSE")
	}
	delete(unpacked, "LICENSE")
	if err := onlyBinary(unpacked, executable(plugin, on)); err != nil {
		return err
	}
	return checkModules(w, all, title(plugin, version, on), unpacked, executable(plugin, on))
}

// checkModules compares the modules that the linker recorded in a binary with its SBOM, and with
// the licences beside it.
func checkModules(w io.Writer, all files, title string, unpacked files, binary string) error {
	data := unpacked[binary].Data
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if err := checkLicenses(unpacked, info); err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	doc, err := spdxjson.Read(bytes.NewReader(content(all, title+".spdx.json")))
	if err == nil {
		err = spdxlib.ValidateDocument(doc)
	}
	if err != nil {
		return fmt.Errorf("%s.spdx.json: %w", title, err)
	}
	main := doc.Packages[0].PackageChecksums
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); len(main) != 1 || main[0].Value != sum {
		return fmt.Errorf("%s.spdx.json: is about a binary with %v, want %s", title, main, sum)
	}
	var got, want []string
	for _, p := range doc.Packages[2:] { // after the binary and the standard library
		hash := strings.TrimPrefix(p.PackageSourceInfo, "Hash of the Go module, as in go.sum: ")
		got = append(got, p.PackageName+" "+p.PackageVersion+" "+hash)
	}
	for _, m := range modules(info) {
		want = append(want, m.Path+" "+m.Version+" "+m.Sum)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s.spdx.json: lists %q, want the modules of the binary %q", title, got, want)
	}
	fmt.Fprintf(w, "sbom: %s: all %d modules of the binary, each with a licence\n", title, len(want))
	return nil
}
