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
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"
)

var commands = map[string]func(ctx context.Context, args []string) error{
	"build":       buildCommand,
	"check":       checkCommand,
	"check-image": checkImageCommand,
	"licenses":    licensesCommand,
}

// errUsage is a wrong command line. The error before it explains it.
var errUsage = errors.New("usage: release build|check|check-image|licenses [flags] (see hack/release/main.go)")

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := errUsage
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		err = commands[os.Args[1]](ctx, os.Args[2:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		cancel()
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// parse parses the flags and returns an error unless count arguments follow them.
func parse(flags *flag.FlagSet, args []string, count int) error {
	if err := flags.Parse(args); err != nil || flags.NArg() != count {
		return fmt.Errorf("%s: %d arguments after the flags, expected %d: %w", flags.Name(), flags.NArg(), count, errUsage)
	}
	return nil
}

func buildCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	r := release{root: ".", images: images, plugin: plugin}
	flags.StringVar(&r.version, "version", "", "`version`, such as v0.1.0")
	flags.StringVar(&r.registry, "registry", "ghcr.io/spot-aware-scheduler", "`registry` of the images, and the path in it")
	flags.StringVar(&r.ldflags, "ldflags", "", "`flags` of the linker")
	dist := flags.String("dist", "dist", "`folder` to which the release's own folder is added")
	if err := parse(flags, args, 0); err != nil {
		return err
	}
	if err := checkVersion(r.version); err != nil {
		return err
	}
	if err := checkRegistry(r.registry); err != nil {
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
	dir, err := r.write(ctx, *dist)
	if err != nil {
		return err
	}
	fmt.Println("release: wrote", dir)
	return nil
}

func checkCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	version := flags.String("version", "", "`version` of the release")
	if err := parse(flags, args, 1); err != nil {
		return err
	}
	if err := checkVersion(*version); err != nil {
		return err
	}
	return checkRelease(ctx, os.Stdout, flags.Arg(0), *version, images, plugin)
}

func checkImageCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("check-image", flag.ContinueOnError)
	arch := flags.String("arch", runtime.GOARCH, "`architecture` of the image: amd64 or arm64")
	name := flags.String("name", "", "`name:tag` of the image in the archive")
	version := flags.String("version", "", "`version` of the image and its binary")
	if err := parse(flags, args, 1); err != nil {
		return err
	}
	if machines[*arch] == 0 || *name == "" || *version == "" {
		return fmt.Errorf("check-image: expected -arch amd64 or arm64, -name and -version: %w", errUsage)
	}
	return checkArchive(ctx, os.Stdout, flags.Arg(0), *arch, *name, *version)
}

func licensesCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("licenses", flag.ContinueOnError)
	arch := flags.String("arch", runtime.GOARCH, "`architecture` of the binary")
	out := flags.String("out", "", "`folder` to write; its old content is removed")
	if err := parse(flags, args, 1); err != nil {
		return err
	}
	if *out == "" {
		return fmt.Errorf("licenses: expected -out: %w", errUsage)
	}
	files, err := licenses(ctx, ".", flags.Arg(0), platform{"linux", *arch})
	if err != nil {
		return err
	}
	if err := os.RemoveAll(*out); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(*out, f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.data, 0o644)); err != nil {
			return err
		}
	}
	return nil
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
