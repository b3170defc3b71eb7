package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLinks checks every link within the repository, including its heading.
func TestLinks(t *testing.T) {
	headings := map[string][]string{}
	all := pages(t)
	for _, p := range all {
		headings[p.file] = p.headings()
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	found := 0
	for _, p := range all {
		for _, line := range p.lines {
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(match[1], "://") {
					continue
				}
				found++
				target, heading, _ := strings.Cut(match[1], "#")
				file := p.file
				if target != "" {
					file = filepath.Join(filepath.Dir(p.file), target)
				}
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					t.Errorf("%s: link to %s: %v", p.file, match[1], err)
				} else if heading != "" && !slices.Contains(headings[file], heading) {
					t.Errorf("%s: link to %s: no such heading, expected one of %q", p.file, match[1], headings[file])
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d links, expected at least 30: the expression matches too little", found)
	}
}

// headings returns the anchors of a page's headings.
func (p *page) headings() []string {
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	var anchors []string
	for _, line := range p.lines {
		if text, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchors = append(anchors, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-"))
		}
	}
	return anchors
}
