package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
	licenses files
}

// content returns the binary with a name, and its licences.
func (b *binary) content(name string) files {
	content := files{name: newFile(b.data, true)}
	for license, f := range b.licenses {
		content["licenses/"+license] = f
	}
	return content
}

// title returns the name of the files about a binary, without extension.
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
	made, err := r.build(ctx)
	if err != nil {
		return "", err
	}
	made["checksums.txt"] = newFile(checksums(made), false)
	if err := os.CopyFS(stage, made); err != nil {
		return "", err
	}
	dir := filepath.Join(dist, r.version)
	return dir, errors.Join(os.Chmod(stage, 0o755), os.RemoveAll(dir), os.Rename(stage, dir))
}

// build returns the files of the release except the checksums.
func (r *release) build(ctx context.Context) (files, error) {
	made := files{}
	third := files{} // the licences of all binaries
	digests := map[string]string{}
	compile := func(p program, on platform) (*binary, error) {
		b, err := r.compile(ctx, p, on)
		if err != nil {
			return nil, err
		}
		sbom, err := sbom(b, r.version, r.date)
		made[title(p, r.version, on)+".spdx.json"] = newFile(sbom, false)
		maps.Copy(third, b.licenses)
		return b, err
	}
	for _, p := range r.images {
		var binaries []*binary
		for _, on := range imagePlatforms {
			b, err := compile(p, on)
			if err != nil {
				return nil, err
			}
			binaries = append(binaries, b)
		}
		archive, digest, err := imageArchive(binaries, r.registry, r.version, r.date)
		if err != nil {
			return nil, err
		}
		digests[p.name] = digest
		made[imageFile(p, r.version)] = newFile(archive, false)
	}
	for _, on := range pluginPlatforms {
		b, err := compile(r.plugin, on)
		if err != nil {
			return nil, err
		}
		data, err := packPlugin(r.root, b, r.date)
		if err != nil {
			return nil, err
		}
		made[packageFile(r.plugin, r.version, on)] = newFile(data, false)
	}
	archive, err := tarGz(third, r.date)
	if err != nil {
		return nil, err
	}
	made["third-party-licenses.tar.gz"] = newFile(archive, false)
	return made, r.describe(ctx, made, digests)
}

// describe adds the chart, install.yaml and the krew manifest, which name images and packages.
func (r *release) describe(ctx context.Context, made files, digests map[string]string) error {
	krew, err := krewManifest(r.version, made, r.plugin)
	if err != nil {
		return fmt.Errorf("krew manifest: %w", err)
	}
	install, err := installManifest(r.root, r.registry, r.version, digests)
	if err != nil {
		return fmt.Errorf("install.yaml: %w", err)
	}
	chart, err := packChart(ctx, r.root, r.registry, r.version, r.date)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	made[krewFile], made["install.yaml"] = newFile(krew, false), newFile(install, false)
	made["spot-aware-scheduler-"+strings.TrimPrefix(r.version, "v")+".tgz"] = newFile(chart, false)
	return nil
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
	b.licenses, err = licenses(ctx, r.root, p.pkg, on)
	return b, err
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
func packPlugin(root string, b *binary, date time.Time) ([]byte, error) {
	license, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	content := b.content(executable(b.program, b.platform))
	content["LICENSE"] = newFile(license, false)
	if b.os == "windows" {
		return zipped(content, date)
	}
	return tarGz(content, date)
}

func executable(p program, on platform) string {
	if on.os == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

func packageFile(p program, version string, on platform) string {
	if on.os == "windows" {
		return title(p, version, on) + ".zip"
	}
	return title(p, version, on) + ".tar.gz"
}
