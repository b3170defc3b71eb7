package decision_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected output of testdata/*.txt")

// TestScenarios runs testdata/*.txt. A file is a list of steps: one line per directive, a line
// "----", and the output up to the next empty line. Indented lines belong to the directive above
// them. Lines that start with # are comments. The first word of a line is the directive;
// testdata/README.md describes each.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios found in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runScenario(string(want))
			if err != nil {
				t.Fatalf("%s:%v", file, err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s came out differently (-want +got; -update rewrites it):\n%s", file, diff)
			}
		})
	}
}

// runScenario returns text with the actual output of every step.
func runScenario(text string) (string, error) {
	var out strings.Builder
	var step []command
	c := newCluster()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out.WriteString(line + "\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "----":
			for i+1 < len(lines) && lines[i+1] != "" {
				i++ // skip the expected output
			}
			several := slices.ContainsFunc(step[:max(0, len(step)-1)], func(cmd command) bool { return displays[cmd.name] != nil })
			for _, cmd := range step {
				if cmd.name == "scenario" {
					c = newCluster()
					continue
				}
				printed, err := c.run(cmd)
				if err != nil {
					return "", fmt.Errorf("%d: %s: %w", cmd.line, cmd.name, err)
				}
				if displays[cmd.name] != nil && several {
					fmt.Fprintf(&out, "> %s\n", lines[cmd.line-1])
				}
				out.WriteString(printed)
			}
			step = nil
		case line == "":
			if step != nil {
				return "", fmt.Errorf("%d: the step before this line has no ----", i+1)
			}
		case strings.HasPrefix(line, " "):
			if step == nil {
				return "", fmt.Errorf("%d: an indented line without a directive", i+1)
			}
			last := &step[len(step)-1]
			last.block = append(last.block, parseArgs(line))
		default:
			args := parseArgs(line)
			step = append(step, command{line: i + 1, name: args.first(), args: args.after()})
		}
	}
	if step != nil {
		return "", fmt.Errorf("%d: the last step has no ----", len(lines))
	}
	return out.String(), nil
}

// command is one directive with the indented lines below it.
type command struct {
	line  int
	name  string
	args  args
	block []args
}

// args are the words and the key=value pairs of a line, each in order.
type args struct {
	words []string
	pairs [][2]string
}

func parseArgs(line string) (a args) {
	for _, field := range strings.Fields(line) {
		if key, value, ok := strings.Cut(field, "="); ok {
			a.pairs = append(a.pairs, [2]string{key, value})
		} else {
			a.words = append(a.words, field)
		}
	}
	return a
}

// first returns the first word, or "".
func (a args) first() string {
	if len(a.words) == 0 {
		return ""
	}
	return a.words[0]
}

// after returns the args without their first word.
func (a args) after() args { return args{a.words[min(1, len(a.words)):], a.pairs} }

// expect returns an error unless the number of words is the number of names in words.
func (a args) expect(words ...string) error {
	if len(a.words) != len(words) {
		return fmt.Errorf("expected <%s>, got %q", strings.Join(words, "> <"), a.words)
	}
	return nil
}

// run executes one directive and returns its output.
func (c *cluster) run(cmd command) (string, error) {
	if run, ok := directives[cmd.name]; ok {
		c.refresh()
		err := run(c, cmd)
		c.refresh()
		return "", err
	}
	if show, ok := displays[cmd.name]; ok {
		c.refresh()
		return show(c, cmd.args)
	}
	return "", fmt.Errorf("no such directive")
}

// workload returns a workload by name, with or without its namespace.
func (c *cluster) workload(name string) (*workload, error) {
	for _, w := range c.workloads {
		if w.name == name || w.namespace+"/"+w.name == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("no workload %q", name)
}

func (c *cluster) node(name string) (*node, error) {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no node %q", name)
	}
	return c.nodes[i], nil
}

func (c *cluster) pod(name string) (*pod, error) {
	for _, w := range c.workloads {
		for _, p := range w.pods() {
			if p.name == name {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("no pod %q", name)
}
