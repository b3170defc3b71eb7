// Package docs contains the documentation: its words are public (kubectl spot bug-report).
package docs

import "embed"

// Pages has the pages for users and the reference.
//
//go:embed *.md reference/*.md
var Pages embed.FS
