package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// page is a parsed Markdown file.
type page struct {
	// file is its path in the repository.
	file  string
	lines []string // lines outside of code blocks
	// blocks are its code blocks.
	blocks []block
}

type block struct{ language, text string }

// pages returns the pages for readers of the project: README, CONTRIBUTING and docs.
func pages(t *testing.T) []page {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			file, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		return err
	})
	must(t, err)
	var pages []page
	for _, file := range files {
		pages = append(pages, parse(file, read(t, file)))
	}
	return pages
}

func parse(file, text string) page {
	p := page{file: file}
	var open *block
	var indent string
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			open, indent = &block{language: trimmed[3:]}, line[:strings.Index(line, "`")]
		case open != nil && trimmed == "```":
			p.blocks, open = append(p.blocks, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent)
		default:
			p.lines = append(p.lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return p
}

var span = regexp.MustCompile("`([^`]+)`")

// code returns the lines of all code blocks and the code spans, which readers type or look up.
func (p *page) code() []string {
	var code []string
	for _, b := range p.blocks {
		code = append(code, strings.Split(b.text, "\n")...)
	}
	for _, line := range p.lines {
		for _, match := range span.FindAllStringSubmatch(line, -1) {
			code = append(code, match[1])
		}
	}
	return code
}

// firstColumn returns the code spans in the first column of tables with a heading there.
func (p *page) firstColumn(heading string) []string {
	var found []string
	in := false
	for _, line := range p.lines {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) < 3:
			in = false
		case strings.TrimSpace(cells[1]) == heading:
			in = true
		case in:
			for _, match := range span.FindAllStringSubmatch(cells[1], -1) {
				found = append(found, match[1])
			}
		}
	}
	return found
}
