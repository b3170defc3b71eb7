package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// maxCompressed is the largest size of the compressed image: 80 MB, with a registry's megabyte of
// 1,000,000 bytes.
const maxCompressed = 80_000_000

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkArchive verifies a docker-archive that make image built.
func checkArchive(ctx context.Context, w io.Writer, archive, arch, tag, version string) error {
	want, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	image, err := tarball.ImageFromPath(archive, &want)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	fmt.Fprintf(w, "image: %s linux/%s: %s\n", tag, arch, archive)
	if _, err := checkImage(ctx, w, image, arch, version); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	return nil
}

// checkImage verifies an image, and returns its files. The image must contain one static, stripped
// binary for one architecture and licences, run as a non-root user, and be small enough to pull
// quickly. On a machine of that architecture, checkImage also runs the binary. It prints its
// results, and returns the first violation.
func checkImage(ctx context.Context, w io.Writer, image v1.Image, arch, version string) (files, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	if err := checkConfig(config, arch, version); err != nil {
		return nil, err
	}
	root := mutate.Extract(image)
	defer root.Close()
	data, err := io.ReadAll(root)
	if err != nil {
		return nil, err
	}
	content, err := untar(data)
	if err != nil {
		return nil, err
	}
	binary := strings.TrimPrefix(config.Config.Entrypoint[0], "/")
	if err := onlyBinary(content, binary); err != nil {
		return nil, err
	}
	if err := checkBinary(content[binary].Data, arch); err != nil {
		return nil, fmt.Errorf("/%s: %w", binary, err)
	}
	compressed, err := compressedSize(image)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "  contents    /%s, %d bytes, and %d files in /licenses; nothing else\n", binary, len(content[binary].Data), len(content)-1)
	fmt.Fprintf(w, "  binary      static, stripped; runs as %s\n", config.Config.User)
	fmt.Fprintf(w, "  size        %.1f MB compressed (at most %d MB)\n", float64(compressed)/1e6, maxCompressed/1_000_000)
	if compressed > maxCompressed {
		return nil, fmt.Errorf("%d bytes compressed, want at most %d", compressed, maxCompressed)
	}
	if arch != runtime.GOARCH || runtime.GOOS != "linux" {
		fmt.Fprintf(w, "  not run     this machine is %s/%s\n", runtime.GOOS, runtime.GOARCH)
		return content, nil
	}
	return content, runImage(ctx, w, content, binary, version)
}

// checkConfig returns an error if the image's configuration is wrong.
func checkConfig(c *v1.ConfigFile, arch, version string) error {
	for _, field := range []struct{ name, got, want string }{
		{"os", c.OS, "linux"},
		{"architecture", c.Architecture, arch},
		{"user", c.Config.User, fmt.Sprintf("%d:%d", user, user)},
		{"command", strings.Join(c.Config.Cmd, " "), ""},
		{"label org.opencontainers.image.version", c.Config.Labels["org.opencontainers.image.version"], version},
		{"label org.opencontainers.image.licenses", c.Config.Labels["org.opencontainers.image.licenses"], "Apache-2.0"},
	} {
		if field.got != field.want {
			return fmt.Errorf("%s: %q, want %q", field.name, field.got, field.want)
		}
	}
	if len(c.Config.Entrypoint) != 1 {
		return fmt.Errorf("entrypoint: %q, want only the binary", c.Config.Entrypoint)
	}
	return nil
}

// onlyBinary returns an error unless the files are the executable binary and licences.
func onlyBinary(content files, binary string) error {
	for name, f := range content {
		executable := f.Mode&0o111 != 0
		if executable != (name == binary) || !executable && (len(f.Data) == 0 || !strings.HasPrefix(name, "licenses/")) {
			return fmt.Errorf("contains %s (executable: %t, %d bytes), want only %s and licences", name, executable, len(f.Data), binary)
		}
	}
	if content[binary] == nil || len(content) == 1 {
		return fmt.Errorf("contains %d files, want %s and licences", len(content), binary)
	}
	return nil
}

// compressedSize returns the size of the image in a registry.
func compressedSize(image v1.Image) (int64, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, err
	}
	var total int64
	for _, layer := range manifest.Layers {
		total += layer.Size
	}
	return total, nil
}

// checkBinary returns an error if the ELF file needs other files to start, or is larger than
// necessary.
func checkBinary(data []byte, arch string) error {
	binary, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if binary.Machine != machines[arch] {
		return fmt.Errorf("is for %s, want %s", binary.Machine, machines[arch])
	}
	for _, program := range binary.Progs {
		if program.Type == elf.PT_INTERP || program.Type == elf.PT_DYNAMIC {
			return errors.New("is not static: it requires a dynamic linker")
		}
	}
	for _, section := range binary.Sections {
		if section.Type == elf.SHT_SYMTAB || strings.HasPrefix(section.Name, ".debug_") || strings.HasPrefix(section.Name, ".zdebug_") {
			return fmt.Errorf("is not stripped: it contains a section %s", section.Name)
		}
	}
	return nil
}

// runImage starts the image's binary as its user in a root with only the image's files, like a
// container runtime. Only root may do that; other users run the binary directly.
func runImage(ctx context.Context, w io.Writer, content files, binary, version string) error {
	root, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := errors.Join(os.CopyFS(root, content), os.Chmod(root, 0o755)); err != nil {
		return err
	}
	cmd, how := exec.CommandContext(ctx, filepath.Join(root, binary), "--version"), "as this user (only root can start it in an empty root)"
	if os.Getuid() == 0 {
		cmd, how = exec.CommandContext(ctx, "/"+binary, "--version"), fmt.Sprintf("as %d in an empty root", user)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	cmd.Env = []string{}
	stdout, err := run(cmd)
	if err != nil {
		return fmt.Errorf("running the binary %s: %w", how, err)
	}
	output := strings.TrimSpace(string(stdout))
	fmt.Fprintf(w, "  run         %s: %s\n", how, output)
	if !strings.HasSuffix(output, "+spot-aware-scheduler."+version) {
		return fmt.Errorf("--version prints %q, want it to end with %q", output, "+spot-aware-scheduler."+version)
	}
	return nil
}
