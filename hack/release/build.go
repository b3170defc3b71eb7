package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const repository = "https://github.com/spot-aware-scheduler/spot-aware-scheduler"

// program is a binary of the release.
type program struct {
	name        string // of the binary and of its image
	pkg         string // the folder of its main package
	description string // the label of its image
}

// The programs with an image, as in the Dockerfile.
var images = []program{
	{"spot-aware-scheduler", "./cmd/scheduler", "Runs workloads on spot nodes as far as is safe"},
	{"spot-controller", "./cmd/controller", "Moves pods off spot nodes that are about to be reclaimed, and back to spot"},
	{"spot-extender", "./cmd/extender", "Gives a stock kube-scheduler the placement decisions of spot-aware-scheduler"},
}

// plugin is the program that users run.
var plugin = program{name: "kubectl-spot", pkg: "./cmd/kubectl-spot"}

type platform struct{ os, arch string }

var (
	imagePlatforms  = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	pluginPlatforms = []platform{
		{"linux", "amd64"}, {"linux", "arm64"},
		{"darwin", "amd64"}, {"darwin", "arm64"},
		{"windows", "amd64"}, {"windows", "arm64"},
	}
)

// release contains everything that determines the bytes of the files.
type release struct {
	root     string // of the sources
	version  string
	registry string
	ldflags  string
	date     time.Time
	images   []program
	plugin   program
}

// binary is a program that was built for a platform.
type binary struct {
	program
	platform
	data     []byte
	licenses []file
}

// title returns the name of the binary's files in the release, without extension.
func (b *binary) title(version string) string { return title(b.program, version, b.platform) }

func title(p program, version string, on platform) string {
	return fmt.Sprintf("%s_%s_%s_%s", p.name, version, on.os, on.arch)
}

// write builds the release and moves it to dist/VERSION, whose path it returns. After an error
// nothing of the new release is in dist.
func (r *release) write(ctx context.Context, dist string) (string, error) {
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return "", err
	}
	stage, err := os.MkdirTemp(dist, ".release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(stage)
	files, err := r.build(ctx)
	if err != nil {
		return "", err
	}
	files = append(files, file{name: "checksums.txt", data: checksums(files)})
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(stage, f.name), f.data, 0o644); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(dist, r.version)
	return dir, errors.Join(os.Chmod(stage, 0o755), os.RemoveAll(dir), os.Rename(stage, dir))
}

// build returns the files of the release except the checksums.
func (r *release) build(ctx context.Context) ([]file, error) {
	var files []file
	third := map[string]file{} // the licences of all binaries
	digests := map[string]string{}
	add := func(b *binary) error {
		sbom, err := sbom(b, r.version, r.date)
		files = append(files, file{name: b.title(r.version) + ".spdx.json", data: sbom})
		for _, f := range b.licenses {
			third[f.name] = f
		}
		return err
	}
	for _, p := range r.images {
		var binaries []*binary
		for _, on := range imagePlatforms {
			b, err := r.compile(ctx, p, on)
			if err != nil {
				return nil, err
			}
			if err := add(b); err != nil {
				return nil, err
			}
			binaries = append(binaries, b)
		}
		archive, digest, err := imageArchive(binaries, r.registry, r.version, r.date)
		if err != nil {
			return nil, err
		}
		digests[p.name] = digest
		files = append(files, file{name: imageFile(p, r.version), data: archive})
	}
	var packages []pluginPackage
	for _, on := range pluginPlatforms {
		b, err := r.compile(ctx, r.plugin, on)
		if err != nil {
			return nil, err
		}
		if err := add(b); err != nil {
			return nil, err
		}
		f, err := packPlugin(r.root, b, r.version, r.date)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		packages = append(packages, pluginPackage{on, f.name, sha256.Sum256(f.data)})
	}
	more, err := r.describe(ctx, digests, packages)
	if err != nil {
		return nil, err
	}
	archive, err := tarGz(slices.Collect(maps.Values(third)), r.date)
	if err != nil {
		return nil, err
	}
	return append(append(files, more...), file{name: "third-party-licenses.tar.gz", data: archive}), nil
}

// describe returns the chart, install.yaml and the krew manifest, which name images and packages.
func (r *release) describe(ctx context.Context, digests map[string]string, packages []pluginPackage) ([]file, error) {
	chart, err := packChart(ctx, r.root, r.registry, r.version, r.date)
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	install, err := installManifest(r.root, r.registry, r.version, digests)
	if err != nil {
		return nil, fmt.Errorf("install.yaml: %w", err)
	}
	krew, err := krewManifest(r.version, packages)
	if err != nil {
		return nil, fmt.Errorf("krew manifest: %w", err)
	}
	return []file{chart, {name: "install.yaml", data: install}, {name: krewFile, data: krew}}, nil
}

func imageFile(p program, version string) string { return p.name + "_" + version + "_image.tar" }

// compile builds a program for a platform, and reads the licences of its modules.
func (r *release) compile(ctx context.Context, p program, on platform) (*binary, error) {
	fmt.Fprintf(os.Stderr, "release: building %s for %s/%s\n", p.name, on.os, on.arch)
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, p.name)
	// Without version control in the binary, a clone, a worktree and an unpacked archive give the
	// same bytes.
	_, err = run(goCommand(ctx, r.root, on, "build", "-buildvcs=false", "-ldflags", r.ldflags, "-o", out, p.pkg))
	if err != nil {
		return nil, err
	}
	b := &binary{program: p, platform: on}
	if b.data, err = os.ReadFile(out); err != nil {
		return nil, err
	}
	if b.licenses, err = licenses(ctx, r.root, p.pkg, on); err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(b.data))
	if err != nil {
		return nil, err
	}
	return b, checkLicenses(b.licenses, info)
}

// goCommand returns a go command for a platform that does not depend on the user's settings.
func goCommand(ctx context.Context, dir string, on platform, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS="+on.os, "GOARCH="+on.arch, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0",
		"GOFLAGS=-trimpath", "GOWORK=off", "GOTOOLCHAIN=local", "GOEXPERIMENT=", "GOFIPS140=off")
	return cmd
}

// run returns the output of a command. Its error contains what the command wrote to standard error.
func run(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return out, nil
}

// packPlugin returns the package of the plugin for one platform: the binary and all licences.
func packPlugin(root string, b *binary, version string, date time.Time) (file, error) {
	license, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return file{}, err
	}
	files := []file{{name: executable(b.program, b.platform), data: b.data, executable: true}, {name: "LICENSE", data: license}}
	for _, f := range b.licenses {
		files = append(files, file{name: path.Join("licenses", f.name), data: f.data})
	}
	pack := tarGz
	if b.os == "windows" {
		pack = zipped
	}
	data, err := pack(files, date)
	return file{name: b.title(version) + packageExtension(b.platform), data: data}, err
}

func executable(p program, on platform) string {
	if on.os == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

func packageExtension(on platform) string {
	if on.os == "windows" {
		return ".zip"
	}
	return ".tar.gz"
}
