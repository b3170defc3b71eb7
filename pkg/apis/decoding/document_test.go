package decoding

import (
	"strings"
	"testing"
)

func TestOneDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"kind: A\n":                       "",
		"---\nkind: A\n":                  "",
		"# comment\n---\nkind: A\n":       "",
		"kind: A\n---\n":                  "",
		"kind: A\n...\n# comment\n":       "",
		"kind: A\n---\n# comment\n---\n":  "",
		`{"kind": "A"}`:                   "",
		"text: |\n  a\n  ---\n  b\n":      "",
		"kind: A\n---\nkind: B\n":         "line 2",
		"kind: A\n--- # comment\nkind: B": "line 2",
		"kind: A\n...\nkind: B\n":         "one YAML document",
		"---\n---\nkind: A\n":             "one YAML document",
		"kind: A\n---\n---\nkind: B\n":    "one YAML document",
		"kind: A\n---\n{kind\n":           "one YAML document",
		"kind: [\n":                       "", // left to the decoder
	} {
		err := OneDocument([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}
