package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
)

// TestCommands runs testdata/*.txt. The directive run is followed by command lines, and by what
// they print, which the flag -rewrite replaces. Its arguments:
//
//	denied=(RESOURCE,...)  the API server denies these resources
//	no-config              without --scheduler-config={shipped}
//
// A name in braces is a file, as in files, or the settings of the default policy.
func TestCommands(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		paths := files(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				d.Fatalf(t, "unknown directive %q", d.Cmd)
			}
			var denied []string
			more := []string{"--scheduler-config=" + paths["{shipped}"]}
			for _, arg := range d.CmdArgs {
				switch arg.Key {
				case "denied":
					denied = arg.Vals
				case "no-config":
					more = nil
				default:
					d.Fatalf(t, "unknown argument %q", arg.Key)
				}
			}
			more = append(more, "--kubeconfig="+cluster(t, strings.Join(denied, ",")))
			var answers strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				answers.WriteString(answer(t, line, more, paths))
			}
			return answers.String()
		})
	})
}

// ages matches the age of a node, which depends on the date.
var ages = regexp.MustCompile(` (\d+y)?\d+d `)

// answer returns what a command line prints, and its exit status unless it is 0.
func answer(t *testing.T, line string, more []string, paths map[string]string) string {
	t.Helper()
	var toPaths, toNames []string
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		toPaths, toNames = append(toPaths, name, paths[name]), append(toNames, paths[name], name)
	}
	args := strings.Split(strings.NewReplacer(toPaths...).Replace(line), " ")
	if args[0] == "__complete" { // its last argument is the word to complete
		args = slices.Insert(args, 1, more...)
	} else {
		args = append(args, more...)
	}
	out, errOut, status := execute(t, args...)
	text := "$ " + line + "\n" + ages.ReplaceAllString(out, " AGE ")
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for line := range strings.Lines(errOut) {
		text += "stderr: " + line
	}
	if status != 0 {
		text += fmt.Sprintf("exit status %d\n", status)
	}
	policy, _, err := (&config.ReplicaSafetyArgs{}).Policy()
	if err != nil {
		t.Fatal(err)
	}
	toNames = append(toNames, policy.Defaults.String(), "{default settings}")
	return strings.NewReplacer(toNames...).Replace(text)
}

// files returns the paths of the files that command lines name.
func files(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	text := filepath.Join(dir, "text.json")
	if err := os.WriteFile(text, []byte("no JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"{shipped}":    "../../config/scheduler-config.yaml",
		"{invalid}":    policyFile(t, "minOnDemand: 1\n", "minOnDemand: 130%\n"),
		"{noFloor}":    policyFile(t, "minOnDemand: 1\n", "minOnDemand: 0\n"),
		"{byPriority}": policyFile(t, "minOnDemand: 1\n", "minOnDemand: 1\n      rules: [{name: important, minPriority: 100, minOnDemand: 2}]\n"),
		"{dump}":       dumpFile(t, assessed, nil),
		"{gaps}":       dumpFile(t, "node n spot x.large/a\npod lost n owner=ReplicaSet/gone\ndeployment web 2 n n", nil),
		"{text}":       text,
		"{folder}":     t.TempDir(),
	}
}
