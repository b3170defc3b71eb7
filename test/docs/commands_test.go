package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCommandsExist checks the make targets, paths, programs and flags that the pages name.
func TestCommandsExist(t *testing.T) {
	var targets []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, match[1])
	}
	makes := read(t, "Makefile") + read(t, "hack/image.sh")
	path := regexp.MustCompile(`(?:^|[\s=(,'"]|\./|spot-aware-scheduler/)((?:cmd|pkg|config|manifests|hack|test|docs|bin)/[\w./-]*\w)`)
	flag := regexp.MustCompile(`\s(--?[a-z][\w-]*)`)
	plugin := regexp.MustCompile(`^(?:\$ )?kubectl spot ([a-z])`)
	found := map[string]int{}
	for _, page := range pages(t) {
		for _, line := range page.code() {
			line = strings.TrimSpace(strings.SplitN(line, " #", 2)[0])
			if line == "Makefile" || strings.Contains(line, "file:") {
				continue
			}
			if args, ok := strings.CutPrefix(line, "make "); ok {
				for _, target := range strings.Fields(args) {
					if found["make"]++; !strings.Contains(target, "=") && !slices.Contains(targets, target) {
						t.Errorf("%s: %q: the Makefile has no target %s", page.file, line, target)
					}
				}
			}
			for _, match := range path.FindAllStringSubmatch(line, -1) {
				file := match[1]
				if strings.HasPrefix(file, "bin/") {
					// The file exists only after a build, so check that the build knows the first
					// part of its name.
					if found["bin"]++; !strings.Contains(makes, strings.Join(strings.Split(file, "/")[:2], "/")) {
						t.Errorf("%s: %q: nothing builds %s", page.file, line, file)
					}
				} else if found["path"]++; !exists(file) {
					t.Errorf("%s: %q: %s does not exist", page.file, line, file)
				}
			}
			line = plugin.ReplaceAllString(line, "bin/kubectl-spot $1")
			if program, _, _ := strings.Cut(line, " "); regexp.MustCompile(`^bin/[\w-]+$`).MatchString(program) {
				help := help(t, strings.Fields(line))
				for _, match := range flag.FindAllStringSubmatch(line, -1) {
					if found["flag"]++; !regexp.MustCompile(`\s` + match[1] + `[\s,]`).MatchString(help) {
						t.Errorf("%s: %q: %s has no flag %s", page.file, line, program, match[1])
					}
				}
			}
		}
	}
	for kind, atLeast := range map[string]int{"make": 15, "path": 20, "bin": 5, "flag": 20} {
		if found[kind] < atLeast {
			t.Errorf("found %d %s, expected at least %d: the expressions of this test match too little", found[kind], kind, atLeast)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(filepath.Join(root, file))
	return err == nil
}

// help returns the help text of a program that make build built. If the words contain a subcommand,
// it is the help text of the subcommand, for kubectl spot with the flags of all commands.
func help(t *testing.T, words []string) string {
	t.Helper()
	args := []string{"--help"}
	if len(words) > 1 && !strings.HasPrefix(words[1], "-") {
		args = []string{words[1], "--help"}
	}
	out, err := exec.Command(filepath.Join(root, words[0]), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v (make build builds it)\n%s", words[0], args, err, out)
	}
	if words[0] == "bin/kubectl-spot" {
		shared, err := exec.Command(filepath.Join(root, words[0]), "options").CombinedOutput()
		must(t, err)
		out = append(out, shared...)
	}
	return string(out)
}

// TestConfigurationIsCheckedOffline runs the command in docs/install.md that checks a configuration
// without a cluster.
func TestConfigurationIsCheckedOffline(t *testing.T) {
	command := regexp.MustCompile(`(?m)^bin/spot-aware-scheduler --config=\S+ (.*)$`).FindStringSubmatch(read(t, "docs/install.md"))
	if command == nil {
		t.Fatal("docs/install.md gives no such command")
	}
	shipped := read(t, "config/scheduler-config.yaml")
	bad := strings.Replace(shipped, "minOnDemand: 1\n", "minOnDemand: 130%\n", 1)
	if bad == shipped {
		t.Fatal("expected minOnDemand: 1 in config/scheduler-config.yaml")
	}
	for text, want := range map[string]string{shipped: "", bad: `args.minOnDemand: Invalid value: "130%"`} {
		file := filepath.Join(t.TempDir(), "scheduler-config.yaml")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		args := append([]string{"--config=" + file}, strings.Fields(command[1])...)
		out, err := exec.Command(filepath.Join(root, "bin/spot-aware-scheduler"), args...).CombinedOutput()
		if (err != nil) != (want != "") || !strings.Contains(string(out), want) {
			t.Errorf("bin/spot-aware-scheduler %v: %v, want an error that contains %q (make build builds the program)\n%s", args, err, want, out)
		}
	}
}
