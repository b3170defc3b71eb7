// Checkimage verifies a container image, given as a docker-archive. The image must contain one
// static, stripped binary for one architecture, run as a non-root user, and be small enough to pull
// quickly. On a machine of that architecture, checkimage also runs the binary from the archive. It
// prints its results, and exits with status 1 at the first violation.
package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

const (
	user = 65532 // uid and gid of the image; Pod Security "restricted" requires a number other than 0
	// maxCompressed is the largest size of the compressed image: 80 MB, with a registry's megabyte
	// of 1,000,000 bytes.
	maxCompressed = 80_000_000
)

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func main() {
	arch := flag.String("arch", runtime.GOARCH, "`architecture` of the image: amd64 or arm64")
	name := flag.String("name", "", "`name:tag` of the image in the archive")
	version := flag.String("version", "", "`version` of the image and its binary")
	flag.Parse()
	if flag.NArg() != 1 || machines[*arch] == 0 || *name == "" || *version == "" {
		fmt.Fprintln(os.Stderr, "usage: checkimage -arch amd64|arm64 -name NAME:TAG -version VERSION ARCHIVE")
		os.Exit(2)
	}
	if err := check(flag.Arg(0), *arch, *name, *version); err != nil {
		fmt.Fprintf(os.Stderr, "checkimage: %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

// check prints the properties of the image in the archive, and returns the first violation.
func check(archive, arch, name, version string) error {
	image, err := readImage(archive)
	if err != nil {
		return err
	}
	if want := []string{name}; !slices.Equal(image.names, want) {
		return fmt.Errorf("named %v, want %v", image.names, want)
	}
	if err := checkConfig(image.config, arch, version); err != nil {
		return err
	}
	if len(image.files) != 1 {
		var paths []string
		for _, f := range image.files {
			paths = append(paths, f.path)
		}
		return fmt.Errorf("contains %d files, want only the binary: %s", len(paths), strings.Join(paths, ", "))
	}
	file := image.files[0]
	if want := image.config.Config.Entrypoint[0]; file.path != want || file.mode != 0o755 {
		return fmt.Errorf("contains %s with mode %v, want the entrypoint %s as a file with mode 0755", file.path, file.mode, want)
	}
	if err := checkBinary(file.data, arch); err != nil {
		return fmt.Errorf("%s: %w", file.path, err)
	}
	compressed, err := gzipped(file.data)
	if err != nil {
		return err
	}

	fmt.Printf("image: %s linux/%s: %s\n", name, arch, archive)
	fmt.Printf("  contents    %v %d:%d %d bytes %s; nothing else\n", file.mode, file.uid, file.gid, len(file.data), file.path)
	fmt.Printf("  binary      static, stripped; runs as %s\n", image.config.Config.User)
	fmt.Printf("  size        %.1f MB, %.1f MB compressed (at most %d MB)\n",
		float64(len(file.data))/1e6, float64(compressed)/1e6, maxCompressed/1_000_000)
	if compressed > maxCompressed {
		return fmt.Errorf("%d bytes compressed, want at most %d", compressed, maxCompressed)
	}
	if arch != runtime.GOARCH {
		fmt.Printf("  not run     this machine is %s\n", runtime.GOARCH)
		return nil
	}
	return run(file, version)
}

// checkConfig returns an error if the image's configuration is wrong.
func checkConfig(c config, arch, version string) error {
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

// gzipped returns the size of data after gzip compression, which registries use for layers.
func gzipped(data []byte) (int64, error) {
	var n counter
	w := gzip.NewWriter(&n)
	if _, err := w.Write(data); err != nil {
		return 0, err
	}
	return int64(n), w.Close()
}

type counter int64

func (n *counter) Write(p []byte) (int, error) {
	*n += counter(len(p))
	return len(p), nil
}

// run starts the image's binary as its user with an empty root, like a container runtime. Only root
// may do that; other users run the binary directly.
func run(f file, version string) error {
	root, err := os.MkdirTemp("", "checkimage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	path := filepath.Join(root, f.path)
	if err := errors.Join(os.Chmod(root, 0o755), os.WriteFile(path, f.data, 0o755)); err != nil {
		return err
	}
	cmd, how := exec.Command(path, "--version"), "as this user (only root can start it in an empty root)"
	if os.Getuid() == 0 {
		cmd, how = exec.Command(f.path, "--version"), fmt.Sprintf("as %d in an empty root", user)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	cmd.Env = []string{}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running the binary %s: %w: %s", how, err, stderr.String())
	}
	output := strings.TrimSpace(string(stdout))
	fmt.Printf("  run         %s: %s\n", how, output)
	if !strings.HasSuffix(output, "+spot-aware-scheduler."+version) {
		return fmt.Errorf("--version prints %q, want it to end with %q", output, "+spot-aware-scheduler."+version)
	}
	return nil
}
