package demo

import (
	"fmt"
	"io"
	"strings"
)

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// page writes lines of text, with escape sequences if color is set.
type page struct {
	out   io.Writer
	color bool
}

func (p page) line(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

// paint returns text in the style. Callers pad text before they paint it, because escape
// sequences have no width.
func (p page) paint(style, text string) string {
	if !p.color {
		return text
	}
	return style + text + plain
}

// rule draws a line across the table.
func (p page) rule() {
	p.line("%s", p.paint(dim, strings.Repeat("─", 42)+"┼"+strings.Repeat("─", 26)+"┼"+strings.Repeat("─", 27)))
}

// paragraph writes text in lines of at most 98 columns, the second and later ones indented.
func (p page) paragraph(style, text string) {
	for i, text := range wrap(text, 95) {
		p.line(" %s%s", strings.Repeat("  ", min(i, 1)), p.paint(style, text))
	}
}

// wrap breaks text between words into lines of at most width bytes; a longer word has its own.
func wrap(text string, width int) []string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
