// Release builds and verifies the files of a release. RELEASE.md describes how a release is made.
//
//	release build -version v0.1.0 -ldflags FLAGS   writes the files into dist/v0.1.0
//	release check -version v0.1.0 DIR              verifies the files in DIR
//	release check-image -version VERSION -name NAME:TAG -arch ARCH ARCHIVE
//	                                               verifies an image that make image built
//	release licenses -arch ARCH -out DIR PACKAGE   writes the licences of a Linux binary into DIR
//
// Equal sources, versions and dates give equal bytes, in any folder and on any machine with the
// same version of Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"
)

const usage = "usage: release build|check|check-image|licenses [flags] [argument] (see hack/release/main.go)"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	r := release{root: ".", images: images, plugin: plugin}
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	flags.StringVar(&r.version, "version", "", "`version`, such as v0.1.0")
	flags.StringVar(&r.registry, "registry", "ghcr.io/spot-aware-scheduler", "build: `registry` of the images, and the path in it")
	flags.StringVar(&r.ldflags, "ldflags", "", "build: `flags` of the linker")
	arch := flags.String("arch", runtime.GOARCH, "check-image, licenses: `architecture`, amd64 or arm64")
	name := flags.String("name", "", "check-image: `name:tag` of the image in the archive")
	out := flags.String("out", "", "licenses: `folder` to write; its old content is removed")
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	flags.Parse(os.Args[2:])
	var err error
	switch command := os.Args[1]; {
	case machines[*arch] == 0:
		err = fmt.Errorf("-arch=%s: expected amd64 or arm64", *arch)
	case command == "build" && flags.NArg() == 0:
		err = r.buildCommand(ctx)
	case command == "check" && flags.NArg() == 1:
		err = checkRelease(ctx, os.Stdout, flags.Arg(0), r.version, images, plugin)
	case command == "check-image" && flags.NArg() == 1 && *name != "" && r.version != "":
		err = checkArchive(ctx, os.Stdout, flags.Arg(0), *arch, *name, r.version)
	case command == "licenses" && flags.NArg() == 1 && *out != "":
		err = writeLicenses(ctx, flags.Arg(0), *arch, *out)
	default:
		err = errors.New(usage)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		cancel()
		os.Exit(1)
	}
}

// buildCommand verifies the settings, makes the tools, and builds the release in dist.
func (r *release) buildCommand(ctx context.Context) error {
	if err := errors.Join(checkVersion(r.version), checkRegistry(r.registry)); err != nil {
		return err
	}
	var err error
	if r.date, err = releaseDate(ctx, os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	for _, tool := range []string{"helm", "helm-docs"} {
		if _, err := run(exec.CommandContext(ctx, "hack/tools.sh", tool)); err != nil {
			return err
		}
	}
	dir, err := r.write(ctx, "dist")
	if err == nil {
		fmt.Println("release: wrote", dir)
	}
	return err
}

// writeLicenses writes the licences of a Linux binary into the folder out.
func writeLicenses(ctx context.Context, pkg, arch, out string) error {
	found, err := licenses(ctx, ".", pkg, platform{"linux", arch})
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(out), os.CopyFS(out, found))
}

// checkVersion returns an error unless the version can be a tag in git, of an image and of a chart.
// An image tag must not contain "+", so build metadata is not possible.
func checkVersion(version string) error {
	if semver.Canonical(version) != version || version == "" {
		return fmt.Errorf("VERSION=%s: expected v and a semantic version without build metadata, such as v0.1.0 or v0.2.0-rc.1", version)
	}
	return nil
}

func checkRegistry(registry string) error {
	if !regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`).MatchString(registry) {
		return fmt.Errorf("REGISTRY=%s: expected a registry and a path in lower case, such as registry.example/team", registry)
	}
	return nil
}

// releaseDate returns the time that all files contain: epoch, the content of SOURCE_DATE_EPOCH, or
// the time of the commit if epoch is empty.
func releaseDate(ctx context.Context, epoch string) (time.Time, error) {
	if epoch == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is not set, and git returned no commit time: %w", err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	const first = 315532800 // zip files contain no time before 1980
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < first {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: expected seconds since 1970, at least %d (1980)", epoch, first)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
