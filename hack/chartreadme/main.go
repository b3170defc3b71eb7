// Command chartreadme prints the README of a Helm chart with a new table of its values. The table
// has a row for each value in values.yaml with a comment: name, default, and the comment.
//
//	go run ./hack/chartreadme CHART
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The table is between these lines of the README.
const (
	begin = "<!-- values: make generate -->\n"
	end   = "<!-- end of values -->\n"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "chartreadme: expected one argument, the folder of a chart")
		os.Exit(2)
	}
	text, err := readme(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chartreadme:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

// readme returns the README of the chart in dir with a new table.
func readme(dir string) (string, error) {
	path := filepath.Join(dir, "README.md")
	old, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	before, rest, hasBegin := strings.Cut(string(old), begin)
	_, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("%s: expected the lines %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	path = filepath.Join(dir, "values.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	table := "| value | default | meaning |\n|---|---|---|\n"
	if err := addRows(&table, "", document.Content[0]); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return before + begin + table + end + after, nil
}

// addRows adds a row for each value in a mapping. A nested mapping with comments on its values adds
// their rows instead of its own.
func addRows(table *string, prefix string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		if value.Kind == yaml.MappingNode && hasComments(value) {
			if err := addRows(table, name+".", value); err != nil {
				return err
			}
			continue
		}
		if key.HeadComment == "" {
			return fmt.Errorf("line %d: %s: expected a comment", key.Line, name)
		}
		var content any
		if err := value.Decode(&content); err != nil {
			return err
		}
		inJSON, err := json.Marshal(content)
		if err != nil {
			return err
		}
		*table += fmt.Sprintf("| `%s` | `%s` | %s |\n", name, inJSON, meaning(key.HeadComment))
	}
	return nil
}

// hasComments reports whether a mapping or a mapping in it has a value with a comment.
func hasComments(mapping *yaml.Node) bool {
	for _, node := range mapping.Content {
		if node.HeadComment != "" || node.Kind == yaml.MappingNode && hasComments(node) {
			return true
		}
	}
	return false
}

// meaning returns a comment as one line of Markdown.
func meaning(comment string) string {
	// The first comment of the file is about the whole file.
	paragraphs := strings.Split(comment, "\n\n")
	words := strings.Fields(strings.ReplaceAll(paragraphs[len(paragraphs)-1], "#", ""))
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
}
