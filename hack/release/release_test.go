package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"sigs.k8s.io/yaml"
)

const (
	root    = "../.."
	version = "v0.1.0"
)

// tiny is a release whose programs build in seconds.
func tiny(root string) *release {
	const pkg = "./hack/release/testdata/tiny"
	return &release{
		root: root, version: version, registry: "registry.example/team", date: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC),
		ldflags: "-s -w -X main.version=v1.36.4+spot-aware-scheduler." + version,
		images:  []program{{"spot-aware-scheduler", pkg, "Schedules"}, {"spot-controller", pkg, "Controls"}},
		plugin:  program{name: plugin.name, pkg: pkg},
	}
}

// copySources copies what a tiny release needs, without version control. The copy has only the
// product's module, which then contains the tiny program.
func copySources(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "LICENSE", "config", "manifests", "hack/release/testdata"} {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-R", filepath.Join(root, name), to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	tools, err := filepath.Abs(filepath.Join(root, ".local"))
	if err == nil {
		err = os.Symlink(tools, filepath.Join(dir, ".local"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRelease builds a release in two folders. Every file must have the same digest, and pass
// release check. After a change of any kind of file, release check must fail.
func TestRelease(t *testing.T) {
	r := tiny(copySources(t))
	dir, err := r.write(t.Context(), t.TempDir())
	if err != nil {
		t.Fatalf("%v (make tools builds Helm)", err)
	}
	second, err := tiny(copySources(t)).write(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(readFile(t, dir, "checksums.txt"), readFile(t, second, "checksums.txt")); diff != "" {
		t.Errorf("digests of the same release in two folders (-first +second):\n%s", diff)
	}
	var out bytes.Buffer
	if err := checkRelease(t.Context(), &out, dir, r.version, r.images, r.plugin); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 && strings.Count(out.String(), "as 65532 in an empty root: v1.36.4+spot-aware-scheduler."+version) != len(r.images) {
		t.Errorf("not all images ran:\n%s", out.String())
	}
	// The program tar is stricter than Go: it refuses an archive without an end.
	listed, err := exec.Command("tar", "--utc", "--numeric-owner", "-tvzf", filepath.Join(dir, "kubectl-spot_v0.1.0_linux_amd64.tar.gz")).CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^-rwxr-xr-x 0/0 +\d+ 2026-11-25 12:00 kubectl-spot$`).Match(listed) {
		t.Errorf("package: %v\n%s", err, listed)
	}
	sbom, windows := "spot-controller_v0.1.0_linux_arm64.spdx.json", "kubectl-spot_v0.1.0_windows_amd64.spdx.json"
	install := readFile(t, dir, "install.yaml")
	pin := regexp.MustCompile(`spot-controller:v0.1.0@sha256:\w+`).FindString(install)
	for name, test := range map[string]struct{ file, old, new, want string }{
		"module missing in SBOM":  {sbom, `"name": "sigs.k8s.io/yaml"`, `"name": "sigs.k8s.io/json"`, "want the modules of the binary"},
		"hash wrong in SBOM":      {windows, "go.sum: h1:", "go.sum: h1:x", "want the modules of the binary"},
		"krew manifest":           {krewFile, "bin: kubectl-spot.exe", "bin: kubectl-spot", "from the packages"},
		"digest in install.yaml":  {"install.yaml", pin, "spot-controller:" + version, "does not pin spot-controller"},
		"image that is not ours":  {"install.yaml", "registry.example/team/spot-", "localhost/spot-", "no image in localhost"},
		"file without a checksum": {"checksums.txt", "install.yaml", "uninstall.yaml", "checksums.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			change(t, dir, test.file, test.old, test.new)
			if err := checkRelease(t.Context(), io.Discard, dir, r.version, r.images, r.plugin); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("check returned %v, want an error that contains %q", err, test.want)
			}
		})
	}
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// change replaces a text in a file of the release, until the end of the test. It updates the
// checksums.
func change(t *testing.T, dir, name, old, text string) {
	t.Helper()
	before, sums := readFile(t, dir, name), readFile(t, dir, "checksums.txt")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		write(name, before)
		write("checksums.txt", sums)
	})
	after := strings.ReplaceAll(before, old, text)
	if after == before || old == "" {
		t.Fatalf("%s does not contain %q", name, old)
	}
	write(name, after)
	if name == "checksums.txt" {
		return
	}
	sum := func(text string) string { return strings.Fields(string(checksums(files{"": {Data: []byte(text)}})))[0] }
	write("checksums.txt", strings.Replace(sums, sum(before), sum(after), 1))
}

// TestFailedBuild checks that an error leaves an earlier build of the version as it was, and
// nothing else.
func TestFailedBuild(t *testing.T) {
	dist := t.TempDir()
	old := filepath.Join(dist, version, "install.yaml")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := tiny(copySources(t))
	r.plugin.pkg = "./hack/release/testdata/missing"
	if _, err := r.write(t.Context(), dist); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("write returned %v, want an error about the missing package", err)
	}
	found, err := readAll(os.DirFS(dist))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files{version + "/install.yaml": newFile([]byte("old"), false)}, found); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestCheckVersion(t *testing.T) {
	for version, valid := range map[string]bool{
		"v0.1.0": true, "v1.20.3": true, "v0.2.0-rc.1": true,
		"": false, "0.1.0": false, "v0.1": false, "v0.1.0+build": false, "v01.0.0": false, "v0.1.0 ": false, "v0.1.0/..": false,
		"4b0ba8d":                 false,
		"v0.1.0-3-g4b0ba8d-dirty": true, // a prerelease, as git describe prints it
	} {
		if err := checkVersion(version); (err == nil) != valid {
			t.Errorf("%q: %v, want valid: %t", version, err, valid)
		}
	}
}

func TestCheckRegistry(t *testing.T) {
	for registry, valid := range map[string]bool{
		"ghcr.io/spot-aware-scheduler": true, "localhost:5000": true,
		"": false, "ghcr.io/Team": false, "ghcr.io/team/": false, "https://ghcr.io": false,
	} {
		if err := checkRegistry(registry); (err == nil) != valid {
			t.Errorf("%q: %v, want valid: %t", registry, err, valid)
		}
	}
}

func TestReleaseDate(t *testing.T) {
	if got, err := releaseDate(t.Context(), "1764072000"); err != nil || got.Format(time.RFC3339) != "2025-11-25T12:00:00Z" {
		t.Errorf("%v, %v", got, err)
	}
	for _, epoch := range []string{"0", "soon", "-1", "17e8"} {
		if got, err := releaseDate(t.Context(), epoch); err == nil {
			t.Errorf("%q: %v, want an error", epoch, got)
		}
	}
	commit, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := releaseDate(t.Context(), ""); err != nil || fmt.Sprintln(got.Unix()) != string(commit) {
		t.Errorf("%v, %v, want the time of the commit, %s", got, err, commit)
	}
}

// TestDockerfile checks that make image and make release build the same images.
func TestDockerfile(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stages := regexp.MustCompile(`(?m)^FROM `).Split(string(data), -1)[1:]
	if len(stages) != len(images) {
		t.Fatalf("%d stages, want %d", len(stages), len(images))
	}
	for i, p := range images {
		image, err := newImage(&binary{program: p, platform: imagePlatforms[0]}, version, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{}
		for _, match := range regexp.MustCompile(`(org\.\S+)="(.*)"`).FindAllStringSubmatch(stages[i], -1) {
			labels[match[1]] = strings.ReplaceAll(match[2], "${VERSION}", version)
		}
		if diff := cmp.Diff(labels, config.Config.Labels); diff != "" {
			t.Errorf("labels of %s (-Dockerfile +release):\n%s", p.name, diff)
		}
		for _, line := range []string{
			"scratch AS " + filepath.Base(p.pkg) + "\n",
			"\nUSER " + config.Config.User + "\n",
			"\nENTRYPOINT [\"" + config.Config.Entrypoint[0] + "\"]\n",
		} {
			if !strings.Contains(stages[i], line) {
				t.Errorf("stage %d of the Dockerfile lacks %q", i, line)
			}
		}
	}
}

// TestCheckImage gives images with one mistake to checkImage.
func TestCheckImage(t *testing.T) {
	ctx := context.Background()
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := binary{
		program: program{name: "spot"}, platform: platform{"linux", "amd64"},
		licenses: files{"go/LICENSE": newFile([]byte("text"), false)},
	}
	dynamic, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mistake func(b *binary, c *v1.ConfigFile)
		want    string
	}{
		"root":         {func(_ *binary, c *v1.ConfigFile) { c.Config.User = "0:0" }, "user"},
		"architecture": {func(_ *binary, c *v1.ConfigFile) { c.Architecture = "arm64" }, "architecture"},
		"command":      {func(_ *binary, c *v1.ConfigFile) { c.Config.Cmd = []string{"-v"} }, "command"},
		"no licences":  {func(b *binary, _ *v1.ConfigFile) { b.licenses = nil }, "contains 1 files"},
		"no binary":    {func(b *binary, _ *v1.ConfigFile) { b.data = bytes.Repeat([]byte("#"), 100) }, "bad magic"},
		"dynamic":      {func(b *binary, _ *v1.ConfigFile) { b.data = dynamic }, "is not static"},
	} {
		t.Run(name, func(t *testing.T) {
			b := good
			b.licenses = maps.Clone(good.licenses)
			test.mistake(&b, &v1.ConfigFile{})
			image, err := newImage(&b, version, date)
			if err != nil {
				t.Fatal(err)
			}
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			config = config.DeepCopy()
			test.mistake(&b, config)
			if image, err = mutate.ConfigFile(image, config); err != nil {
				t.Fatal(err)
			}
			if _, err := checkImage(ctx, io.Discard, image, "amd64", version); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("checkImage returned %v, want an error that contains %q", err, test.want)
			}
		})
	}
	more := files{"spot": newFile(nil, true), "licenses/a": newFile([]byte("text"), false), "shell": newFile([]byte("#"), false)}
	if err := onlyBinary(more, "spot"); err == nil || !strings.Contains(err.Error(), "contains shell") {
		t.Errorf("onlyBinary returned %v, want an error about the file shell", err)
	}
	if _, err := checkImage(ctx, io.Discard, empty.Image, "amd64", version); err == nil {
		t.Error("checkImage returned no error for an empty image")
	}
}

// TestMissingLicense removes the licences of one module.
func TestMissingLicense(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Path: "main"}, Deps: []*debug.Module{
		{Path: "a", Version: "v1"}, {Path: "b", Version: "v1", Replace: &debug.Module{Path: "c", Version: "v2"}},
	}}
	all := files{}
	for _, module := range []string{"go", "main", "a@v1", "c@v2"} {
		all["licenses/"+module+"/LICENSE"] = newFile(nil, false)
	}
	if err := checkLicenses(all, info); err != nil {
		t.Fatal(err)
	}
	for name := range all {
		rest := maps.Clone(all)
		delete(rest, name)
		if err := checkLicenses(rest, info); err == nil || !strings.Contains(err.Error(), path.Base(path.Dir(name))) {
			t.Errorf("without %s: %v, want an error that names the module", name, err)
		}
	}
}

// TestKrewManifest checks the rules of krew's validate-krew-manifest for the text.
func TestKrewManifest(t *testing.T) {
	made := files{}
	for _, on := range pluginPlatforms {
		made[packageFile(plugin, version, on)] = newFile(nil, false)
	}
	data, err := krewManifest(version, made, plugin)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Spec struct{ ShortDescription string }
	}
	if err := yaml.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	if text := p.Spec.ShortDescription; text == "" || len(text) > 80 || strings.ContainsAny(text, "\r\n") || strings.HasSuffix(text, ".") {
		t.Errorf("shortDescription: %q, expected one line without a period", text)
	}
}
